"""What the connections of a server share: limits, memory, the application, and who is connected."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .streams import Stream

if TYPE_CHECKING:
    from .connection import Connection


class Limits(NamedTuple):
    max_connections: int
    max_streams: int
    max_body_bytes: int
    request_timeout_s: float
    stalled_client_s: float


@dataclass
class Host:
    """What the connections of a server share. The callables count in its metrics and its memory for bodies."""

    limits: Limits
    serve: Callable[[Stream], Coroutine[Any, Any, None]]
    reserve: Callable[[int], bool]
    release: Callable[[int], None]
    on_refused: Callable[[str], None]
    on_reaped: Callable[[], None]
    connections: set[Connection] = field(default_factory=set)
