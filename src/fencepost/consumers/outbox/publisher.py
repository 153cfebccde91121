"""Publishers: what sends the messages of an outbox to another system, and how a publisher says what went wrong.

A publisher has two methods, `publish` and `close`. It must tell three cases apart, because the outbox treats them
differently: the other system does not want this one message (`MessageRefused`), the other system cannot be reached or
takes no message at all (`PublisherUnavailable`, or any `OSError`), or something else is wrong (any other error). Only
the first and the last case count as attempts of a message. A broker that is down never makes a dead letter
(tests/consumers/outbox/test_failures.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias

from ...errors import InvalidInput
from ..errors import ConsumerError
from .messages import Message

EXTRAS: Final = {"confluent_kafka": "kafka", "nats": "nats", "aio_pika": "rabbitmq", "redis": "redis"}
Address: TypeAlias = str | Callable[[Message], str]

log: Final = logging.getLogger("fencepost.consumers.outbox")


class Publisher(Protocol):
    """What an outbox needs of a publisher."""

    def publish(self, messages: Sequence[Message]) -> None:
        """Send the messages in order. Returns when the other system has accepted all of them.

        After an error, the outbox sends all of them again. So a publisher that sends several at once must not let a
        message overtake an earlier one of the same key that failed; `rounds` splits a batch accordingly.
        """

    def close(self) -> None:
        """Release connections. A later `publish` opens them again."""


class MessageRefused(ConsumerError):
    """The other system refuses this message, and would take others. Sending it again counts as another attempt."""

    def __init__(self, message: Message, reason: str) -> None:
        super().__init__(f"message {message.id} was refused: {reason}")
        self.message = message
        self.reason = reason


class PublisherUnavailable(ConsumerError):
    """The other system takes no message now. No message is blamed; the outbox tries again without end.

    `retry_after_s` is how long the other system wants to be left alone, if it said so.
    """

    def __init__(self, reason: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class OneAtATime:
    """A publisher with a connection that one thread at a time uses, and that is closed after an error."""

    _kept_after: tuple[type[Exception], ...] = ()  # errors after which the connection can still be used

    def __init__(self) -> None:
        self._lock = Lock()

    def publish(self, messages: Sequence[Message]) -> None:
        with self._lock:
            try:
                self._publish(messages)
            except self._kept_after:
                raise
            except BaseException:
                self._close()
                raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def _publish(self, messages: Sequence[Message]) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


def library(name: str) -> Any:
    """Import the library of a broker; the error says which extra is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise
        extra = EXTRAS[name.partition(".")[0]]
        raise ImportError(
            f"this publisher needs the package {name.replace('_', '-')}, which the extra {extra!r} installs: "
            f"pip install 'fencepost[{extra}]'"
        ) from None


def rounds(messages: Sequence[Message]) -> list[list[Message]]:
    """Split the messages so that no round has two of the same key, and each key's messages keep their order.

    The messages of a round can be sent at once. Messages without a key count as having the same one.
    """
    split: list[list[Message]] = []
    next_round: dict[str | None, int] = {}
    for message in messages:
        at = next_round.get(message.key, 0)
        next_round[message.key] = at + 1
        if at == len(split):
            split.append([])
        split[at].append(message)
    return split


def address_of(address: Address | None, message: Message) -> str:
    """Where the message goes: the given name, what the given function returns, or the name of the topic."""
    if address is None:
        return message.topic
    return address(message) if callable(address) else address


def checked_timeout(timeout_s: float) -> float:
    if not timeout_s > 0:
        raise InvalidInput("timeout_s", f"more than 0 seconds are needed, not {timeout_s}")
    return timeout_s
