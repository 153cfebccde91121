"""The simulated cluster: versions, the values at each of them, and which transactions conflict.

One total order of commits. A transaction commits if no key in its read conflict ranges was
written, or named by a write conflict range, at a version above its read version; what it writes
gets the versionstamp of its place in the order. A read version is at least that of every commit
that was acknowledged before, and of every read version given out before, and otherwise as old as
the seed likes. Commits that no client has seen yet may share a version and differ in batch order.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from .errors import COMMIT_UNKNOWN_RESULT, NOT_COMMITTED, TOO_MANY_WATCHES, TOO_OLD, FDBError
from .faults import Fate, Faults
from .futures import Future
from .mutations import Mutation, Range, Request
from .network import InTheCall, Network, TimedNetwork
from .transaction import SimulatedDatabase

FIRST_VERSION: Final = 2**43  # three months of a real cluster: positions are wide from the start
VERSIONS_PER_S: Final = 1_000_000
WINDOW_VERSIONS: Final = 5 * VERSIONS_PER_S
RECOVERY_VERSIONS: Final = 100 * VERSIONS_PER_S
MAX_WATCHES: Final = 10_000
BULK_KEYS: Final = 64  # more new keys than this are sorted in at once rather than one by one


@dataclass(slots=True)
class Watch:
    key: bytes
    value: bytes | None
    future: Future[None]


class SimulatedCluster:
    """`first_version` is where its versions begin, which differs from cluster to cluster. With `multi_version`, clients
    get over a new version of the cluster.

    `on_step` is called, outside of all locks, before each step of each call: with "read_version",
    "read", "commit", "reply" or "on_error". `late` is the chance per step that a commit arrives
    whose client has given up on it. `rows_per_reply` is how many rows one reply to a range read holds. `now_s` is the
    clock of the cluster and its clients; it moves when the simulator says so, and versions move with it.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        faults: Faults | None = None,
        on_step: Callable[[str], None] | None = None,
        late: float = 0.25,
        network: Network | None = None,
        rows_per_reply: int = 10_000,
        first_version: int = FIRST_VERSION,
        multi_version: bool = True,
    ) -> None:
        self.faults = faults or Faults()
        self.on_step = on_step
        self.use(network or InTheCall())
        self.rows_per_reply = rows_per_reply
        self.multi_version = multi_version
        self.now_s = 0.0
        self.commits = 0
        self.conflicts = 0
        self.reads = 0
        self._late = late
        # Places have choices of their own: the same commits get the same places however much is read meanwhile.
        self._random, self._places = random.Random(seed), random.Random(f"{seed}/places")
        self._lock = threading.RLock()
        self._version = first_version
        self._batch = 0
        self._exposed = first_version
        self._keys: list[bytes] = []
        self._values: dict[bytes, list[tuple[int, bytes | None]]] = {}
        self._written: dict[bytes, int] = {}
        self._log: list[tuple[int, list[bytes]]] = []
        self._ranges: list[tuple[int, bytes, bytes]] = []
        self._watches: list[Watch] = []
        self._in_flight: list[Request] = []

    def use(self, network: Network) -> None:
        """Have calls answered by this network from now on."""
        self.network = network
        if isinstance(network, TimedNetwork):
            network.pass_time, network.now_s = self.pass_time, lambda: self.now_s

    def open(self) -> SimulatedDatabase:
        return SimulatedDatabase(self)

    def step(self, name: str) -> None:
        if self.on_step is not None:
            self.on_step(name)
        if self._in_flight and self._random.random() < self._late:
            self.deliver(1)

    def fail(self, step: str) -> None:
        """Raise what the faults have for this step."""
        fault = self.faults.at(step)
        if fault is not None:
            raise FDBError(fault.code)

    def advance(self, versions: int) -> None:
        """Let time pass, a second for a million versions, until every client sees what was committed before."""
        self.pass_time(versions / VERSIONS_PER_S)
        with self._lock:
            self._exposed = self._version

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self.now_s += seconds
            self._version += round(seconds * VERSIONS_PER_S)
            self._batch = 0

    def recover(self) -> None:
        """The cluster starts its transaction system anew: its versions jump, and transactions under way are too old."""
        with self._lock:
            self._version += RECOVERY_VERSIONS
            self._exposed = self._version
            self._batch = 0

    def jitter(self) -> float:
        """A number from 0 to 1, by which a client shortens the time that it waits before another try."""
        return self._random.random()

    def read_version(self) -> int:
        self.step("read_version")
        self.fail("read_version")
        with self._lock:
            # What was committed a second ago is visible to everyone.
            self._exposed = max(self._exposed, self._version - VERSIONS_PER_S)
            unseen = [version for version, _ in self._log[-8:] if version > self._exposed]
            self._exposed = self._random.choice([self._exposed, *unseen, self._version])
            return self._exposed

    def read(self, begin: bytes, end: bytes, version: int, limit: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        """The first `limit` keys of the range that have a value at the version; 0 for all."""
        self.reads += 1
        with self._lock:
            self._check_age(version)
            first, last = bisect_left(self._keys, begin), bisect_left(self._keys, end)
            found: list[tuple[bytes, bytes]] = []
            for index in range(last - 1, first - 1, -1) if reverse else range(first, last):
                value = self._value_at(self._keys[index], version)
                if value is not None:
                    found.append((self._keys[index], value))
                    if len(found) == limit:
                        break
            return found

    def commit(self, request: Request) -> tuple[int, bytes]:
        """The commit version and the versionstamp, or the error that the client gets."""
        self.step("commit")
        fault = self.faults.at("commit")
        if fault is None:
            version, stamp = self._resolve(request)
            self.step("reply")
            with self._lock:
                self._exposed = max(self._exposed, version)
            return version, stamp
        if fault.fate is Fate.IN_FLIGHT:
            with self._lock:
                self._in_flight.append(request)
        elif fault.fate is Fate.STORED:
            self._resolve(request)  # whose own error, if any, is the truth that the client learns
            self.step("reply")
        if fault.code == COMMIT_UNKNOWN_RESULT:
            # The client reports this only after another commit of its own, behind which the lost
            # one cannot arrive any more; so everything up to here is visible from now on.
            with self._lock:
                self._exposed = self._version
        raise FDBError(fault.code)

    def deliver(self, most: int | None = None) -> None:
        """Let commits arrive whose clients have given up on them. Each is stored, or conflicts, as ever."""
        while self._in_flight and most != 0:
            with self._lock:
                request = self._in_flight.pop(self._random.randrange(len(self._in_flight)))
            most = None if most is None else most - 1
            with suppress(FDBError):  # its client does not wait for the answer any more
                self._resolve(request)

    def watch(self, key: bytes, value: bytes | None, future: Future[None]) -> None:
        """Make the future ready when the value is no longer this one."""
        with self._lock:
            watch = Watch(key, value, future)
            full = len(self._watches) >= MAX_WATCHES
            if not full:
                self._watches.append(watch)
                future.on_cancel = lambda: self._unwatch(watch)
            changed = self._value_at(key, self._version) != value
        if full:
            future.resolve(None, FDBError(TOO_MANY_WATCHES))
        elif changed:
            self._fire_later([watch])

    def disturb_watches(self, code: int | None = None) -> None:
        """Make every watch ready without a change, or failed with that code."""
        with self._lock:
            watches = list(self._watches)
        self._fire(watches, code)

    @property
    def watches(self) -> int:
        return len(self._watches)

    def _check_age(self, version: int) -> None:
        if version < self._version - WINDOW_VERSIONS:
            raise FDBError(TOO_OLD)

    def _value_at(self, key: bytes, version: int) -> bytes | None:
        for written, value in reversed(self._values.get(key, ())):
            if written <= version:
                return value
        return None

    def _resolve(self, request: Request) -> tuple[int, bytes]:
        with self._lock:
            self._check_age(request.read_version)
            if self._conflicts(request):
                self.conflicts += 1
                raise FDBError(NOT_COMMITTED)
            version, stamp = self._place()
            self.commits += 1
            mutations = [mutation.stamped(stamp) for mutation in request.mutations]
            stamped = [
                (new.key, new.key + b"\0")
                for old, new in zip(request.mutations, mutations, strict=True)
                if old.name == "set_versionstamped_key"
            ]
            self._record(version, request.writes + stamped)
            self._apply(version, mutations)
            changed = [watch for watch in self._watches if self._value_at(watch.key, version) != watch.value]
        self._fire_later(changed)
        return version, stamp

    def _conflicts(self, request: Request) -> bool:
        version = request.read_version
        wide: list[Range] = []
        for begin, end in request.reads:
            if self._written.get(begin, 0) > version:
                return True
            if end != begin + b"\0":
                wide.append((begin, end))
        for written, begin, end in self._ranges:
            if written > version and any(begin < e and b < end for b, e in request.reads):
                return True
        if wide:
            for written, keys in reversed(self._log):
                if written <= version:
                    break
                if any(b <= key < e for key in keys for b, e in wide):
                    return True
        return False

    def _place(self) -> tuple[int, bytes]:
        """The next place in the order: in the batch of the last commit if no client has seen that yet."""
        if self._version > self._exposed and self._places.random() < 0.5:
            self._batch += 1
        else:
            self._version += self._places.randint(1, 100)
            self._batch = 0
        return self._version, self._version.to_bytes(8, "big") + self._batch.to_bytes(2, "big")

    def _record(self, version: int, writes: Iterable[Range]) -> None:
        points = []
        for begin, end in writes:
            if end == begin + b"\0":
                points.append(begin)
                self._written[begin] = version
            else:
                self._ranges.append((version, begin, end))
        self._log.append((version, points))
        if len(self._log) > 20_000:  # no transaction can commit with a read version that old
            oldest = version - WINDOW_VERSIONS
            self._log = [entry for entry in self._log[:-10_000] if entry[0] >= oldest] + self._log[-10_000:]

    def _apply(self, version: int, mutations: Iterable[Mutation]) -> None:
        new: list[bytes] = []
        for mutation in mutations:
            if mutation.name == "clear_range":
                first, last = bisect_left(self._keys, mutation.key), bisect_left(self._keys, mutation.param)
                cleared = [*self._keys[first:last], *(key for key in new if mutation.touches(key))]
                for key in cleared:
                    self._values[key].append((version, None))
                continue
            value = mutation.applied(self._value_at(mutation.key, version))
            history = self._values.get(mutation.key)
            if history is None:
                history = self._values[mutation.key] = []
                new.append(mutation.key)
            history.append((version, value))
        if len(new) > BULK_KEYS:
            self._keys.extend(new)
            self._keys.sort()
        else:
            for key in new:
                insort(self._keys, key)

    def _fire_later(self, watches: Sequence[Watch]) -> None:
        """The client learns of a change by a message of its own, so never in the call that made the change."""
        if watches:
            threading.Thread(target=self._fire, args=(watches,), daemon=True).start()

    def _fire(self, watches: Iterable[Watch], code: int | None = None) -> None:
        for watch in watches:
            if self._unwatch(watch):
                watch.future.resolve(None, None if code is None else FDBError(code))

    def _unwatch(self, watch: Watch) -> bool:
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)
                return True
            return False
