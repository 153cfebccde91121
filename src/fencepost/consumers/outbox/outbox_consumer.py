"""`Outbox`: the consumer that sends the events of a topic through a publisher.

    billing = Outbox("billing", subscriptions, WebhookPublisher("https://...", secrets=[...]))

The worker of consumers reads, saves checkpoints and records dead letters; the session here collects the messages
of a batch and publishes them before the checkpoint is saved. So every event is published at least once.

If a batch fails for a reason that may lie in one message, its messages are *in doubt*: they are published one by one,
inside `handle`, so that the worker counts the failure against the right event. Whatever was collected before is
published first. Otherwise the worker would count events as handled that were only collected
(tests/consumers/outbox/test_failures.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, TypeGuard

from ... import EventStore, Query, SequencedEvent
from ...engine import Observation, has_observers, notify
from ...errors import InvalidInput
from ..declaration import LEASE_S, Consumer, Failures
from ..failure_recorder import TargetTrouble, text_of
from ..sessions import HandleAgain, Session
from ..targets import Target
from .circuits import Breaker, Circuit, MessagesPublished
from .messages import Message, Topic
from .publisher import MessageRefused, Publisher, PublisherUnavailable, log

BATCH: Final = 100


class Outbox(Consumer):
    """A consumer that publishes the events of `topic` through `publisher`. `run` and `fencepost consume` run it.

    The name identifies it in the store, so each pair of topic and publisher has its own lease and checkpoint. By
    default a message that fails 5 times becomes a dead letter, and later messages of its key are held back behind it.

    With `partitions`, that many workers publish at once, each with the messages of some keys. `publisher` can be a
    function that makes a publisher; then each worker has its own, with its own connection.
    """

    def __init__(
        self,
        name: str,
        topic: Topic,
        publisher: Publisher | Callable[[], Publisher],
        *,
        batch: int = BATCH,
        lease_s: float = LEASE_S,
        start_after: int = 0,
        failures: Failures | None = None,
        breaker: Breaker | None = None,
        partitions: int = 1,
    ) -> None:
        if not _is_publisher(publisher) and not callable(publisher):
            raise InvalidInput("publisher", f"an object with publish() and close() is needed, not {publisher!r}")
        if partitions > 1 and topic.key is None:
            raise InvalidInput("partitions", f"topic {topic.name!r} has no key to divide its messages by")
        if failures is None:
            failures = Failures(then="set aside", key=topic.key)
        elif failures.key is None and failures.then == "set aside" and topic.key is not None:
            raise InvalidInput(
                "failures", f"topic {topic.name!r} keeps the order of {topic.key!r}; add key={topic.key!r}"
            )
        super().__init__(
            name,
            batch=batch,
            lease_s=lease_s,
            start_after=start_after,
            failures=failures,
            partitions=partitions,
            key=topic.key if partitions > 1 else None,
        )
        self.topic = topic
        self.publisher = publisher
        self.circuit = Circuit(name, Breaker() if breaker is None else breaker)
        self.in_doubt: set[int] = set()

    @property
    def query(self) -> Query:
        """That of the topic."""
        return self.topic.query

    def session(self) -> Session:
        """What publishes under one lease. Called by the runner."""
        return OutboxSession(self)

    def connected(self) -> Publisher:
        """The publisher for a session: the one that was given, or a new one if a function was given."""
        given = self.publisher
        if _is_publisher(given):
            return given
        assert callable(given)
        return given()

    def __repr__(self) -> str:
        return f"<outbox {self.name!r} of {self.topic!r}>"


class OutboxSession(Session):
    """Collects the messages of a batch, and publishes them before the checkpoint is saved."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox.handlers)
        self._outbox = outbox
        self._collected: list[Message] = []
        self._store: EventStore | None = None
        self._publisher: Publisher | None = None

    def claimed(self, target: Target, position: int) -> None:
        self._store = getattr(target, "store", None)

    def handle(self, event: SequencedEvent, transaction: Any) -> None:
        outbox = self._outbox
        if not outbox.topic.includes(event):
            return
        if event.position not in outbox.in_doubt and outbox.circuit.state == "closed":
            self._collected.append(Message(outbox.topic, event))
            return
        self._publish_collected()
        self._publish([Message(outbox.topic, event)])

    def flush(self, transaction: Any) -> None:
        self._publish_collected()

    def rolled_back(self) -> None:
        self._collected = []

    def ended(self) -> None:
        publisher, self._publisher = self._publisher, None
        if publisher is None:
            return
        try:
            publisher.close()
        except Exception as error:  # whatever a library raises for a connection that is broken already
            log.info("outbox %r: its publisher could not be closed: %s", self._outbox.name, text_of(error))

    def _publish_collected(self) -> None:
        """Publish what was collected. After a failure none of it counts as published."""
        collected = self._collected
        if not collected:
            return
        positions = {message.event.position for message in collected}
        self._outbox.in_doubt |= positions  # also if `publish` never returns, and the watchdog gives up this thread
        try:
            self._publish(collected)
        except TargetTrouble:
            self._outbox.in_doubt -= positions
            raise
        except Exception as error:
            # Also if the publisher says which message it was: a broker may refuse a batch and name its first message.
            log.info("outbox %r: a batch of %d messages failed: %s", self._outbox.name, len(positions), text_of(error))
            raise HandleAgain from error
        self._outbox.in_doubt -= positions
        self._collected = []

    def _publish(self, messages: Sequence[Message]) -> None:
        """Publish the messages. Raises `TargetTrouble` if no message must be blamed."""
        outbox, circuit = self._outbox, self._outbox.circuit
        began = monotonic()
        try:
            self._tell(circuit.admit())
        except PublisherUnavailable as unavailable:
            raise self._trouble(unavailable) from None
        try:
            if self._publisher is None:
                self._publisher = outbox.connected()
            self._publisher.publish(messages)
        except MessageRefused:
            self._tell(circuit.succeeded())
            raise
        except Exception as error:
            wait_s = error.retry_after_s if isinstance(error, PublisherUnavailable) else 0.0
            self._tell(circuit.failed(text_of(error), retry_after_s=wait_s))
            if isinstance(error, (PublisherUnavailable, OSError)):  # also ConnectionError and TimeoutError
                raise self._trouble(error) from error
            raise
        self._tell(circuit.succeeded())
        outbox.in_doubt -= {message.event.position for message in messages}
        if has_observers():
            self._tell(MessagesPublished(outbox.name, len(messages), monotonic() - began))

    def _trouble(self, error: Exception) -> TargetTrouble:
        """What the worker is told: the error or, once the circuit is open, that it is, and when to come back."""
        refusal = self._outbox.circuit.refusal
        return TargetTrouble(error) if refusal is None else TargetTrouble(refusal, retry_after_s=refusal.retry_after_s)

    def _tell(self, observation: Observation | None) -> None:
        if observation is not None and has_observers():
            notify(self._store, observation)


def _is_publisher(given: object) -> TypeGuard[Publisher]:
    return callable(getattr(given, "publish", None)) and callable(getattr(given, "close", None))
