from __future__ import annotations

from collections.abc import Iterator

import pytest

import fencepost
from fencepost import EventStore

from .addresses import address

__all__ = ["address", "store"]


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store
