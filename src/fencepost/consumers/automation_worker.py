"""The worker of an automation that has timers or follows rows: what is due is handled, in any order, each once.

The worker reads the log to know what is due and when. An item that is the oldest one moves the checkpoint in the
append of its decision. An item that is done before an older one, such as a timer with a shorter delay, has a record in
that append instead. Both carry the fencing token, so each item has its effect exactly once, whatever crashes.

Due times are compared with the wall clock, at least once a second. If the clock is set forward, timers fire by the new
time; if it is set back, those that have not fired wait, and those that have do not fire again.
tests/consumers/test_timers.py turns the clock, and kills real processes.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from hashlib import sha256
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .. import AppendCondition, EventStore, Query, SequencedEvent
from ..decisions import clock, context, encode
from ..engine import has_observers, notify
from ..errors import StoreError
from .agenda import Agenda, Item
from .control_events import NAME, ItemHandled, StepTaken
from .control_state import HANDLED, Control, DeadLetter, checkpoint_name, is_control
from .errors import ItemCancelled, LeaseLost, TargetRefused
from .failure_recorder import TargetTrouble, text_of
from .observations import BatchHandled, TimerFired
from .reactions import Reaction
from .worker import FAR, IDLE_S, Worker

if TYPE_CHECKING:
    from .automations import Automation

READ: Final = 10_000  # events, before what is due is handled
MOST_PENDING: Final = 100_000  # items, before what is due is handled although an event that cancels it may follow
CHUNK: Final = 200  # items that are taken at once, with their rows
CLOCK_S: Final = 1.0  # how often the clock is looked at while timers are pending
ROWS_S: Final = (0.005, 0.5)  # the first and the longest wait for a read model that is behind
SET_ASIDE: Final = "fencepost.EventSetAside"


def begun(store: EventStore, name: str, position: int, generation: int) -> Agenda:
    """An agenda that knows what was done after the position, and has no items yet."""
    query = Query.of(types={HANDLED, SET_ASIDE}, tags={f"{NAME}:{name}"})
    done, set_aside = set(), set()
    for record in store.read(query, after=max(position, generation)):
        fields = msgspec.json.decode(record.data)
        if record.type == HANDLED:
            done.add((int(fields["position"]), tuple(fields["row"])))
        else:
            set_aside.add(int(fields["position"]))
    return Agenda(position, done, set_aside)


class AutomationWorker(Worker):
    """Handles what is due until its lease is lost, it is ended, or the automation is reset."""

    _consumer: Automation
    _waits_for_rows = False
    _rows_s = ROWS_S[0]
    _subscribed_s = 0.0
    _unsaved = False  # whether an item was handled that neither a checkpoint nor a record tells of

    def _claim(self, control: Control) -> None:
        super()._claim(control)
        name, generation = self._consumer.name, self.lease.generation
        self._agenda = begun(self._store, name, self.saved, generation)
        self._name = checkpoint_name(name, generation)
        self._reaction = Reaction(self._store, self.lease)
        self._retries: list[tuple[float, Item, tuple[str, ...]]] = []

    def _catch_up(self) -> bool:
        agenda = self._agenda
        complete = self._read()
        if not complete and self._consumer.cancelling and len(agenda) < MOST_PENDING:
            return True
        if self._recorder.refresh().holds_back(self.lease.number):  # after the read, so that a pause is exact
            return True
        some = self._handle_due()
        self._save_watermark(now=self._unsaved or agenda.watermark - self.saved >= FAR)
        if complete and not some and not self._waits_for_rows:
            self.cursor = agenda.cursor
        return some or not complete

    def _read(self) -> bool:
        """Read what was stored since. False: there is more."""
        agenda = self._agenda
        reading = self._store.read(self._consumer.followed, after=agenda.cursor)
        for number, event in enumerate(reading, 1):
            if not is_control(event.type):
                self._consumer.follow(agenda, event)
            agenda.cursor = event.position
            self._rows_s = ROWS_S[0]
            if number == READ:
                return False
        agenda.cursor = max(agenda.cursor, reading.head)
        return True

    def _handle_due(self) -> bool:
        """Handle items that are due, up to a number. False: there was none."""
        taken = self._take(CHUNK)
        model = self._consumer.rows
        rows = {} if model is None else model.lookup(list(dict.fromkeys(item.row for item in taken)))
        for number, item in enumerate(taken):
            if self._attention or self._ended:
                for left in taken[number:]:
                    self._agenda.give_back(left)
                break
            self.lease.check()
            self._attempt(item, rows)
        return bool(taken)

    def _take(self, most: int) -> list[Item]:
        agenda, began = self._agenda, monotonic()
        for retry_at, retried, _ in self._retries:
            if retry_at <= began:
                agenda.give_back(retried)
        self._retries = [each for each in self._retries if each[0] > began]
        now, model = self._consumer.now(), self._consumer.rows
        reached = None if model is None or not len(agenda) else model.built_up_to()
        self._waits_for_rows = False
        taken: list[Item] = []
        while len(taken) < most and (item := agenda.take(now)) is not None:
            if reached is not None and item.position > reached:
                agenda.give_back(item)
                self._waits_for_rows = True
                break
            taken.append(item)
        return taken

    def _attempt(self, item: Item, rows: dict[tuple[str, ...], Any]) -> bool:
        """Handle one item, or note that it failed. False: it is not handled yet."""
        if item not in self._agenda:
            return True  # a newer version of its row was read
        (event,) = self._store.read(after=item.position - 1, up_to=item.position)
        failures = self._consumer.failures
        keys = failures.keys_of(event)
        behind = self._recorder.held_by(keys)
        if behind is not None:
            self._recorder.set_aside(event, keys, f"held back behind the event at position {behind}", 0, behind)
            self._agenda.finish(item)
            return True
        if item.position in self._attempts:
            count, retry_at, error = self._attempts[item.position]
            if count >= failures.attempts:
                return self._give_up_item(item, event, count, error)
            if retry_at > monotonic():
                self._retries.append((retry_at, item, keys))
                return False
        for retry_at, _, others in self._retries:
            if set(keys) & set(others):  # an older event of the same key is not handled yet
                self._retries.append((retry_at, item, keys))
                return False
        return self._tried(item, event, keys, rows.get(item.row))

    def _tried(self, item: Item, event: SequencedEvent, keys: tuple[str, ...], row: Any) -> bool:
        agenda, began = self._agenda, monotonic()
        try:
            self._perform(item, event, row, agenda.watermark_without(item))
        except ItemCancelled:
            agenda.finish(item)  # as the event that cancels it would, which is read next
            self._attempts.pop(item.position, None)
            return True
        except (LeaseLost, TargetRefused):
            raise
        except StoreError as error:
            raise TargetTrouble(error) from error
        except Exception as error:
            self._attempts.failed(self._store, self._consumer, event, text_of(error))
            self._retries.append((self._attempts[item.position][1], item, keys))
            return False
        finally:
            self.doing = self.began = None
        agenda.finish(item)
        self._attempts.pop(item.position, None)
        self._note(item, began)
        return True

    def _perform(self, item: Item, event: SequencedEvent, row: Any, watermark: int, *, replay: bool = False) -> None:
        """Call the handler, with a `Reaction` whose append also says that the item is done."""
        consumer, reaction = self._consumer, self._reaction
        if consumer.rows is not None and (row is None or (row.position != item.position and not replay)):
            return  # a later event has changed the row, and leads to it as it is now
        in_order = watermark >= item.position and not item.recorded and not replay
        record = None if in_order else self._record(item)
        not_done = None if record is None else _not_done(self._consumer.name, record, self.lease.generation)
        reaction.begin_item(
            checkpoint=(self._name, watermark) if in_order else None,
            record=None if record is None else encode(record),
            not_done=not_done,
            not_cancelled=consumer.not_cancelled(event),
        )
        self.doing, self.began = event, monotonic()
        with ExitStack() as around:
            around.enter_context(context(caused_by=event))
            if consumer.clock is not None:
                around.enter_context(clock(consumer.clock))
            result = consumer.handle(event, reaction) if consumer.rows is None else consumer.handle_row(row, reaction)
            if result is not None and asyncio.iscoroutine(result):
                self._await(result)
        if in_order and reaction.appended:
            self.saved, self._saved_at = watermark, monotonic()
        elif in_order or consumer.rows is not None:
            self._unsaved = True
        else:
            reaction.settle()

    def _record(self, item: Item) -> ItemHandled:
        """What tells of an item that the checkpoint does not tell of. Keys may be long, so the tag has a digest."""
        digest = sha256(msgspec.json.encode(item.row)).hexdigest()[:32] if item.row else ""
        return ItemHandled(self._consumer.name, f"{item.position}/{digest}", item.position, item.row)

    def _note(self, item: Item, began: float) -> None:
        self.handled += 1
        if has_observers():
            name, position = self._consumer.name, item.position
            notify(self._store, BatchHandled(name, 1, position, monotonic() - began))
            if item.due:
                notify(self._store, TimerFired(name, position, max(0.0, self._consumer.now() - item.due)))

    def _give_up_item(self, item: Item, event: SequencedEvent, count: int, error: str) -> bool:
        self._attempts.pop(item.position, None)
        if self._consumer.failures.then == "stop":
            self._agenda.give_back(item)
            self._recorder.stopped(event, error, count)
            self._attention = True  # the next turn sees that the automation has stopped
            return False
        self._recorder.set_aside(event, self._consumer.failures.keys_of(event), error, count, None)
        self._agenda.finish(item)
        return True

    def _save_watermark(self, *, now: bool) -> None:
        watermark = self._agenda.watermark
        if now and watermark > self.saved:
            with self.target.transaction() as transaction:
                self.target.save(transaction, watermark)
            self.saved, self._saved_at = watermark, monotonic()
        self._unsaved = self._unsaved and not now

    def _wait(self) -> bool:
        """Wait until an item is due, there is an event to read, or the state of the automation changes."""
        agenda, wait_s = self._agenda, self._wait_s()
        if wait_s <= 0 or self._attention:
            return False
        if self._subscription is None or self._subscribed_s != wait_s:
            self._drop_subscription()
            query = self._consumer.followed
            self._subscription = self._store.subscribe(query, after=agenda.cursor, timeout_s=wait_s)
            self._subscribed_s = wait_s
        subscription, began = self._subscription, monotonic()
        self.idle = not self._retries
        for event in subscription:
            if event.position > agenda.cursor:
                self.idle = False
                return False
        self.idle = False
        if self._attention or monotonic() - began < wait_s:
            self._drop_subscription()  # another thread has stopped it
        elif monotonic() - self._saved_at >= IDLE_S:
            self._save_watermark(now=True)
        return False  # an item may be due

    def _wait_s(self) -> float:
        waits = [IDLE_S]
        due = self._agenda.next_due()
        if self._waits_for_rows:
            waits.append(self._rows_s)
            self._rows_s = min(self._rows_s * 2, ROWS_S[1])
        elif due is not None:
            waits += [CLOCK_S, due - self._consumer.now()]
        waits += [retry_at - monotonic() for retry_at, _, _ in self._retries]
        return max(0.0, min(waits))

    def _step(self) -> None:
        while not self._read():
            self.lease.check()
        taken = self._take(1)
        if not taken:
            self._wait()
            return
        model = self._consumer.rows
        if self._attempt(taken[0], {} if model is None else model.lookup([taken[0].row])):
            self._save_watermark(now=self._unsaved)
            self._recorder.record(StepTaken(self._consumer.name, taken[0].position))

    def _replay_one(self, letter: DeadLetter, event: SequencedEvent) -> None:
        self.lease.check()
        position, consumer = letter.position, self._consumer
        items = [item for item, _ in consumer.items_of(event)]
        rows = {} if consumer.rows is None else consumer.rows.lookup([item.row for item in items])
        try:
            for item in items:
                done = _not_done(consumer.name, self._record(item), self.lease.generation)
                if not list(self._store.read(done.fail_if_events_match, after=done.after, limit=1)):
                    with suppress(ItemCancelled):
                        self._perform(item, event, rows.get(item.row), 0, replay=True)
        except (LeaseLost, TargetRefused):
            raise
        except StoreError as error:
            raise TargetTrouble(error) from error
        except Exception as error:
            self._recorder.set_aside(event, letter.keys, text_of(error), letter.attempts + 1, letter.behind)
        else:
            self._recorder.replayed(position)
        finally:
            self.doing = self.began = None


def _not_done(name: str, record: ItemHandled, generation: int) -> AppendCondition:
    """The condition that no append has carried the record."""
    tags = {f"{NAME}:{name}", f"fencepost.item:{record.item}"}
    return AppendCondition(Query.of(types={HANDLED}, tags=tags), after=max(record.position, generation))
