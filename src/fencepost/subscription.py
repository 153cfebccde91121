"""Subscriptions: first the past, then everything new, in order, once.

While anybody subscribes, one `Follower` per store waits for new events, reads each of them once
and routes it by bucket into the feeds that want it. A `Feed` catches up from the log by itself
until it stands where the follower stands, then joins it. A consumer slower than the writers
fills its feed's buffer, is left behind, and catches up from the log again: it costs no memory
and loses nothing.

The hand-over is safe because a feed joins *before* its last catch-up: every event above the
position at which it joined comes through the follower, every one up to it through the log, and
one that comes both ways is dropped by its position.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Final

from .engine import Engine
from .errors import StoreClosed
from .model import Query, SequencedEvent
from .routing import Router

BUFFER_EVENTS: Final = 1_024  # a feed that holds more than this is better off reading the log
WAIT_S: Final = 1.0  # how long the follower waits in one go before it looks whether anybody is left


class Follower:
    """Reads every new event once and gives it to each feed whose query matches it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._router: Router[Feed] = Router()
        self._feeds: set[Feed] = set()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.position = 0

    def join(self, feed: Feed) -> int:
        """Serve the feed from now on. Matching events above the position returned will reach it."""
        with self._lock:
            if self._closed:
                feed.stop()
            elif feed not in self._feeds:
                if self._thread is None:
                    self.position = self._engine.head()
                    self._thread = threading.Thread(target=self._follow, name="fencepost-follower", daemon=True)
                    self._thread.start()
                self._feeds.add(feed)
                self._router.add(feed.query, feed)
            return self.position

    def leave(self, feed: Feed) -> None:
        with self._lock:
            self._drop(feed)

    def covered(self, feed: Feed) -> int | None:
        """Up to where the feed has been given everything; None if it is not being served."""
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
                    if not self._feeds:
                        self._thread = None
                        return
                    position = self.position
                head = self._engine.wait(position, WAIT_S)
                if head > position:
                    for page in self._engine.scan(Query.all(), after=position, upto=head):
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
            # Also when nobody was served: a feed that joins now must find what is in this page in the log.
            self.position = page[-1].position


class Feed:
    """The events of one subscription, without a way of waiting: that is the caller's choice.

    `poll` returns what is at hand. While the feed is `live` that takes no I/O; `on_ready` is
    called, from any thread, when it is worth polling again.
    """

    def __init__(
        self, engine: Engine, follower: Follower, query: Query, after: int, on_ready: Callable[[], None]
    ) -> None:
        self.query = query
        self.stopped = False
        self._engine = engine
        self._follower = follower
        self._on_ready = on_ready
        self._position = after
        self._past: Iterator[Sequence[SequencedEvent]] | None = None
        self._past_upto = after
        self._fresh: deque[SequencedEvent] = deque()
        self._served = False
        self._error: Exception | None = None

    @property
    def live(self) -> bool:
        """Whether everything still to come will be brought by the follower."""
        return self._served and self._past is None

    @property
    def waiting(self) -> bool:
        """Whether there is something to poll for right now, or nothing to wait for any more."""
        return self.stopped or bool(self._fresh) or not self.live

    @property
    def position(self) -> int:
        """Everything up to here that matches has been handed out."""
        covered = self._follower.covered(self)
        return self._position if covered is None else max(self._position, covered)

    def poll(self) -> Sequence[SequencedEvent]:
        """The next events, in order; none when nothing new is at hand."""
        if self.stopped:
            return ()
        if self._past is None and (self._fresh or self._served):
            return self._take_fresh()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self._take_past()

    def offer(self, event: SequencedEvent) -> bool:
        """Called by the follower. False: too much lies here already, and the log must do."""
        if len(self._fresh) >= BUFFER_EVENTS:
            self._served = False
        else:
            self._fresh.append(event)
        self._on_ready()
        return self._served

    def fail(self, error: Exception) -> None:
        """Called by the follower when it cannot go on."""
        self._error = error
        self._served = False
        self._on_ready()

    def stop(self) -> None:
        self.stopped = True
        self._on_ready()

    def close(self) -> None:
        self.stop()
        self._follower.leave(self)

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
        except StoreClosed:  # in the middle of a page: that ends a subscription, it does not break it
            self.stopped = True
            return ()
        except BaseException:
            # A scan that has raised is over: the next poll begins another one where this one ended, and
            # what the follower has brought since is taken from the log again, or it would overtake the past.
            self._follower.leave(self)
            self._fresh.clear()
            self._past, self._served = None, False
            raise

    def _next_of_past(self) -> Sequence[SequencedEvent]:
        """A page from the log, up to where the follower takes over."""
        if self._past is None:
            self._served = True  # before joining, since the follower may take it back at once
            self._past_upto = self._follower.join(self)
            if self.stopped:  # the store was closed meanwhile
                return ()
            # The follower may lag behind: what is stored by now is past, even for who does not want to wait.
            self._past_upto = max(self._past_upto, self._engine.head())
            self._past = iter(self._engine.scan(self.query, after=self._position, upto=self._past_upto))
        page = next(self._past, None)
        if page is None:
            self._past = None
            self._position = max(self._position, self._past_upto)
            return ()
        self._position = page[-1].position
        return page


class Subscription:
    """Iterates over a feed and waits when nothing new is at hand.

    Iteration ends after `stop()`, from any thread, when the store is closed, or when nothing
    has come for `timeout` seconds; in the last case iterating again goes on where it ended.
    """

    def __init__(self, subscribe: Callable[[Callable[[], None]], Feed], after: int, timeout: float | None) -> None:
        self._ready = threading.Event()
        self._feed = subscribe(self._ready.set)
        self._timeout_s = timeout
        self._page: deque[SequencedEvent] = deque()
        self._handed_out = after

    @property
    def position(self) -> int:
        """Everything up to here that matches has been handed out: what to store as a checkpoint."""
        return self._handed_out if self._page else self._feed.position

    def stop(self) -> None:
        """End the iteration, from any thread."""
        self._feed.close()

    def __iter__(self) -> Iterator[SequencedEvent]:
        return self

    def __next__(self) -> SequencedEvent:
        if self._feed.stopped or not (self._page or self._fetch()):
            raise StopIteration
        event = self._page.popleft()
        self._handed_out = event.position
        return event

    def _fetch(self) -> bool:
        """Get the next page, waiting for it if need be. False: it did not come in time."""
        deadline = None if self._timeout_s is None else monotonic() + self._timeout_s
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
