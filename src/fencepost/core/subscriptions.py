"""Subscriptions: first the stored events, then every new one, in order, each once.

While there are subscriptions, the store has one `Follower`. It waits for new events, reads each of them once and routes
it by bucket to the feeds whose queries match. A `Feed` belongs to one subscription. It reads the log until it has
reached the follower's position; from then on the follower delivers. If a consumer is slower than the writers, its
feed's buffer fills up, the follower drops the feed, and the feed reads the log again. So a slow consumer takes no more
memory and misses no event.

No event is lost between the two, because a feed joins the follower *before* it reads the log for the last time. Events
up to the position at which it joined come from the log, events above come from the follower. An event that comes both
ways is recognised by its position and dropped. tests/unit/test_subscription.py and the contract suite hold this.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final

from ..errors import StoreClosed, StoreCorrupt
from ..model import Query, SequencedEvent
from .engine import Engine
from .interrupts import Wakeup, shielded
from .owner import Owner
from .router import Router

BUFFER_EVENTS: Final = 1_024  # a feed that is further behind than this reads the log instead
WAIT_S: Final = 1.0  # how often the follower checks whether any feed is left


class Follower:
    """The thread that reads every new event once and passes it to each feed whose query matches."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._router: Router[Feed] = Router()
        self._feeds: set[Feed] = set()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.position = 0

    def join(self, feed: Feed) -> int:
        """Deliver to the feed from now on. It will get the matching events above the position returned."""
        head: int | None = None
        while True:
            with self._lock:
                if self._closed:
                    feed.stop()
                    return self.position
                if self._thread is None and head is not None:
                    self.position = head
                    self._thread = threading.Thread(target=self._follow, name="fencepost-follower", daemon=True)
                    self._thread.start()
                if self._thread is not None:
                    if feed not in self._feeds:
                        self._feeds.add(feed)
                        self._router.add(feed.query, feed)
                    return self.position
            head = self._engine.head()  # without the lock: the engine may wait, and a signal handler may subscribe then

    def leave(self, feed: Feed) -> None:
        with self._lock:
            self._drop(feed)

    def covered(self, feed: Feed) -> int | None:
        """The position up to which the feed has polled every event; None if it has events to poll or did not join."""
        with self._lock:
            return self.position if feed in self._feeds and not feed.waiting else None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            feeds = list(self._feeds)
            for feed in feeds:
                self._drop(feed)
            thread = self._thread
        for feed in feeds:
            feed.stop()
        while thread is not None and thread.is_alive():
            self._engine.interrupt()
            thread.join(0.01)

    def _drop(self, feed: Feed) -> None:
        if feed in self._feeds:
            self._feeds.remove(feed)
            self._router.remove(feed.query, feed)

    def _follow(self) -> None:
        try:
            while True:
                with self._lock:
                    for feed in [feed for feed in self._feeds if feed.stopped]:
                        self._drop(feed)  # its subscription was garbage-collected without `stop()`
                    if not self._feeds:
                        self._thread = None
                        return
                    position = self.position
                head = self._engine.wait(position, WAIT_S)
                if head > position:
                    for page in self._engine.scan(Query.all(), after=position, up_to=head):
                        self._deliver(page)
                    with self._lock:
                        self.position = head
        except Exception as error:
            with self._lock:
                self._thread = None
                for feed in list(self._feeds):
                    self._drop(feed)
                    feed.fail(error)

    def _deliver(self, page: Sequence[SequencedEvent]) -> None:
        with self._lock:
            for event in page:
                for feed in self._router.route(event):
                    if not feed.offer(event):
                        self._drop(feed)
            # A feed that joins now reads the events of this page from the log.
            self.position = page[-1].position


