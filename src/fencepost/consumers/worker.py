"""The worker: reads, handles and saves for one consumer, under one lease, in one thread.

It catches up from the log in batches, then waits for a subscription to wake it. Its cursor moves over stretches
without a matching event as well. The order is always: effects, then checkpoint, in one transaction where the target has
transactions. Everything up to the checkpoint has been handled or set aside, so no event is ever skipped
(tests/consumers). What happens to an event that fails is in `failing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, Final

from .. import EventStore, SequencedEvent, Subscription
from ..engine import Wakeup, has_observers, notify
from ..errors import StoreError
from .batches import Batch, Meeting, own_batches, whole_batches
from .control_events import StepTaken
from .control_state import Control, DeadLetter
from .declaration import Consumer
from .errors import LeaseLost, TargetRefused
from .failure_recorder import Attempts, Recorder, TargetTrouble, text_of
from .leases import Lease
from .observations import BatchHandled
from .partitions import HandledBefore
from .sessions import Coroutines, HandleAgain
from .targets import Target

IDLE_S: Final = 5.0  # how long an idle consumer waits before it saves a cursor that moved over other events
FAR: Final = 10_000  # a cursor that moved so far is saved at once
LAZY_S: Final = 0.1  # how often a checkpoint is saved where handlers run at least once and events come fast
SHORT: Final = 500  # after more events than this, a new subscription costs less than draining the old one


class Worker:
    """Handles events until its lease is lost, it is ended, or the consumer is reset."""

    def __init__(
        self,
        consumer: Consumer,
        store: EventStore,
        lease: Lease,
        target: Target,
        recorder: Recorder,
        attempts: Attempts,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.lease = lease
        self.target = target
        self.cursor = 0
        self.saved = 0
        self.handled = 0
        self.claimed = False
        self.doing: SequencedEvent | None = None  # the event in a handler
        self.began: float | None = None  # since when, if handlers have a timeout
        self.waits_for: Meeting | None = None
        self.idle = False
        self._consumer = consumer
        self._store = store
        self._recorder = recorder
        self._attempts = attempts
        self._coroutines = Coroutines(loop)
        self._await = self._coroutines.run
        self._wakeup = Wakeup()
        self._ended = False
        self._attention = False
        self._quiet = False  # the subscription has waited in vain, so there is nothing to read
        self._subscription: Subscription | None = None
        self._since_subscribed = 0
        self._saved_at = monotonic()
        self._query = consumer.query
        self._session = consumer.session()
        self._before = HandledBefore(consumer.name, {})
        self._timed = consumer.failures.timeout_s is not None
        self._owes = False
        self._quick = not self._timed and not (target.per_event and self._session.uses_transaction)
        self._lazy = self._quick and not target.transactional

    @property
    def current(self) -> int | None:
        """The position of the event in a handler."""
        return None if (doing := self.doing) is None else doing.position

    def end(self) -> None:
        """Stop after the batch that is being handled. Called from any thread."""
        self._ended = True
        self.look()

    def look(self) -> None:
        """Interrupt a wait, since the state of the consumer has changed. Called from any thread."""
        self._attention = True
        self._wakeup.set()
        subscription = self._subscription
        if subscription is not None:
            subscription.stop()

    def work(self) -> None:
        self._claim(self._recorder.control)
        try:
            while not self._ended:
                if self._attention:
                    self._attention = self._quiet = False
                    self._drop_subscription()
                self._turn(self._recorder.control)
        finally:
            self.idle = False
            self._drop_subscription()
            self._session.ended()
            self._coroutines.close()

    def _claim(self, control: Control) -> None:
        start = control.start if control.generation else self._consumer.start_after
        lease, target, name = self.lease, self.target, self._consumer.name
        if not lease.belongs_to(control):
            raise LeaseLost(name, lease.token)
        self.cursor = self.saved = target.claim(lease, start)
        if control.earlier:
            earlier = {each: target.claim_others(each.lease_names(name), start) for each in control.earlier}
            self._before = HandledBefore(name, earlier)
            self.cursor = max(self.cursor, self._before.start)
        if self.cursor > start:
            self._check_head()
        self.claimed = True
        self._session.claimed(target, self.cursor)

    def _check_head(self) -> None:
        """Refuse a store that has lost events which were handled: new events at their positions would be skipped."""
        head = self._store.head()
        if self.cursor > head:
            name = self._consumer.name
            raise TargetRefused(
                f"consumer {name!r}: events were handled up to position {self.cursor}, but the head of the store is "
                f"{head}: an older state of the store was restored, or this is another store. Events that are stored "
                f"from now on would be skipped. Bring the target to the same state, or go on from the head with "
                f"`fencepost consumers reset STORE {name} --position {head}`"
            )

    def _turn(self, control: Control) -> None:
        """Do what the state of the consumer asks for, or wait."""
        self.lease.check()
        if not self.lease.belongs_to(control):
            raise LeaseLost(self._consumer.name, self.lease.token)  # the next lease begins there
        if control.paused_by is not None:
            if control.steps.get(self.lease.number):
                self._step()
            else:
                self._sleep()
        elif any(letter.replay for letter in control.dead_letters.values()) and self._replay(control):
            return
        elif self.lease.number in control.stops:
            self._sleep()
        elif self._quiet or not self._catch_up():
            self._quiet = self._wait()

    def _sleep(self) -> None:
        self.idle = True
        if not (self._attention or self._ended):
            self._wakeup.wait(IDLE_S)
        self.idle = False

    def _batches(self, size: int) -> Iterable[Batch]:
        reading, lease = self._store.read(self._query, after=self.cursor), self.lease
        if lease.division.partitions == 1 and self.cursor >= self._before.up_to:
            return whole_batches(reading, size)
        return own_batches(reading, size, lease.division, lease.number, self._before)

    def _catch_up(self) -> bool:
        """Handle what is stored. False: there was nothing."""
        some = False
        batches = self._batches(self._consumer.batch)
        # The end of the reading is fixed now. So a pause that was recorded before one of its events is seen here.
        if self._recorder.refresh().holds_back(self.lease.number):
            return True
        for batch in batches:
            some = some or bool(batch.events)
            if not self._handle_batch(batch) or self._attention:
                self._settle()
                return True
            if self.cursor - self.saved >= FAR:
                self._save(self.cursor)
        self._settle()
        self._session.caught_up(self.cursor)
        return some

    def _handle_batch(self, batch: Batch) -> bool:
        if batch.meeting and not self._meet(batch):
            return False
        return self._handle(batch.events_of(self.lease.number), batch.up_to)

    def _meet(self, batch: Batch) -> bool:
        """Wait at an event of several partitions. False: the state of the consumer has changed."""
        if self.saved < self.cursor:
            self._save(self.cursor)
        meeting = Meeting(self.lease, self.target, batch.meeting, batch.up_to)
        self.waits_for = meeting
        if not meeting.wait(self._wakeup, lambda: self._attention or self._ended):
            return False
        self.waits_for = None
        self._recorder.refresh()  # so that dead letters of the other partitions are known
        return True

    def _wait(self) -> bool:
        """Wait until there is an event after the cursor, or the consumer's state changes. True: none came in time."""
        if self._since_subscribed > SHORT:
            self._drop_subscription()
        if self._subscription is None:
            self._subscription = self._store.subscribe(self._query, after=self.cursor, timeout_s=IDLE_S)
            self._since_subscribed = 0
        subscription, began = self._subscription, monotonic()
        if self._attention:
            return False
        self.idle = True
        for event in subscription:
            if event.position > self.cursor:
                self.idle = False
                return False  # the next turn reads it from the log, with what follows
        self.idle = False
        if self._attention or monotonic() - began < IDLE_S:
            self._drop_subscription()  # another thread has stopped it
            return False
        self.cursor = max(self.cursor, subscription.position)
        if self.cursor > self.saved and monotonic() - self._saved_at >= IDLE_S:
            self._save(self.cursor)
        self._session.caught_up(self.cursor)
        return True

    def _drop_subscription(self) -> None:
        if self._subscription is not None:
            self._subscription.stop()
            self._subscription = None

    def _save(self, position: int) -> None:
        """Save that no event up to the position is left to handle."""
        with self.target.transaction() as transaction:
            self.target.save(transaction, position)
        self._saved(position)

    def _saved(self, position: int) -> None:
        self.saved = self.cursor = position
        self._saved_at, self._owes = monotonic(), False

    def _settle(self) -> None:
        """Save what was handled and not saved yet."""
        if self._owes:
            self._save(self.cursor)

    def _handle(self, events: Sequence[SequencedEvent], up_to: int) -> bool:
        """Handle the events and save `up_to`. False: an event could not be handled yet; the cursor is before it."""
        while events:
            self.lease.check()
            if self._ended:
                return False
            if events[0].position in self._attempts:
                if not self._alone(events[0]):
                    return False
                events = events[1:]
                continue
            cut = len(events)
            if self._attempts:
                cut = next((at for at, each in enumerate(events) if each.position in self._attempts), cut)
            last = up_to if cut == len(events) else events[cut - 1].position
            done = self._together(events[:cut], last)
            events = events[done:]
        if self.cursor < up_to:
            self.cursor = up_to
        return True

    def _together(self, events: Sequence[SequencedEvent], up_to: int) -> int:
        """Handle the events in one transaction; how many of them are done if one fails, which is then noted."""
        began = monotonic()
        target, in_handler = self.target, False
        try:
            with target.transaction() as transaction:
                in_handler = True
                calls, handle = self._session.calls, self._session.handle
                if self._quick and not self._recorder.control.dead_letters:
                    for event in events:
                        self.doing = event
                        result = handle(event, transaction) if calls is None else calls[event.type](event, transaction)
                        if result is not None and asyncio.iscoroutine(result):
                            self._await(result)
                else:
                    for event in events:
                        self._invoke(event, transaction)
                in_handler = False
                self._session.flush(transaction)
                owes = self._lazy and began - self._saved_at < LAZY_S
                if up_to > self.saved and not owes:
                    target.save(transaction, up_to)
        except (LeaseLost, TargetRefused, TargetTrouble):
            raise
        except Exception as error:
            self._session.rolled_back()
            if isinstance(error, HandleAgain):
                return 0
            if not in_handler or target.broken() or isinstance(error, StoreError):
                raise TargetTrouble(error) from error
            index = next(at for at, event in enumerate(events) if event is self.doing)
            self._attempts.failed(self._store, self._consumer, events[index], text_of(error))
            if target.transactional or index == 0:
                return 0
            if events[index - 1].position > self.saved:
                self._save(events[index - 1].position)
            self._count(index, events[index - 1].position, began)
            return index
        finally:
            self.doing = self.began = None
        self._count(len(events), up_to, began, owes=owes)
        return len(events)

    def _invoke(self, event: SequencedEvent, transaction: Any, *, replay: bool = False) -> None:
        self.doing = event
        if not replay and self._recorder.is_set_aside(event, self._consumer.failures):
            return
        self.target.begin_event(event.position, replay=replay)
        if self._timed:
            self.began = monotonic()
        result = self._session.handle(event, transaction)
        if result is not None and asyncio.iscoroutine(result):
            self._await(result)
        if self.target.end_event() and not replay:
            self.saved = event.position

    def _alone(self, event: SequencedEvent) -> bool:
        """Handle an event that has failed before, as often as declared. False: it is not handled yet."""
        self._settle()
        failures = self._consumer.failures
        count, retry_at, error = self._attempts[event.position]
        if count >= failures.attempts:
            return self._give_up(event, count, error)
        while (rest_s := retry_at - monotonic()) > 0:
            if self._attention or self._ended:
                return False
            self._wakeup.wait(rest_s)
        if self._together([event], event.position) == 0:
            return False
        self._attempts.pop(event.position, None)
        return True

    def _give_up(self, event: SequencedEvent, count: int, error: str) -> bool:
        failures = self._consumer.failures
        if failures.then == "stop":
            self._recorder.stopped(event, error, count)
            self._attempts.pop(event.position, None)
            return False
        self._recorder.set_aside(event, failures.keys_of(event), error, count, None)
        self._attempts.pop(event.position, None)
        self._save(event.position)
        return True

    def _count(self, events: int, position: int, began: float, *, owes: bool = False) -> None:
        if owes:
            self.cursor, self._owes = max(position, self.cursor), True
        else:
            self._saved(max(position, self.saved))
        self.handled += events
        self._since_subscribed += events
        if has_observers():
            notify(self._store, BatchHandled(self._consumer.name, events, position, monotonic() - began))

    def _step(self) -> None:
        for batch in self._batches(1):
            if not self._handle_batch(batch):
                return
            for event in batch.events_of(self.lease.number):
                self._settle()
                self._recorder.record(StepTaken(self._consumer.name, event.position, self.lease.number))
                return
        self._wait()

    def _replay(self, control: Control) -> bool:
        """Handle the dead letters whose replay was requested. False: all of them wait for earlier ones."""
        letters = control.dead_letters
        some = False
        for position in sorted(each for each, letter in letters.items() if letter.replay):
            letter = letters[position]
            (event,) = self._store.read(after=position - 1, up_to=position)
            owns = self.lease.division.of(event)[0] == self.lease.number
            if owns and self._recorder.held_by(letter.keys, before=position) is None:
                self._replay_one(letter, event)
                some = True
        return some

    def _replay_one(self, letter: DeadLetter, event: SequencedEvent) -> None:
        self.lease.check()
        position, in_handler = letter.position, False
        try:
            with self.target.transaction() as transaction:
                if self.target.settle(transaction, position):
                    in_handler = True
                    self._invoke(event, transaction, replay=True)
                    in_handler = False
                    self._session.flush(transaction)
        except (LeaseLost, TargetRefused, TargetTrouble):
            raise
        except Exception as error:
            self._session.rolled_back()
            if isinstance(error, HandleAgain):
                return  # its replay is still requested
            if not in_handler or self.target.broken() or isinstance(error, StoreError):
                raise TargetTrouble(error) from error
            self._recorder.set_aside(event, letter.keys, text_of(error), letter.attempts + 1, letter.behind)
        else:
            self._recorder.replayed(position)
        finally:
            self.doing = self.began = None
