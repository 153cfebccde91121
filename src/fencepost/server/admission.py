"""What every call passes, over HTTP and over gRPC: its caller, what the caller may do, and whether there is room.

An `Admission` belongs to one served store. Both interfaces ask it for the caller (`identify`), for room (`begin`), for
memory (`Room.reserve`), and have it append (`place`), so a limit, a scope and a count mean the same in both. Each limit
holds in total, and one caller may take at most `caller_share` of it: the name of its API key, or its address where no
keys are needed. tests/server/test_limits.py checks the limits, tests/server/test_floods.py attacks them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import ceil
from time import monotonic, perf_counter
from typing import Final, TypeVar

from .. import AppendCondition, Placed, Query, SequencedEvent
from ..aio import AsyncEventStore
from ..engine import Append, engine_of, observe
from ..errors import (
    AccessDenied,
    CheckpointBehind,
    ConditionFailed,
    FencepostError,
    IdsOverlap,
    RecordChanged,
    StoreError,
    StoreReadOnly,
)
from . import metrics
from .access import ANYONE, Access, Unauthenticated
from .head_watch import HeadWatch
from .keys import KeyFile
from .metrics import Metrics
from .observer import Observer
from .remote.transport import is_this_machine
from .settings import VERSION, Settings
from .wire import problems

log: Final = logging.getLogger("fencepost.server")

Result = TypeVar("Result")

LARGE_BYTES: Final = 65_536  # encoding and decoding more than this is done by a thread, not on the event loop
CODEC_THREADS: Final = 2
PROBE: Final = "fencepost.server/ready"  # a checkpoint that is moved to learn whether the store takes writes again
PROBE_S: Final = 1.0


class Refused(StoreError):
    """The call is answered with this problem, before it has changed anything."""

    def __init__(
        self, kind: problems.Kind, detail: str, *, retry_after_s: int | None = None, close: bool = False
    ) -> None:
        super().__init__(detail)
        self.problem = problems.problem(kind, detail)
        self.retry_after_s = retry_after_s
        self.close = close  # whether the connection is of no more use
        self.headers: dict[str, str] = {}


class Quota:
    """How much of a limit is taken, in total and by each caller."""

    def __init__(self, name: str, limit: int, share: float, measured: Metrics) -> None:
        self.name = name
        self.limit = limit
        self._of_caller = max(1, ceil(limit * share)) if limit else 0
        self._metrics = measured
        self._taken: Counter[str] = Counter()
        self.total = 0

    def take(self, caller: str, amount: int = 1) -> None:
        """Take this amount until it is given back, or refuse."""
        if self.total + amount > self.limit:
            self._refuse(f"{self.name} is {self.limit} for all callers together, and is reached")
        if self._taken[caller] + amount > self._of_caller:
            self._refuse(f"{self.name} is {self._of_caller} for each caller, and is reached")
        self.total += amount
        self._taken[caller] += amount

    def give_back(self, caller: str, amount: int = 1) -> None:
        self.total -= amount
        self._taken[caller] -= amount
        if not self._taken[caller]:
            del self._taken[caller]

    def _refuse(self, detail: str) -> None:
        self._metrics.add(metrics.REFUSED, self.name)
        raise Refused(problems.BUSY, detail, retry_after_s=1)


class Room:
    """What one call has taken of the limits. All of it is given back when the call ends."""

    def __init__(self, admission: Admission, caller: str) -> None:
        self._admission = admission
        self._caller = caller
        self._slot: Quota | None = None
        self._bytes = 0

    def enter(self, quota: Quota) -> None:
        """Count as one of the quota's calls, and of no other's."""
        quota.take(self._caller)
        self.leave()
        self._slot = quota

    def leave(self) -> None:
        if self._slot is not None:
            self._slot.give_back(self._caller)
            self._slot = None

    def reserve(self, amount: int) -> None:
        """Take memory, in addition to what the call has already."""
        self._admission.memory.take(self._caller, amount)
        self._bytes += amount

    def free_memory(self) -> None:
        self._admission.memory.give_back(self._caller, self._bytes)
        self._bytes = 0

    def close(self) -> None:
        self.leave()
        self.free_memory()


@dataclass
class Call:
    """What the metrics and the log say about a call, filled in while it is answered."""

    name: str
    status: str = "500"


class Admission:
    """To be made on the event loop that serves the store."""

    def __init__(self, store: AsyncEventStore, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self.metrics = Metrics()
        self.heads = HeadWatch(engine_of(store))
        self.observer = Observer(access_log=settings.access_log)
        self.draining = False
        self._keys = KeyFile(settings.keys) if settings.keys else None
        # On this machine without keys, all callers are one user.
        share = settings.caller_share if settings.keys or not is_this_machine(settings.host) else 1.0
        self.requests = Quota("max_requests", settings.max_requests, share, self.metrics)
        self.subscriptions = Quota("max_subscriptions", settings.max_subscriptions, share, self.metrics)
        self.public = Quota("max_requests", settings.max_requests, settings.caller_share, self.metrics)
        self.memory = Quota("max_body_memory_bytes", settings.max_body_memory_bytes, share, self.metrics)
        self.connections = Quota("max_connections", settings.max_connections, share, self.metrics)
        self._rates: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self._codecs = ThreadPoolExecutor(CODEC_THREADS, "fencepost-codec")
        self._on_drain: list[Callable[[], None]] = []
        self._in_flight = 0
        self._failure: str | None = None  # why the last append failed, until one succeeds
        self._probed = 0.0
        self._ready, self._ready_at, self._asking = True, -PROBE_S, asyncio.Lock()
        self._observing = observe(self.metrics.committed, of=engine_of(store))
        self._since = monotonic()
        self.metrics.set(metrics.BUILD, 1, VERSION)
        self.metrics.set(metrics.WORKERS, 1)
        self.metrics.add(metrics.STARTS)
        self.metrics.compute(metrics.UPTIME, lambda: monotonic() - self._since)
        self.metrics.compute(metrics.HEAD, lambda: self.heads.head)
        self.metrics.compute(metrics.IN_FLIGHT, lambda: self._in_flight)

    def identify(self, authorization: str | None) -> Access:
        """The caller, by the header that it sent."""
        if self._keys is None:
            return ANYONE
        kind, _, secret = (authorization or "").partition(" ")
        access = self._keys.find(secret.strip()) if kind.lower() == "bearer" else None
        if access is None:
            given = "the API key is unknown, revoked or expired" if secret else "send Authorization: Bearer KEY"
            raise Unauthenticated(given)
        self._check_rate(access)
        return access

    def is_valid(self, access: Access) -> bool:
        """Whether the caller's key still allows what it did. False once it is revoked, changed or expired."""
        return self._keys is None or access is ANYONE or self._keys.is_valid(access)

    def _check_rate(self, access: Access) -> None:
        limit = self.settings.requests_per_second
        if limit:
            second = int(monotonic())
            window, count = self._rates[access.name]
            count = count + 1 if window == second else 1
            self._rates[access.name] = (second, count)
            if count > limit:
                self.metrics.add(metrics.REFUSED, "requests_per_second")
                raise Refused(
                    problems.RATE_LIMITED, f"more than {limit} requests in a second with this key", retry_after_s=1
                )

    @contextmanager
    def measure(self, name: str = "other") -> Iterator[Call]:
        """Count and time what the block does as a request."""
        call = Call(name)
        began = perf_counter()
        self._in_flight += 1
        try:
            yield call
        finally:
            self._in_flight -= 1
            self.metrics.add(metrics.REQUESTS, call.name, call.status)
            self.metrics.record(metrics.LATENCY, perf_counter() - began, call.name)

    @contextmanager
    def admit(self, access: Access, address: str, *, public: bool = False) -> Iterator[Room]:
        """Room for a request of the caller, for as long as the block takes. Public calls have room of their own."""
        room = Room(self, access.name or address)
        try:
            room.enter(self.public if public else self.requests)
            yield room
        finally:
            room.close()

    async def run_codec(self, size: int, work: Callable[[], Result]) -> Result:
        """Encode or decode about `size` bytes: at once, or in a thread if that would hold up the event loop."""
        if size <= LARGE_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._codecs, work)

    async def place(self, access: Access, append: Append) -> Placed | FencepostError:
        """Append within the caller's scope. A refusal is returned, in the caller's own terms."""
        events, conditions = append.events, append.conditions
        with self.observer.append(len(events), len(conditions)) as seen:
            access.check_events(events)
            narrowed = access.narrowed(conditions)
            unless = None if append.unless is None else access.scope.narrowed(append.unless)
            checkpoint = append.checkpoint
            if checkpoint is not None:
                checkpoint = (access.stored_name(checkpoint[0], "checkpoint"), checkpoint[1])
            changes = [replace(change, name=access.stored_name(change.name)) for change in append.records]
            refusal: FencepostError
            try:
                placed = await self.store.append(
                    access.scope.stored_events(events),
                    [each for each in narrowed if each is not None],
                    unless=unless,
                    checkpoint=checkpoint,
                    records=changes,
                )
            except ConditionFailed as error:
                index = narrowed.index(error.condition)
                self.metrics.add(metrics.APPENDS, "conflict")
                self.metrics.add(metrics.CONFLICTS, boundary_of(conditions[index].fail_if_events_match))
                refusal = Conflict(index, conditions[index], access.scope.shown(error.conflict))
            except CheckpointBehind as error:
                self.metrics.add(metrics.APPENDS, "checkpoint-behind")
                refusal = CheckpointBehind(access.visible_name(error.name), error.position, error.current)
            except RecordChanged as error:
                self.metrics.add(metrics.APPENDS, "record-changed")
                current = None if error.current is None else access.visible(error.current)
                refusal = RecordChanged(access.visible_name(error.name), error.expected, current)
            except IdsOverlap as error:
                self.metrics.add(metrics.APPENDS, "refused")
                ids = access.scope.ids_of(events)
                refusal = IdsOverlap(ids[error.stored], error.position, ids[error.missing])
            except FencepostError as error:
                if isinstance(error, StoreError) and not isinstance(error, StoreReadOnly | AccessDenied):
                    self.metrics.add(metrics.APPENDS, "failed")
                    self._failure = str(error)
                    log.error("an append of %d events failed, its outcome is unknown: %s", len(events), error)
                    raise AppendFailed(error) from error
                self.metrics.add(metrics.APPENDS, "refused")
                refusal = error
            else:
                self._failure = None
                self.metrics.add(metrics.APPENDS, "already" if placed.already else "stored")
                if not placed.already:
                    self.metrics.add(metrics.APPENDED, amount=len(events))
                seen["fencepost.already"] = placed.already
                seen["fencepost.position"] = str(placed.last)
                return placed
            seen["fencepost.refused"] = type(refusal).__name__
            return refusal

    async def head_of(self, access: Access, up_to: int | None = None) -> int:
        """The head as the caller may know it: the position of the last event inside its scope, at most `up_to`."""
        if not access.scope.is_limited:
            return await self.store.head() if up_to is None else up_to
        query = access.scope.narrowed(None)
        assert query is not None
        async for event in self.store.read(query, up_to=up_to, limit=1, backwards=True):
            return event.position
        return 0

    async def check_ready(self) -> None:
        """Raise an error that says why, if appends and reads are not answered now.

        After an append has failed, only a write shows whether the next one will succeed: a checkpoint of the server's
        own is moved, at most once a second.
        """
        if self.draining:
            raise Refused(problems.UNAVAILABLE, "the server is draining", retry_after_s=1)
        await self.store.head()
        if self._failure is not None and monotonic() - self._probed >= PROBE_S:
            self._probed = monotonic()
            try:
                position = await self.store.checkpoint(PROBE)
                await self.store.append([], checkpoint=(PROBE, position + 1))
            except CheckpointBehind:
                self._failure = None  # another process moved it, so it can be moved
            except FencepostError as error:
                self._failure = str(error)
            else:
                self._failure = None
        if self._failure is not None:
            raise Refused(problems.UNAVAILABLE, f"the last append failed: {self._failure}", retry_after_s=1)

    async def is_ready(self) -> bool:
        """Whether `check_ready` passes; asked at most once a second, for all callers that watch."""
        async with self._asking:
            if self.draining:
                return False
            if monotonic() - self._ready_at >= PROBE_S:
                try:
                    await self.check_ready()
                except FencepostError as error:
                    log.warning("not ready: %s", error)
                    self._ready = False
                else:
                    self._ready = True
                self._ready_at = monotonic()
            return self._ready

    def on_drain(self, call: Callable[[], None]) -> None:
        self._on_drain.append(call)

    def drain(self) -> None:
        """Take no more calls that wait, and end those that do. Idempotent."""
        if not self.draining:
            self.draining = True
            self._observing.stop()
            self.heads.stop()
            for call in self._on_drain:
                call()

    def close(self) -> None:
        self.drain()
        self._codecs.shutdown(wait=False)


class AppendFailed(StoreError):
    """The store failed while it appended. The append is stored as a whole or not at all, and it is not known which."""

    def __init__(self, cause: StoreError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Conflict(ConditionFailed):
    """A failed condition of the caller, with its index."""

    def __init__(self, index: int, condition: AppendCondition, conflict: SequencedEvent) -> None:
        super().__init__(condition, conflict)
        self.index = index


def index_of(outcome: Placed | FencepostError) -> int:
    return outcome.index if isinstance(outcome, Conflict) else 0


def boundary_of(query: Query) -> str:
    """What a condition names, for metrics: the number of items and what they are made of."""
    kinds = {("types" if item.types else "") + ("+tags" if item.tags else "") for item in query.items}
    shapes = sorted(kind.strip("+") or "all" for kind in kinds)
    return f"{'1 item' if len(query.items) == 1 else 'several items'}: {' or '.join(shapes)}"
