"""An export into an object store that ends at any of its requests: the lake verifies, and the next export tidies up.

A kill is simulated: the process sends no further request. tests/spark/test_object_lakes.py kills a real process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import obstore
import pytest
from tests.spark.test_object_lakes import NO_SPARK, URL, export
from tests.spark.test_object_lakes import s3 as s3
from tests.support.mock_s3 import Kept, MockS3

import fencepost
from fencepost import AppendCondition, Event, Query
from fencepost.engines.lake.files import existing_manifest, strays
from fencepost.engines.lake.paths import storage_of
from fencepost.spark import lake


class Killed(BaseException):
    """The process is gone: it sends no further request."""


def kill_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this request that changes the store, and every later one, not happen."""
    count = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count >= step:
                raise Killed
            return call(*arguments, **options)

        return called

    for name in ("put", "delete"):
        monkeypatch.setattr(obstore, name, counted(getattr(obstore, name)))


@pytest.mark.parametrize("retain_s", [0, 86_400])
def test_a_kill_at_any_request_leaves_a_lake_that_verifies(s3: MockS3, empty: str, retain_s: int) -> None:
    with fencepost.open(empty, record_conditions=True) as store:
        for number in range(33):
            mine = Query.of(tags={f"w:{number % 3}"})
            store.append([Event("Paid", tags={f"w:{number % 3}"})], AppendCondition(mine, after=store.head()))
        for upto in (5, 9, 13, 17):
            export(empty, chunk=20, upto=upto)
        begun, step, killed = dict(s3.objects), 0, True
        while killed:
            step += 1
            s3.objects = dict(begun)
            with pytest.MonkeyPatch.context() as patched:
                kill_at(step, patched)
                try:
                    export(empty, chunk=20, retain_s=retain_s)
                    killed = False
                except Killed:
                    pass
            with fencepost.open(f"lake:{URL}") as kept:
                assert lake.verify(NO_SPARK, URL) == []
                assert list(kept.read()) == list(store.read(upto=kept.head()))
                for key, found in s3.objects.items():  # some hours later
                    s3.objects[key] = Kept(found.content, found.written_s - 7_200)
                export(empty, chunk=20, retain_s=retain_s)
                assert strays(storage_of(URL), existing_manifest(URL)) == []
                assert lake.verify(NO_SPARK, URL) == []
                assert list(kept.read()) == list(store.read())
                assert list(kept.recorded()) == list(store.recorded())
    assert step > 8
    assert [file.rows for file in existing_manifest(URL).files] == [20, 13]
    assert len(s3.keys("/events/")) == (2 if retain_s == 0 else 7), "replaced files stay only if they are to"
