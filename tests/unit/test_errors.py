"""The errors are the tree that errors.py draws; each has its attributes and can be pickled."""

from __future__ import annotations

import inspect
import pickle
import re
from copy import copy
from datetime import datetime, timezone
from uuid import UUID

import pytest

import fencepost
from fencepost import AppendCondition, FencepostError, Query, Record, SequencedEvent, errors

CONFLICT = SequencedEvent(7, "Closed", frozenset({"x"}), b"", datetime.now(timezone.utc))

EXAMPLES: list[FencepostError] = [
    errors.FencepostError("root"),
    errors.InvalidInput("tags", "21 tags, the limit is 20"),
    errors.AppendRefused("refused"),
    errors.ConditionFailed(AppendCondition(Query.all(), after=3), CONFLICT),
    errors.IdsOverlap(UUID(int=1), 5, UUID(int=2)),
    errors.CheckpointBehind("name", 3, 5),
    errors.RecordChanged("name", 3, Record("name", b"", 4)),
    errors.ReadingNotFinished("not yet"),
    errors.StoreError("storage"),
    errors.StoreClosed("closed"),
    errors.StoreUnavailable("busy"),
    errors.StoreReadOnly("read-only"),
    errors.AccessDenied("no right to append"),
    errors.StoreCorrupt("corrupt"),
    errors.FormatUnsupported("newer"),
]

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, FencepostError)]


def test_there_is_an_example_of_every_error() -> None:
    assert {type(example) for example in EXAMPLES} == set(CLASSES)


def test_the_tree_at_the_top_of_the_module_is_the_tree_of_the_classes() -> None:
    drawn = re.findall(r"^    ([│├└─ ]*)(\w+)", errors.__doc__ or "", re.MULTILINE)
    assert {name for _, name in drawn} == {one.__name__ for one in CLASSES}
    path: list[str] = []
    for branches, name in drawn:
        depth = len(branches) // 4
        path[depth:] = [name]
        if depth:
            parent = getattr(errors, path[depth - 1])
            assert parent in getattr(errors, name).__bases__


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_travels_between_processes_and_threads(error: FencepostError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other).keys() == vars(error).keys()


@pytest.mark.parametrize("error", CLASSES, ids=lambda error: error.__name__)
def test_every_error_is_public_and_explained(error: type[FencepostError]) -> None:
    assert getattr(fencepost, error.__name__) is error
    assert error.__doc__


def test_a_failed_condition_says_what_stopped_it_and_what_to_do() -> None:
    failed = errors.ConditionFailed(AppendCondition(Query.all(), after=3), CONFLICT)
    assert "'Closed' at position 7" in str(failed)
    assert "after 3" in str(failed)
    assert "read again" in str(failed)


def test_a_refusal_is_never_a_storage_error() -> None:
    for error in CLASSES:
        assert not (issubclass(error, errors.AppendRefused) and issubclass(error, errors.StoreError))
