"""The outbox: events of a store as messages to other systems, at least once, in order per key.

    messages     topics, and messages with their deduplication keys, as CloudEvents 1.0
    sending      `Outbox`, the consumer that publishes a topic
    circuits     the circuit breaker of each outbox
    publishing   what a publisher is, and how it reports errors
    webhook      HTTP; `signatures` signs requests and verifies them
    kafka, nats_jetstream, rabbitmq, redis_streams, files    the other publishers
    loops        what publishers over libraries that use asyncio share: an event loop in a thread

A library of a broker is imported when a publisher that needs it is created.
"""

from .circuits import Breaker, Circuit, CircuitChanged, MessagesPublished
from .files import FilePublisher, LogPublisher
from .kafka import KafkaPublisher
from .messages import Message, Topic
from .nats_jetstream import NatsPublisher
from .outbox_consumer import Outbox
from .publisher import MessageRefused, Publisher, PublisherUnavailable, rounds
from .rabbitmq import RabbitPublisher
from .redis_streams import RedisPublisher
from .signatures import SignatureRefused, verify_signature
from .webhook import WebhookPublisher

__all__ = [
    "Breaker",
    "Circuit",
    "CircuitChanged",
    "FilePublisher",
    "KafkaPublisher",
    "LogPublisher",
    "Message",
    "MessageRefused",
    "MessagesPublished",
    "NatsPublisher",
    "Outbox",
    "Publisher",
    "PublisherUnavailable",
    "RabbitPublisher",
    "RedisPublisher",
    "SignatureRefused",
    "Topic",
    "WebhookPublisher",
    "rounds",
    "verify_signature",
]
