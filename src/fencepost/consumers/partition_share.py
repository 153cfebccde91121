"""PartitionShare: the partitions of a consumer that this process leads, as many as its share.

Processes that run the consumer record that they have joined, and their heartbeats show that they live. With W of them,
each leads N / W of the N partitions; the first ones to join lead one more where that leaves a rest. A process with
more than its share gives a partition up after the batch that it is handling. A process with less takes partitions
that are released, or whose leader has died. Everyone goes by the same rule and the same records, so no one has to
lead the others. A view that is out of date delays this, but two processes never lead one partition: leases see to that
(tests/consumers/test_partitions.py, tests/soak).
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from ..errors import FencepostError
from .control import join, leave
from .control_state import Control
from .declaration import Consumer
from .errors import ConsumerError
from .failure_recorder import Recorder, State, text_of
from .observations import log
from .partition_runner import PartitionRunner, RunnerContext
from .targets import Target


class PartitionShare:
    """All partitions of one consumer in one process."""

    def __init__(self, consumer: Consumer, state: State, target: Callable[[], Target], around: RunnerContext) -> None:
        self.consumer = consumer
        self.recorder = Recorder(state)
        self.partition_runners = [
            PartitionRunner(consumer, state, target, around, number) for number in range(consumer.division.partitions)
        ]
        self._around = around
        self._refusal: ConsumerError | None = None
        self._running = False

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        """Stop each partition after the batch that is being handled. Called from any thread."""
        self._running = False
        for following in self.partition_runners:
            following.stop()

    def join(self, timeout_s: float) -> bool:
        deadline = monotonic() + timeout_s
        ended = [following.join(max(0.0, deadline - monotonic())) for following in self.partition_runners]
        holder = self._around.presence.holder
        try:
            leave(self.recorder.store, Control(self.consumer.name), holder=holder, by=holder)
        except FencepostError as error:  # the others will see that its heartbeat has ended
            log.info("consumer %r: this process has not left: %s", self.consumer.name, error)
        return all(ended)

    @property
    def alive(self) -> bool:
        return (self._running and self.refusal is None) or any(following.alive for following in self.partition_runners)

    @property
    def refusal(self) -> ConsumerError | None:
        return self._refusal or next(
            (each.refusal for each in self.partition_runners if each.refusal is not None), None
        )

    @property
    def position(self) -> int:
        """The lowest position of the partitions that this process leads."""
        return min((each.position for each in self.partition_runners if each.lease is not None), default=0)

    def caught_up(self, head: int) -> bool:
        """Whether this process leads partitions, and all of them have handled everything up to the position."""
        leading = [each for each in self.partition_runners if each.alive and not each.leaving]
        return bool(leading) and all(each.caught_up(head) for each in leading)

    def changed(self) -> None:
        """Something was recorded about the consumer. Called by the runner's control thread."""
        self.recorder.refresh()
        for following in self.partition_runners:
            following.notice()

    def tick(self) -> None:
        """Supervise the partitions of this process, and take or give up some. Raises nothing."""
        for following in self.partition_runners:
            following.tick()
        if not self._running:
            return
        try:
            self._balance()
        except ConsumerError as error:
            self._refusal = error
            log.error("consumer %r cannot run: %s", self.consumer.name, error)
        except Exception as error:
            log.warning("consumer %r: partitions are not shared: %s", self.consumer.name, text_of(error))
        if self.refusal is not None:
            self.stop()
            self._around.on_end()

    def _balance(self) -> None:
        control = self.recorder.refresh()
        self.partition_runners[0].refuse_other_division(control)
        control = self._members(control)
        holder = self._around.presence.holder
        order = sorted(control.workers, key=lambda each: control.workers[each].joined)
        if holder not in order:
            return
        whole, rest = divmod(len(self.partition_runners), len(order))
        rank = order.index(holder)
        share = whole + (1 if rank < rest else 0)
        held = [each for each in self.partition_runners if each.alive and not each.leaving]
        for following in held[share:]:
            log.info("consumer %r: giving up partition %d", self.consumer.name, following.number)
            following.give_up()
        # Each process begins to look at another place, so that they do not all want the same partition.
        begin = rank * whole
        candidates = [*self.partition_runners[begin:], *self.partition_runners[:begin]]
        free = (each for each in candidates if not each.alive and each.lease is None and each.is_free(control))
        for _, following in zip(range(share - len(held)), free, strict=False):
            following.start()

    def _members(self, control: Control) -> Control:
        """Join, and record which of the others have died."""
        presence, watch, store = self._around.presence, self._around.watch, self.recorder.store
        holder, session = presence.holder, presence.ensure()
        changed = False
        known = control.workers.get(holder)
        if known is None or known.session != session:
            lease_s = self.consumer.lease_s
            join(store, Control(control.consumer), holder=holder, slot=presence.slot, session=session, lease_s=lease_s)
            changed = True
        for other, member in control.workers.items():
            if other != holder and watch.is_over(member.slot, member.session, member.lease_s):
                log.warning("consumer %r: the process %s has died", control.consumer, other)
                leave(store, Control(control.consumer), holder=other, by=holder)
                changed = True
        return self.recorder.refresh() if changed else control
