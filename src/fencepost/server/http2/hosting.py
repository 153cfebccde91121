"""What the connections of a server share: settings, metrics, memory for bodies, the service, and who is connected."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import metrics
from ..messages import BodyMemory
from ..settings import Settings
from .streams import Stream

if TYPE_CHECKING:
    from .connection import Connection


@dataclass
class Host:
    settings: Settings
    metrics: metrics.Metrics
    bodies: BodyMemory
    serve: Callable[[Stream], Coroutine[Any, Any, None]]
    connections: set[Connection] = field(default_factory=set)

    @property
    def max_streams(self) -> int:
        return self.settings.max_requests + self.settings.max_subscriptions

    def count_refused(self, limit: str) -> None:
        self.metrics.add(metrics.REFUSED, limit)

    def count_reaped(self) -> None:
        self.metrics.add(metrics.REAPED)
