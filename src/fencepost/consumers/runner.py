"""Running consumers in a process: `run` until stopped, `start` in the background, `run_async` on an event loop.

Each consumer, or each of its partitions, has a thread of its own, so that one that is slow or fails does not delay
another. Two more threads serve all of them: one subscribes to the records about consumers, so that a command such as a
pause arrives at once, the other keeps leases alive with one heartbeat for all. Any number of processes can run the same
consumers: for each consumer or partition one of them leads, and the others take over when it ends.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any
from uuid import uuid4

from .. import EventStore, Subscription
from ..aio import AsyncEventStore
from ..engine import Address, Wakeup
from ..errors import FencepostError, InvalidInput, StoreClosed
from .control_events import NAME
from .control_state import ALL
from .declaration import Consumer
from .failure_recorder import State
from .observations import log
from .partition_runner import PartitionRunner, RunnerContext
from .partition_share import PartitionShare
from .presence import Presence, Watch
from .sql_targets import files_of, is_connection, target_of

RETRY_S = 1.0


class Runner:
    """Consumers that run in the background. Made by `start`; `with start(...) as runner:` stops them at the end."""

    def __init__(
        self,
        store: EventStore,
        consumers: Sequence[Consumer],
        control: EventStore | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        names = [consumer.name for consumer in consumers]
        if not consumers:
            raise InvalidInput("consumers", "at least 1 is needed")
        if len(set(names)) < len(names):
            raise InvalidInput("consumers", f"two of {sorted(names)} have the same name")
        self.holder = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        self.store = store
        self._ended = Wakeup()
        self._on_end = self._ended.set if on_end is None else on_end
        self._stopping = False
        self._keeping = True
        self._subscriptions: dict[int, Subscription] = {}
        controls = {each.name: _control_of(each, store, control) for each in consumers}
        files = files_of([store, *controls.values()])
        self._controls = list({id(each): each for each in controls.values()}.values())
        heads = [each.head() for each in self._controls]
        shortest_s, longest_s = min(each.lease_s for each in consumers), max(each.lease_s for each in consumers)
        arounds = {
            id(each): RunnerContext(store, Presence(each, self.holder, longest_s), Watch(each), loop, self._on_end)
            for each in self._controls
        }
        self._presences = [each.presence for each in arounds.values()]
        self._beat_s = shortest_s / 3
        self.partition_runners = [
            self._following(consumer, controls[consumer.name], arounds[id(controls[consumer.name])], files)
            for consumer in consumers
        ]
        tick_s = shortest_s / 6
        self._threads = [
            threading.Thread(target=self._listen, args=(each, head), name="fencepost-consumers-control", daemon=True)
            for each, head in zip(self._controls, heads, strict=True)
        ]
        self._tick, self._retry = Wakeup(), Wakeup()
        self._threads.append(
            threading.Thread(target=self._keep, args=(tick_s,), name="fencepost-consumers-leases", daemon=True)
        )

    def _following(
        self, consumer: Consumer, control: EventStore, around: RunnerContext, files: list[str]
    ) -> PartitionRunner | PartitionShare:
        into, store = consumer.into, around.store
        single = is_connection(into)
        if consumer.failures.timeout_s is not None and single:
            raise InvalidInput(
                "into",
                f"consumer {consumer.name!r} has a timeout, so a hanging handler must not hold the only connection; "
                "pass a path, a URL or a function that connects",
            )
        if consumer.division.partitions > 1 and single:
            raise InvalidInput(
                "into",
                f"consumer {consumer.name!r} has partitions, which cannot share one connection; "
                "pass a path, a URL or a function that connects",
            )
        if isinstance(into, (str, os.PathLike)):
            into = Address.parse(into).absolute().text  # it is opened for each lease, perhaps from another folder
        if isinstance(into, str) or hasattr(into, "dialect"):
            target_of(into, store, files)  # refuses what can never work, before any thread starts
        made: type[PartitionRunner] | type[PartitionShare] = (
            PartitionRunner if consumer.division.partitions == 1 else PartitionShare
        )
        return made(consumer, State(control, consumer.name), lambda: target_of(into, store, files), around)

    def _start(self) -> None:
        for following in self.partition_runners:
            following.start()
        for thread in self._threads:
            thread.start()
        self._tick.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until every consumer has ended, because the store was closed or a target was refused."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        while any(following.alive for following in self.partition_runners):
            rest_s = None if deadline is None else deadline - monotonic()
            if rest_s is not None and rest_s <= 0:
                return False
            self._ended.wait(rest_s if rest_s is not None and rest_s < RETRY_S else RETRY_S)
        return True

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Stop each consumer after the batch that it is handling, and release the leases.

        False: a handler did not return in time. Its lease ends by itself.
        """
        self._stopping = True
        for following in self.partition_runners:
            following.stop()
        deadline = monotonic() + timeout_s
        ended = [following.join(max(0.0, deadline - monotonic())) for following in self.partition_runners]
        for subscription in list(self._subscriptions.values()):
            subscription.stop()
        self._keeping = False
        self._tick.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(RETRY_S)
        for presence in self._presences:
            try:
                presence.end()
            except FencepostError as error:  # its leases end by themselves
                log.info("this process has not signed off: %s", error)
        return all(ended)

    def check(self) -> None:
        """Raise the first refusal of a target, if there was one."""
        for following in self.partition_runners:
            if following.refusal is not None:
                raise following.refusal

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _listen(self, control: EventStore, head: int) -> None:
        """Tell each consumer that something was recorded about it."""
        by_tag = {
            f"{NAME}:{each.consumer.name}": each for each in self.partition_runners if each.recorder.store is control
        }
        while not self._stopping:
            try:
                subscription = control.subscribe(ALL, after=head)
                self._subscriptions[id(control)] = subscription
                for event in subscription:
                    if self._stopping:
                        return
                    for tag in event.tags:
                        if tag in by_tag:
                            by_tag[tag].changed()
                    head = event.position  # only now, so that after an error the event is read again
                    self._tick.set()
                return
            except StoreClosed:
                return
            except Exception as error:
                log.warning("commands to consumers are not received: %s; trying again in %.1f s", error, RETRY_S)
                self._retry.wait(RETRY_S)

    def _keep(self, tick_s: float) -> None:
        while self._keeping:  # longer than consumers run: the last batches need their leases
            self._tick.wait(tick_s)
            for presence in self._presences:
                self._beat(presence)
            for following in self.partition_runners:
                following.tick()

    def _beat(self, presence: Presence) -> None:
        if presence.session == 0 or monotonic() - presence.beat_at < self._beat_s:
            return
        try:
            presence.beat()
        except StoreClosed:
            return
        except Exception as error:  # whatever it is, the next heartbeat may succeed
            log.warning("no heartbeat: %s; trying again", error)


