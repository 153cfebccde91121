"""The webhook publisher, against a real HTTP receiver: what is sent, and what each answer means."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import fencepost
from fencepost import Event, EventStore, InvalidInput
from fencepost.consumers.outbox import (
    Message,
    MessageRefused,
    PublisherUnavailable,
    SignatureRefused,
    Topic,
    WebhookPublisher,
    verify_signature,
)

from .receivers import Receiver

SECRETS = ["first-secret-first-secret", "second-secret-second-secret"]


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store


def messages(store: EventStore, count: int) -> list[Message]:
    store.append([Event("A", data=b'{"n": %d}' % number) for number in range(count)])
    return [Message(Topic("t", source="/s"), event) for event in store.read()]


def test_each_message_is_a_request_over_one_connection(store: EventStore) -> None:
    with Receiver() as receiver:
        publisher = WebhookPublisher(receiver.url, headers={"Authorization": "Bearer x"})
        publisher.publish(messages(store, 3))
        publisher.close()
        assert [each["data"]["n"] for each in receiver.accepted] == [0, 1, 2]
        headers, body = receiver.requests[0]
        assert headers["content-type"].startswith("application/cloudevents+json")
        assert headers["authorization"] == "Bearer x"
        assert json.loads(body)["specversion"] == "1.0"
        assert receiver.connections == 1


def test_a_batch_is_one_request(store: EventStore) -> None:
    with Receiver() as receiver:
        publisher = WebhookPublisher(receiver.url, batched=True)
        sent = messages(store, 3)
        publisher.publish(sent)
        publisher.publish(sent[:1])
        publisher.close()
        assert [len(json.loads(body)) for _, body in receiver.requests] == [3, 1]
        assert receiver.requests[0][0]["content-type"].startswith("application/cloudevents-batch+json")


def test_requests_are_signed_with_every_secret(store: EventStore) -> None:
    with Receiver() as receiver:
        publisher = WebhookPublisher(receiver.url, secrets=SECRETS)
        publisher.publish(messages(store, 1))
        publisher.close()
        headers, body = receiver.requests[0]
    for secret in SECRETS:
        verify_signature(body, headers["fencepost-signature"], [secret])
    with pytest.raises(SignatureRefused):
        verify_signature(body, headers["fencepost-signature"], ["third-secret-third-secret"])


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_an_answer_about_the_message_refuses_it(store: EventStore, status: int) -> None:
    sent = messages(store, 3)
    with Receiver(lambda number, body: status if number == 2 else 200) as receiver:
        publisher = WebhookPublisher(receiver.url)
        with pytest.raises(MessageRefused, match=rf"{status}: because of a rule") as refused:
            publisher.publish(sent)
        assert refused.value.message is sent[1]
        assert receiver.ids == [sent[0].id]
        publisher.publish(sent[2:])  # the connection is still good
        publisher.close()
        assert receiver.connections == 1


@pytest.mark.parametrize("status", [302, 401, 403, 404, 405, 408, 410, 415, 429, 500, 503])
def test_any_other_answer_blames_no_message(store: EventStore, status: int) -> None:
    with Receiver(lambda number, body: status) as receiver:
        receiver.answer_headers = {"Retry-After": "7", "Location": receiver.url}
        publisher = WebhookPublisher(receiver.url)
        with pytest.raises(PublisherUnavailable, match=str(status)) as unavailable:
            publisher.publish(messages(store, 1))
        publisher.close()
        assert unavailable.value.retry_after_s == 7
        assert len(receiver.requests) == 1


def test_a_connection_that_the_receiver_has_closed_is_opened_again(store: EventStore) -> None:
    with Receiver(lambda number, body: 0 if number == 2 else 200) as receiver:
        publisher = WebhookPublisher(receiver.url)
        publisher.publish(messages(store, 3))
        publisher.close()
        assert [each["data"]["n"] for each in receiver.accepted] == [0, 1, 2]
        assert receiver.connections == 2


def test_a_receiver_that_is_not_there_is_a_connection_error(store: EventStore) -> None:
    with Receiver() as receiver:
        url = receiver.url
    with pytest.raises(OSError):
        WebhookPublisher(url).publish(messages(store, 1))


def test_a_receiver_that_never_answers_is_a_timeout(store: EventStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        publisher = WebhookPublisher(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(TimeoutError):
            publisher.publish(messages(store, 1))


@pytest.mark.parametrize(
    ("url", "options", "field"),
    [
        ("ftp://host", {}, "url"),
        ("https://", {}, "url"),
        ("https://user:password@host", {}, "url"),
        ("https://host:99999", {}, "url"),
        ("https://host/a b", {}, "url"),
        ("https://host", {"secrets": ["short"]}, "secrets"),
        ("https://host", {"headers": {"Fencepost-Signature": "x"}}, "headers"),
        ("https://host", {"timeout_s": 0}, "timeout_s"),
    ],
)
def test_what_cannot_work_is_refused_at_once(url: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        WebhookPublisher(url, **options)


def test_secrets_and_tokens_are_not_shown() -> None:
    shown = repr(WebhookPublisher("https://host/hook?token=hidden", secrets=SECRETS))
    assert shown == "<webhook https://host/hook>"
