"""One partition of a consumer in one process, as leader or as a candidate that waits to take over.

A thread of its own waits for the lease and then works under it. What goes wrong here stays here: after an error of the
store or the target the thread waits and goes on, and other consumers of the process do not notice. `tick` is called
by the runner's housekeeping thread. It extends the lease, gives up handlers that take too long, and reports a consumer
that makes no progress. A consumer without partitions has one partition runner; `partition_share` has how several
processes share the partitions of a consumer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from .. import EventStore
from ..engine import Wakeup, has_observers, notify
from ..errors import FencepostError, StoreClosed
from .control import release_lease, take_lease
from .control_state import Control, checkpoint_name, progress_name
from .declaration import Consumer
from .errors import ConsumerError, LeaseLost, PartitionsDiffer, TargetRefused
from .failure_recorder import Attempts, Recorder, State, text_of
from .leases import Lease
from .observations import LeadChanged, log
from .presence import Presence, Watch
from .targets import Target
from .worker import Worker

TROUBLE_S: Final = (0.2, 5.0)  # the first and the longest wait after an error of the store or the target


@dataclass(frozen=True)
class RunnerContext:
    """What the partition_runners of a runner share."""

    store: EventStore
    presence: Presence
    watch: Watch
    loop: asyncio.AbstractEventLoop | None
    on_end: Callable[[], None]


class PartitionRunner:
    def __init__(
        self, consumer: Consumer, state: State, target: Callable[[], Target], around: RunnerContext, number: int = 0
    ) -> None:
        self.consumer = consumer
        self.store = around.store
        self.number = number
        self.recorder = Recorder(state, number)
        self.worker: Worker | None = None
        self.refusal: ConsumerError | None = None
        self.trouble: str | None = None
        self.leaving = False
        self._target = target
        self._around = around
        self._waits = consumer.division.partitions == 1  # whether the thread waits for a lease that is taken
        self._attempts = Attempts()
        self._wakeup = Wakeup()
        self._stopping = False
        self._progress = (-1, -1, monotonic())  # a generation, the furthest event that was begun in it, since when
        self._report = (0, monotonic(), 0.0)  # events handled, when they were counted, and their rate
        self._reported_at = 0.0
        self._thread = self._new_thread()

    def _new_thread(self) -> threading.Thread:
        name = f"fencepost-consumer-{self.recorder.control.division.lease_name(self.consumer.name, self.number)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._wakeup = Wakeup()
        return thread

    def start(self) -> None:
        if self._thread.ident is not None:
            self._thread = self._new_thread()
        self.leaving = False
        if self._stopping:
            return
        self._progress = (-1, -1, monotonic())
        self._thread.start()

    def stop(self) -> None:
        """Stop after the batch that is being handled. Called from any thread."""
        self._stopping = True
        self.give_up()

    def give_up(self) -> None:
        """Release the lease after the batch that is being handled."""
        self.leaving = True
        worker = self.worker
        if worker is not None:
            worker.end()
        self._wakeup.set()

    def join(self, timeout_s: float) -> bool:
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def lease(self) -> Lease | None:
        return self.recorder.lease

    @property
    def position(self) -> int:
        worker = self.worker
        return 0 if worker is None else worker.saved

    def caught_up(self, head: int) -> bool:
        """Whether everything up to the position was handled by this process."""
        worker = self.worker
        return worker is not None and worker.cursor >= head

    def changed(self) -> None:
        """Something was recorded about the consumer. Called by the runner's control thread."""
        self.recorder.refresh()
        self.notice()

    def notice(self) -> None:
        """Go by the refreshed state."""
        control, lease = self.recorder.control, self.lease
        if lease is not None and control.fence_of(self.number) > lease.token:
            lease.lost = True
        worker = self.worker
        if worker is not None:
            worker.look()
        self._wakeup.set()

    def _run(self) -> None:
        me = threading.current_thread()
        wait_s = TROUBLE_S[0]
        try:
            while not self.leaving and me is self._thread:
                try:
                    lease = self._lead()
                    if lease is None:
                        break
                    self._work(lease)
                    wait_s = TROUBLE_S[0]
                except LeaseLost as lost:
                    self._lose(lost)
                except (TargetRefused, PartitionsDiffer) as refused:
                    self.refusal = refused
                    log.error("consumer %r cannot run: %s", self.consumer.name, refused)
                    break
                except StoreClosed:
                    break
                except Exception as error:
                    if me is not self._thread:
                        return
                    self.trouble = text_of(error)
                    if self.worker is not None and self.worker.handled:
                        wait_s = TROUBLE_S[0]
                    asked_s: float | None = getattr(error, "retry_after_s", None)
                    retry_s = wait_s if asked_s is None else asked_s
                    log.warning("consumer %r: %s; trying again in %.1f s", self.consumer.name, self.trouble, retry_s)
                    self._wakeup.wait(retry_s)
                    wait_s = min(wait_s * 2, TROUBLE_S[1])
        finally:
            if me is self._thread:
                self._release()
                self._around.on_end()

    def _lead(self) -> Lease | None:
        """The lease, once this process has it; None if it is not wanted any more, or another worker has it."""
        while not self.leaving:
            control = self.recorder.refresh()
            self.refuse_other_division(control)
            lease = self.lease
            if lease is not None:
                if lease.is_valid and lease.token == control.fence_of(self.number):
                    return lease
                self._lose(LeaseLost(self.consumer.name, lease.token))
            if self.is_free(control):
                lease = self._take(control)
                if lease is not None:
                    return lease
            elif self._waits:
                self._wakeup.wait(min(self.consumer.lease_s, control.lease_s or self.consumer.lease_s) / 6)
            else:
                return None
        return None

    def refuse_other_division(self, control: Control) -> None:
        declared, recorded = self.consumer.division, control.division
        if control.known and not recorded.is_like(declared):
            raise PartitionsDiffer(self.consumer.name, declared.text(), recorded.text())

    def is_free(self, control: Control) -> bool:
        """Whether no living process other than this one leads."""
        lease = control.leases.get(self.number)
        if lease is None or lease.holder is None or lease.holder == self._around.presence.holder:
            return True
        return self._around.watch.is_over(lease.slot, lease.session or lease.token, lease.lease_s)

    def _take(self, control: Control) -> Lease | None:
        consumer, store, presence, number = self.consumer, self.recorder.store, self._around.presence, self.number
        session = presence.ensure()
        if monotonic() - presence.beat_at > consumer.lease_s / 3:
            presence.beat()
        taken = take_lease(
            store,
            Control(consumer.name),
            holder=presence.holder,
            lease_s=consumer.lease_s,
            query=consumer.query.to_json(),
            over=control.token_of(number),
            number=number,
            division=consumer.division,
            slot=presence.slot,
            session=session,
        )
        if not taken.events:
            return None
        control = self.recorder.refresh()
        if control.token_of(number) != taken.position or presence.session != session:
            return None
        lease = Lease(
            *(store, consumer.name, control.fence_of(number), control.generation, consumer.lease_s),
            number=number,
            division=control.division,
            presence=presence,
        )
        self.recorder.lease = lease
        log.info("consumer %r: leading under token %d", lease.name, lease.token)
        self._tell(True, lease.token)
        return lease

    def _work(self, lease: Lease) -> None:
        self.worker = None
        target = self._target()
        make = self.consumer.worker or Worker
        worker: Worker = make(
            self.consumer, self.store, lease, target, self.recorder, self._attempts, self._around.loop
        )
        self.worker = worker
        self._report = (0, monotonic(), 0.0)
        try:
            if not self.leaving:
                worker.work()
                self.trouble = None
        finally:
            if self.worker is worker:
                target.close()

    def _lose(self, lost: LeaseLost) -> None:
        if self.recorder.lease is not None and self.recorder.lease.token == lost.token:
            self.recorder.lease = None
            log.warning("%s", lost)
            self._tell(False, lost.token)

    def _release(self) -> None:
        lease = self.recorder.lease
        if lease is None:
            return
        try:
            if not lease.lost:
                lease.beat(self.position)
                holder = self._around.presence.holder
                release_lease(self.recorder.store, Control(self.consumer.name), holder=holder, number=self.number)
        except (LeaseLost, StoreClosed) as error:
            log.info("consumer %r: its lease was not released: %s", lease.name, error)
        except FencepostError as error:  # `tick` tries again
            log.warning("consumer %r: its lease is not released yet: %s", lease.name, error)
            return
        self.recorder.lease = None
        self._tell(False, lease.token)

    def _tell(self, leads: bool, token: int) -> None:
        if has_observers():
            notify(self.store, LeadChanged(self.consumer.name, leads, token))

    def tick(self) -> None:
        """Extend the lease and watch the worker. Raises nothing, since one thread does this for all consumers."""
        try:
            lease = self.lease
            if lease is None:
                return
            if not self.alive:
                self._release()
                return
            lease.extend(lambda: self.recorder.refresh().fence_of(self.number))
            now = monotonic()
            worker = self.worker
            if worker is not None:
                self._report_progress(lease, worker, now)
                self._check_handler(worker, now)
            self._check_progress(worker, lease, now)
        except LeaseLost:
            try:
                self.changed()
            except FencepostError as error:
                log.warning("consumer %r: its records could not be read: %s", self.consumer.name, error)
        except Exception as error:
            log.warning("consumer %r: not supervised: %s; trying again", self.consumer.name, text_of(error))

    def _report_progress(self, lease: Lease, worker: Worker, now: float) -> None:
        if now - self._reported_at < lease.lease_s / 3 or lease.lost:
            return
        self._reported_at = now
        handled, since, rate = self._report
        if worker.handled > handled:  # otherwise a batch is being handled, or the consumer is idle
            rate = (worker.handled - handled) / (now - since)
            self._report = (worker.handled, now, rate)
        elif worker.idle:
            rate = 0.0
            self._report = (handled, now, rate)
        lease.beat(worker.saved, rate)

    def _check_handler(self, worker: Worker, now: float) -> None:
        timeout_s, began, position = self.consumer.failures.timeout_s, worker.began, worker.current
        if timeout_s is None or began is None or position is None or now - began < timeout_s:
            return
        (event,) = self.store.read(after=position - 1, up_to=position)
        if (worker.began, worker.current) != (began, position):
            return  # it has just returned
        # Python cannot end a thread. So the handler keeps this one, which can write nothing more: the next thread
        # takes a new lease, and the token of the old one is refused.
        worker.end()
        self._attempts.failed(self.store, self.consumer, event, f"TimeoutError: no result after {timeout_s} s")
        self._thread = self._new_thread()
        self.recorder.lease = None
        self.worker = None
        try:
            worker.target.abandon()
        except Exception as error:  # whatever a driver raises for a connection that another thread uses
            log.warning("consumer %r: the connection of a hanging handler stays open: %s", self.consumer.name, error)
        self._thread.start()

    def _check_progress(self, worker: Worker | None, lease: Lease, now: float) -> None:
        generation, furthest, since = self._progress
        if worker is not None and not worker.claimed:
            worker = None
        reached = furthest if worker is None else max(worker.saved, worker.current or 0)
        if reached > furthest or generation != lease.generation or (worker is not None and worker.idle):
            self._progress = (lease.generation, reached, now)
            return
        if now - since <= 1.5 * lease.lease_s:
            return
        position = 0 if worker is None else worker.saved
        if worker is None:
            names = (checkpoint_name(lease.name, lease.generation), progress_name(lease.name, lease.generation))
            position = max(map(self.recorder.store.checkpoint, names))
        stalled = self.recorder.control.stalls.get(self.number)
        if stalled is None or stalled.position != position:
            self.recorder.stalled(position, now - since, self._reason(worker, now - since))

    def _reason(self, worker: Worker | None, seconds: float) -> str:
        if worker is not None and worker.waits_for is not None:
            return str(worker.waits_for)
        if worker is not None and worker.current is not None:
            return f"its handler has been busy with the event at position {worker.current} for {seconds:.1f} s"
        if self._attempts:
            failing = min(self._attempts)
            return f"the event at position {failing} fails: {self._attempts[failing][2]}"
        return self.trouble or "unknown"