def _control_of(consumer: Consumer, store: EventStore, control: EventStore | None) -> EventStore:
    """The store that holds the records about the consumer: where its checkpoint is, if that is a store.

    There the fencing token is checked in the same transaction as the checkpoint.
    """
    if isinstance(consumer.into, EventStore):
        return consumer.into
    if consumer.into is None or control is None:
        return store
    return control


def start(store: EventStore, *consumers: Consumer, control: EventStore | None = None) -> Runner:
    """Run the consumers in threads of their own, and return at once.

    `control` is the store for the records about consumers whose checkpoint is in an SQL database, for a `store` that
    must not be written; it is `store` itself by default.
    """
    runner = Runner(store, consumers, control)
    runner._start()
    return runner


def run(store: EventStore, *consumers: Consumer, control: EventStore | None = None) -> None:
    """Run the consumers until the store is closed or this thread is interrupted, for example by Ctrl-C."""
    with start(store, *consumers, control=control) as runner:
        runner.wait()
        runner.check()


async def run_async(store: Any, *consumers: Consumer, control: EventStore | None = None) -> None:
    """Run the consumers until the task is cancelled.

    Handlers that are `async def` run on this event loop, others in threads. `store` is an `AsyncEventStore` or an
    `EventStore`. Cancelling waits for the batches that are being handled.
    """
    blocking = store.blocking if isinstance(store, AsyncEventStore) else store
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def on_end() -> None:
        loop.call_soon_threadsafe(ended.set)

    runner = await asyncio.to_thread(Runner, blocking, consumers, control, loop, on_end)
    runner._start()
    try:
        while any(following.alive for following in runner.partition_runners):
            await ended.wait()
            ended.clear()
            await asyncio.sleep(0)
        runner.check()
    finally:
        # In a thread, since handlers of the last batches may still need this loop.
        await asyncio.shield(asyncio.create_task(asyncio.to_thread(runner.stop)))
