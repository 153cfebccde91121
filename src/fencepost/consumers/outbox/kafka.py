"""`KafkaPublisher`: messages to a topic of Kafka, each acknowledged by all in-sync replicas.

The key of the record is the message's key, so the records of one key are in one partition, in order. The producer is
idempotent, and must not leave gaps: if a record fails, librdkafka must not deliver a later one of its partition.
After a failure the producer is thrown away with everything that it still holds, and the outbox sends the batch again.
Receivers find the deduplication key in the header `ce_id` and, in structured mode, in the envelope.
tests/brokers/test_kafka_mock.py runs against the mock cluster of librdkafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ...errors import InvalidInput
from .messages import Message, Mode, packed
from .publisher import (
    Address,
    MessageRefused,
    OneAtATime,
    PublisherUnavailable,
    address_of,
    checked_timeout,
    library,
    log,
)

# A record never fails alone after a time of its own: then later records of its key could still be delivered. Instead
# the publisher gives up the whole batch, and with it the producer.
FIXED: Final[dict[str, Any]] = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "acks": "all",
    "message.timeout.ms": 0,
}
QUIET: Final = {"log_level": 3}  # librdkafka warns that it calls the setting about gaps experimental


class KafkaPublisher(OneAtATime):
    """Produces to the Kafka topic `topic`, by default named as the topic of the outbox; a function gets the message.

    `settings` are those of librdkafka, at least `bootstrap.servers`. In the mode "binary" the value is the event's
    data and the attributes are headers, otherwise the value is the envelope.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        *,
        topic: Address | None = None,
        mode: Mode = "structured",
        timeout_s: float = 30.0,
    ) -> None:
        super().__init__()
        self._kafka: Any = library("confluent_kafka")
        if "bootstrap.servers" not in settings:
            raise InvalidInput("settings", "bootstrap.servers is missing")
        for name, value in FIXED.items():
            if settings.get(name, value) != value:
                raise InvalidInput("settings", f"{name} must be {value!r}, or events are lost or change their order")
        self._topic = topic
        self._mode = mode
        self._timeout_s = checked_timeout(timeout_s)
        self._settings = {**QUIET, **settings, **FIXED}
        self._producer: Any = None

    def _publish(self, messages: Sequence[Message]) -> None:
        if self._producer is None:
            self._producer = self._kafka.Producer(self._settings, logger=log)
        failed: list[tuple[Message, Any]] = []
        refusal: tuple[Message, Any] | None = None
        for message in messages:
            try:
                self._produce(message, failed)
            except (self._kafka.KafkaException, BufferError) as error:
                refusal = (message, error.args[0])  # nothing after it is produced
                break
        left = self._producer.flush(self._timeout_s)
        if failed:
            raise self._error_of(*failed[0])
        if left:
            raise PublisherUnavailable(f"Kafka: {left} records were not acknowledged in {self._timeout_s} s")
        if refusal is not None:
            raise self._error_of(*refusal)

    def _produce(self, message: Message, failed: list[tuple[Message, Any]]) -> None:
        value, media_type, named = packed(message, self._mode, "ce_")
        headers = [(name, text.encode()) for name, text in (named or {"ce_id": message.id}).items()]
        if media_type is not None:
            headers.append(("content-type", media_type.encode()))

        def acknowledged(error: Any, record: Any) -> None:
            if error is not None:
                failed.append((message, error))

        key = None if message.key is None else message.key.encode()
        topic = address_of(self._topic, message)
        self._producer.produce(topic, value=value, key=key, headers=headers, on_delivery=acknowledged)
        self._producer.poll(0)

    def _error_of(self, message: Message, error: Any) -> Exception:
        codes = self._kafka.KafkaError
        about_message = {codes.MSG_SIZE_TOO_LARGE, codes.INVALID_MSG, codes.INVALID_RECORD, codes.RECORD_LIST_TOO_LARGE}
        if isinstance(error, codes) and error.code() in about_message:
            return MessageRefused(message, f"Kafka: {error}")
        return PublisherUnavailable(f"Kafka: {error}")

    def _close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.flush(0)

    def __repr__(self) -> str:
        return f"<Kafka at {self._settings.get('bootstrap.servers')}>"
