"""Presence: a process that runs consumers shows with one heartbeat that it is alive, however many leases it holds.

A process takes the lowest free *slot* by recording `RunnerStarted`, whose position identifies its *session*, and then
moves the slot's heartbeat, a checkpoint of the store, three times per lease. Leases name the slot and session of their
holder. A session is over for another process if its slot has a newer session or was given back, or if that process has
seen no new heartbeat for the length of the lease. A process whose session was replaced finds out with its next
heartbeat, which is refused, and has then lost all of its leases (tests/consumers/test_presence.py).
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Final

from .. import AppendCondition, EventStore, Query
from ..decisions import encode
from ..engine import shielded
from ..errors import CheckpointBehind, ConditionFailed
from .control_events import RUNNER, RunnerEnded, RunnerStarted
from .control_state import PRESENCE, heartbeat_name

ABANDONED_S: Final = 600.0  # after this time without a heartbeat, a slot is used again
LOOKS: Final = 12  # how often a heartbeat is read during a lease, at most


class Sessions:
    """The newest session of each slot, as recorded in a store."""

    def __init__(self, store: EventStore) -> None:
        self.store = store
        self.up_to = 0
        self.slots: dict[int, int] = {}  # 0 for a slot that was given back
        self.started_s: dict[int, float] = {}  # when the newest session of each slot began, in seconds since 1970

    def refresh(self) -> None:
        reading = self.store.read(Query.of(types=PRESENCE), after=self.up_to)
        for event in reading:
            slot = next(int(tag.partition(":")[2]) for tag in event.tags if tag.startswith(f"{RUNNER}:"))
            self.slots[slot] = event.position if event.type == "fencepost.RunnerStarted" else 0
            self.started_s[slot] = event.recorded_at.timestamp()
        self.up_to = max(self.up_to, reading.head)

    def heartbeat(self, slot: int) -> int:
        return self.store.checkpoint(heartbeat_name(slot))


class Presence:
    """The slot of this process in a store. `session` is 0 as long as it has none."""

    def __init__(self, store: EventStore, holder: str, lease_s: float) -> None:
        self.store = store
        self.holder = holder
        self.slot = -1
        self.session = 0
        self.beat_at = 0.0
        self._lease_s = lease_s
        self._last = 0
        self._sessions = Sessions(store)
        self._lock = threading.Lock()

    def ensure(self) -> int:
        """The session of this process, which is begun if there is none."""
        with shielded, self._lock:
            while self.session == 0:
                self._begin()
            return self.session

    def _begin(self) -> None:
        sessions = self._sessions
        sessions.refresh()
        slot = next(each for each in count() if self._is_free(each))
        started = encode(RunnerStarted(str(slot), self.holder, self._lease_s))
        try:
            session = self.store.append([started], self._condition(slot, sessions.up_to)).last
        except ConditionFailed:
            return  # another process was quicker
        self.slot, self._last = slot, sessions.heartbeat(slot)
        if self._move(session):
            self.session = session

    def _is_free(self, slot: int) -> bool:
        if not self._sessions.slots.get(slot):
            return True
        # A session that has just begun has no heartbeat of its own yet. Clocks may differ, but a mistake costs no more
        # than a change of leaders: a replaced process writes nothing.
        last_s = max(self._sessions.heartbeat(slot) / 1000, self._sessions.started_s[slot])
        return time.time() - last_s > ABANDONED_S + self._lease_s

    def _condition(self, slot: int, after: int) -> AppendCondition:
        return AppendCondition(Query.of(types=PRESENCE, tags={f"{RUNNER}:{slot}"}), after=after)

    def beat(self) -> None:
        """Move the heartbeat. If another process has the slot, this one has no session any more."""
        with shielded, self._lock:
            if self.session and not self._move(self.session):
                self.session = 0

    def _move(self, session: int) -> bool:
        began = monotonic()
        self._last = max(int(time.time() * 1000), self._last + 1)
        try:
            self.store.append(
                [], self._condition(self.slot, session), checkpoint=(heartbeat_name(self.slot), self._last)
            )
        except (ConditionFailed, CheckpointBehind):
            return False
        self.beat_at = began
        return True

    def end(self) -> None:
        """Give the slot back."""
        with shielded, self._lock:
            session, self.session = self.session, 0
            if session:
                ended = encode(RunnerEnded(str(self.slot), self.holder))
                with suppress(ConditionFailed):
                    self.store.append([ended], self._condition(self.slot, session))


class Watch:
    """Observes the heartbeats of other processes in a store, for all consumers of this process."""

    def __init__(self, store: EventStore) -> None:
        self._sessions = Sessions(store)
        self._seen: dict[tuple[int, int], tuple[int, float]] = {}  # the heartbeat of a session, and since when
        self._looked: dict[tuple[int, int], float] = {}
        self._lock = threading.Lock()

    def is_over(self, slot: int, session: int, lease_s: float) -> bool:
        """Whether the session was replaced or given back, or no heartbeat was seen for the length of the lease."""
        with shielded, self._lock:
            key, now = (slot, session), monotonic()
            if key not in self._seen or now - self._looked[key] >= lease_s / LOOKS or session > self._sessions.up_to:
                self._sessions.refresh()
                heartbeat = self._sessions.heartbeat(slot) if slot >= 0 else 0
                if key not in self._seen or self._seen[key][0] != heartbeat:
                    self._seen[key] = (heartbeat, monotonic())
                self._looked[key] = monotonic()
                for old in [each for each in self._seen if each[0] == slot and each[1] < session]:
                    del self._seen[old], self._looked[old]
            if slot >= 0 and self._sessions.slots.get(slot) != session:
                return True
            return monotonic() - self._seen[key][1] > lease_s
