"""`fencepost consume` runs an outbox, and `fencepost consumers` shows and steers it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.consumers.places import eventually
from tests.consumers.test_command_line import append, command, environment, fencepost_

import fencepost
from fencepost import EventStore
from fencepost.consumers import dead_letters, status
from fencepost.consumers.consumer_status import names

MODULE = """
from fencepost.consumers import Failures
from fencepost.consumers.outbox import FilePublisher, MessageRefused, Outbox, Topic

additions = Topic("additions", source="/tests", types={"Added"}, key="key")

class Strict(FilePublisher):
    def publish(self, messages):
        for message in messages:
            if b"-1" in message.event.data:
                raise MessageRefused(message, "negative")
        super().publish(messages)

exported = Outbox("exported", additions, FilePublisher("out.jsonl"), lease_s=1)
strict = Outbox("strict", additions, Strict("strict.jsonl"), lease_s=1, failures=Failures(attempts=1, then="set aside",
                key="key"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "messages.py").write_text(MODULE)
    append(tmp_path, 1, 1, 1)
    return tmp_path


def published(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_a_module_names_all_its_outboxes_and_dead_letters_are_steered(folder: Path) -> None:
    append(folder, -1, 1)
    fencepost_(folder, "consume", "log.db", "messages", "--once")
    assert (len(published(folder / "out.jsonl")), len(published(folder / "strict.jsonl"))) == (5, 3)
    assert published(folder / "out.jsonl") == [f"/tests#{each}" for each in range(1, 6)]
    refused, behind = fencepost_(folder, "consumers", "dead-letters", "list", "log.db", "strict")
    assert (refused["error"], behind["behind"]) == ("MessageRefused: message /tests#4 was refused: negative", 4)
    fencepost_(folder, "consumers", "dead-letters", "discard", "log.db", "strict", "4")
    fencepost_(folder, "consumers", "dead-letters", "replay", "log.db", "strict")
    with fencepost.open(folder / "log.db") as store:
        (letter,) = dead_letters(store, "strict")
    assert letter.replay


def test_a_running_outbox_is_paused_and_resumed_from_another_process(folder: Path) -> None:
    arguments = command("consume", "log.db", "messages:exported")
    process = subprocess.Popen(arguments, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        with fencepost.open(folder / "log.db") as store:
            eventually(lambda: names(store) == ["exported"] and lag(store) == ("running", 0))
            fencepost_(folder, "consumers", "pause", "log.db", "exported")
            append(folder, 1)
            eventually(lambda: lag(store) == ("paused", 1))
            fencepost_(folder, "consumers", "resume", "log.db", "exported")
            eventually(lambda: lag(store) == ("running", 0))
        (found,) = fencepost_(folder, "consumers", "status", "log.db")
        assert (found["name"], found["lag_events"], found["dead_letters"]) == ("exported", 0, 0)
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(published(folder / "out.jsonl")) == 4


def lag(store: EventStore) -> tuple[str, int]:
    (found,) = status(store, ["exported"])
    return found.state, found.lag_events
