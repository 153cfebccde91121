"""The outboxes of the course example: each subscription is billed once, and only if its signature is right."""

from __future__ import annotations

import json
from pathlib import Path

from examples.course_outbox import SECRET, outboxes
from examples.courses import Capacity, Load, Subscription, define_course, subscribe
from tests.consumers.outbox.receivers import Receiver
from tests.consumers.places import eventually

import fencepost
from fencepost.consumers import start
from fencepost.consumers.outbox import verify_signature


def test_both_receivers_get_every_subscription(tmp_path: Path) -> None:
    archive = tmp_path / "archive.jsonl"
    with Receiver() as receiver, fencepost.open(tmp_path / "courses.db") as store:
        define_course(store, Capacity("rust"), capacity=3)
        with start(store, *outboxes(receiver.url, archive)):
            for student in ("ada", "bob", "eve"):
                subscribe(store, Capacity("rust"), Load(student), Subscription("rust", student))
            eventually(lambda: len(receiver.accepted) == 3)
            eventually(lambda: archive.exists() and archive.read_text().count("\n") == 3)
        for headers, body in receiver.requests:
            verify_signature(body, headers["fencepost-signature"], [SECRET])
        archived = [json.loads(line) for line in archive.read_text().splitlines()]
        assert receiver.accepted == archived
        assert [each["data"]["student_id"] for each in archived] == ["ada", "bob", "eve"]