class Feed:
    """The events of one subscription. A feed does not wait; `Subscription` and `AsyncSubscription` do.

    `poll` returns the events that are available now. While the feed is `live`, that takes no I/O. The feed calls
    `on_ready`, from any thread, when `poll` may return more.
    """

    def __init__(
        self, engine: Engine, follower: Follower, query: Query, after: int, on_ready: Callable[[], None]
    ) -> None:
        self.query = query
        self.stopped = False
        self._engine = engine
        self._follower = follower
        self._on_ready = on_ready
        self._owner = Owner()
        self._position = after
        self._past: Iterator[Sequence[SequencedEvent]] | None = None
        self._past_up_to = after
        self._fresh: deque[SequencedEvent] = deque()
        self._served = False
        self._error: Exception | None = None

    @property
    def live(self) -> bool:
        """Whether all further events will come from the follower."""
        return self._served and self._past is None

    @property
    def waiting(self) -> bool:
        """Whether the caller must poll now, or stop, instead of waiting for `on_ready`."""
        return self.stopped or bool(self._fresh) or not self.live

    @property
    def position(self) -> int:
        """All matching events up to this position have been polled."""
        covered = self._follower.covered(self)
        return self._position if covered is None else max(self._position, covered)

    def poll(self) -> Sequence[SequencedEvent]:
        """The next events, in order; empty if there is no new event."""
        if self.stopped:
            return ()
        self._owner.check()  # a forked child has no follower thread, so no event would ever come
        if self._past is None and (self._fresh or self._served):
            return self._take_fresh()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._take_past()

    def offer(self, event: SequencedEvent) -> bool:
        """Called by the follower. False: the buffer is full, so the feed will read the log."""
        if len(self._fresh) >= BUFFER_EVENTS:
            self._served = False
        else:
            self._fresh.append(event)
        self._on_ready()
        return self._served

    def fail(self, error: Exception) -> None:
        """Called by the follower when it has failed."""
        self._error = error
        self._served = False
        self._on_ready()

    def stop(self) -> None:
        self.stopped = True
        self._on_ready()

    def close(self) -> None:
        self.stop()
        if self._owner.is_this_process:  # in a forked child, the copy of the follower's lock may be held for ever
            self._follower.leave(self)

    def abandon(self) -> None:
        """As `close`, for a finalizer. Takes no lock, since the thread that runs the finalizer may hold it."""
        self.stopped = True

    def _take_fresh(self) -> Sequence[SequencedEvent]:
        events = []
        while self._fresh:
            event = self._fresh.popleft()
            if event.position > self._position:
                events.append(event)
        if events:
            self._position = events[-1].position
        return events

    def _take_past(self) -> Sequence[SequencedEvent]:
        try:
            return self._next_of_past()
        except StoreClosed:  # closing the store ends its subscriptions without an error
            self.stopped = True
            return ()
        except BaseException:
            # A scan that has raised cannot go on, so the next poll starts another one where this one ended. Events that
            # the follower has delivered meanwhile are read from the log again, after the events before them.
            self._follower.leave(self)
            self._fresh.clear()
            self._past, self._served = None, False
            raise

    def _next_of_past(self) -> Sequence[SequencedEvent]:
        """A page from the log, up to where the follower takes over."""
        if self._past is None:
            self._served = True  # before joining, since the follower may reset it at once
            self._past_up_to = self._follower.join(self)
            if self.stopped:  # the store has been closed
                return ()
            # The follower may lag behind the head. Include everything stored so far, even if the timeout is 0.
            self._past_up_to = max(self._past_up_to, self._engine.head())
            if self._position > self._past_up_to:
                raise StoreCorrupt(
                    f"a subscription cannot continue after position {self._position}, since the head of the log is "
                    f"{self._past_up_to}: the log went back (an older backup was restored, or a failover has lost "
                    "events), or the position is from another store; reset the checkpoint, after a check of what was "
                    "derived from the log"
                )
            self._past = iter(self._engine.scan(self.query, after=self._position, up_to=self._past_up_to))
        page = next(self._past, None)
        if page is None:
            self._past = None
            self._position = max(self._position, self._past_up_to)
            return ()
        self._position = page[-1].position
        return page


class FeedReader:
    """The part of a subscription that does not wait: its feed, the events taken from it, and its position."""

    _feed: Feed

    def __init__(self, after: int, timeout_s: float | None) -> None:
        self._timeout_s = timeout_s
        self._page: deque[SequencedEvent] = deque()
        self._delivered = after

    @property
    def position(self) -> int:
        """All matching events up to this position have been delivered. Store it as a checkpoint."""
        with shielded:
            return self._delivered if self._page else self._feed.position

    def stop(self) -> None:
        """End the iteration."""
        with shielded:
            self._feed.close()

    def __del__(self) -> None:
        feed: Feed | None = getattr(self, "_feed", None)  # missing if the constructor raised
        if feed is not None:
            feed.abandon()


class Subscription(FeedReader):
    """Iterates over the events of a feed, and waits when there is no new event.

    Iteration ends after `stop()`, from any thread, when the store is closed, or when no event has come for
    `timeout_s` seconds. After a timeout or an interrupt, iterating again continues where it ended. Each event is
    delivered once, whenever Ctrl-C comes.
    """

    def __init__(self, subscribe: Callable[[Callable[[], None]], Feed], after: int, timeout_s: float | None) -> None:
        super().__init__(after, timeout_s)
        self._ready = Wakeup()
        self._feed = subscribe(self._ready.set)

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        if self._feed.stopped or not (self._page or self._fetch()):
            raise StopIteration
        # Python runs no signal handler in the following lines, since none of them is a call. So an interrupt comes
        # before the event is taken or after it was delivered.
        event = self._page[0]
        del self._page[0]
        self._delivered = event.position
        return event

    def _fetch(self) -> bool:
        """Get the next page, and wait for it if necessary. False: no event came in time."""
        deadline = None if self._timeout_s is None else monotonic() + self._timeout_s
        with shielded:
            while not self._feed.stopped:
                self._ready.clear()
                if page := self._feed.poll():
                    self._page.extend(page)
                    return True
                if not self._feed.waiting:
                    rest_s = None if deadline is None else max(0.0, deadline - monotonic())
                    if not self._ready.wait(rest_s):
                        return False
        return False

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
