"""The file has only complete lines, whatever happened to the process before; the logger gets the same lines."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fencepost
from fencepost import Event, EventStore
from fencepost.consumers.outbox import FilePublisher, LogPublisher, Message, Topic


@pytest.fixture
def store() -> Iterator[EventStore]:
    with fencepost.open("memory:") as store:
        yield store


@pytest.fixture
def sent(store: EventStore) -> list[Message]:
    store.append([Event("A", data=b"[\n%d\r\n]" % number) for number in range(5)])
    return [Message(Topic("t", source="/s"), event) for event in store.read()]


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_bytes().splitlines()]


def test_each_message_is_a_line_of_json(tmp_path: Path, sent: list[Message]) -> None:
    path = tmp_path / "out.jsonl"
    publisher = FilePublisher(path)
    publisher.publish(sent[:2])
    publisher.publish(sent[2:])
    publisher.close()
    assert ids(path) == [message.id for message in sent]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("torn", [b'{"id": "/s#', b"x" * 200_000])
def test_a_torn_line_of_a_killed_process_is_removed(tmp_path: Path, sent: list[Message], torn: bytes) -> None:
    path = tmp_path / "out.jsonl"
    FilePublisher(path).publish(sent[:2])
    with path.open("ab") as file:
        file.write(torn)
    FilePublisher(path).publish(sent[2:])
    assert ids(path) == [message.id for message in sent]


def test_a_file_that_was_renamed_is_left_alone(tmp_path: Path, sent: list[Message]) -> None:
    path = tmp_path / "out.jsonl"
    publisher = FilePublisher(path)
    publisher.publish(sent[:2])
    path.rename(tmp_path / "out.jsonl.1")
    publisher.publish(sent[2:])
    publisher.close()
    assert (len(ids(tmp_path / "out.jsonl.1")), len(ids(path))) == (2, 3)


def test_a_full_disk_leaves_no_torn_line(tmp_path: Path, sent: list[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.jsonl"
    publisher = FilePublisher(path)
    publisher.publish(sent[:2])
    real = os.write
    written = 0

    def write(descriptor: int, content: Any) -> int:
        nonlocal written
        if written:
            raise OSError(28, "No space left on device")
        written = real(descriptor, bytes(content)[:10])
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space left"):
            publisher.publish(sent[2:])
    assert ids(path) == [message.id for message in sent[:2]]
    publisher.publish(sent[2:])
    publisher.close()
    assert ids(path) == [message.id for message in sent]


def test_a_failed_sync_is_not_a_success_and_the_file_is_opened_again(
    tmp_path: Path, sent: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    publisher = FilePublisher(path)
    publisher.publish(sent[:1])

    def fsync(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="Input/output error"):
            publisher.publish(sent[1:])
    publisher.publish(sent[1:])
    publisher.close()
    assert list(dict.fromkeys(ids(path))) == [message.id for message in sent]


def test_a_logger_gets_each_message_as_a_line(sent: list[Message], caplog: pytest.LogCaptureFixture) -> None:
    publisher = LogPublisher("outgoing", level=logging.WARNING)
    publisher.publish(sent)
    publisher.close()
    assert [json.loads(record.getMessage())["id"] for record in caplog.records] == [message.id for message in sent]
    assert not any("\n" in record.getMessage() for record in caplog.records)
