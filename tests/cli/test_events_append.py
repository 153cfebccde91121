"""`init` and `append`."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

import fencepost
from fencepost import Query

from .conftest import Cli

OPENED = '{"type": "WalletOpened", "tags": ["wallet:w3"]}'
W3_UNUSED = '{"fail_if_events_match": {"items": [{"tags": ["wallet:w3"]}]}}'
W1_UNUSED = '{"fail_if_events_match": {"items": [{"tags": ["wallet:w1"]}]}}'


def stored(path: str) -> list[fencepost.SequencedEvent]:
    with fencepost.open(path) as store:
        return list(store.read())


def test_init_makes_an_empty_store(cli: Cli, path: str) -> None:
    assert cli("init", path).lines == [{"store": path, "created": True, "head": 0}]
    assert stored(path) == []


def test_init_leaves_a_store_that_is_there_as_it_is(cli: Cli, wallets: str) -> None:
    before = stored(wallets)
    assert cli("init", wallets).lines == [{"store": wallets, "created": False, "head": 4}]
    assert stored(wallets) == before


def test_init_refuses_a_file_that_is_something_else(cli: Cli, tmp_path: Path) -> None:
    other = tmp_path / "letter.txt"
    other.write_text("Dear Ada, " * 1000)
    ran = cli("init", str(other))
    assert (ran.code, ran.out) == (3, "")
    assert "not a Fencepost store" in ran.err
    assert other.read_text() == "Dear Ada, " * 1000


def test_append_stores_what_a_line_says(cli: Cli, wallets: str) -> None:
    id = "2f1c7d5e-0d5c-4b0e-8a52-6d3f4d9f0b11"
    line = {"type": "T", "tags": ["b", "a"], "data_text": "text", "id": id, "metadata": {"by": "Ada"}}
    assert cli("append", wallets, given=json.dumps(line)).lines == [{"first": 5, "last": 5, "already": False}]
    event = stored(wallets)[-1]
    assert (event.type, sorted(event.tags), event.data) == ("T", ["a", "b"], b"text")
    assert (event.id, event.metadata) == (UUID(id), {"by": "Ada"})


def test_append_keeps_json_data_as_it_was_written(cli: Cli, wallets: str) -> None:
    cli("append", wallets, given='{"type": "T", "data": {"b" : 1,  "a": [1.50, null]}}')
    assert stored(wallets)[-1].data == b'{"b" : 1,  "a": [1.50, null]}'


def test_append_takes_bytes_as_base64(cli: Cli, wallets: str) -> None:
    cli("append", wallets, given='{"type": "T", "data_base64": "AP/+"}')
    assert stored(wallets)[-1].data == b"\x00\xff\xfe"


def test_append_passes_over_empty_lines(cli: Cli, wallets: str) -> None:
    assert cli("append", wallets, given=f"\n{OPENED}\n\n{OPENED}\n").lines[0]["last"] == 6


def test_append_is_all_or_nothing(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets, given=f'{OPENED}\n{{"type": ""}}\n')
    assert ran.code == 2
    assert "line 2, type: 0 bytes of UTF-8" in ran.err
    assert len(stored(wallets)) == 4


def test_append_refuses_an_unknown_name_and_says_which(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets, given='{"type": "T", "tag": "x"}')
    assert ran.code == 2
    assert "line 1" in ran.err
    assert "`tag`" in ran.err


def test_append_refuses_what_is_no_json_and_what_is_no_utf8(cli: Cli, wallets: str) -> None:
    assert "line 1" in cli("append", wallets, given="WalletOpened").err
    assert "not UTF-8" in cli("append", wallets, given=b'{"type": "T", "data": {"a": "\xff"}}').err
    assert len(stored(wallets)) == 4


def test_append_refuses_data_given_twice_and_false_base64(cli: Cli, wallets: str) -> None:
    assert (
        "use one of data, data_text and data_base64"
        in cli("append", wallets, given='{"type": "T", "data": 1, "data_base64": ""}').err
    )
    assert "not base64" in cli("append", wallets, given='{"type": "T", "data_base64": "?"}').err


def test_append_without_input_says_what_to_write(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets)
    assert ran.code == 2
    assert "one JSON object per line" in ran.err


def test_append_is_made_when_its_condition_holds(cli: Cli, wallets: str) -> None:
    assert cli("append", wallets, "--condition", W3_UNUSED, given=OPENED).code == 0
    assert len(stored(wallets)) == 5


def test_append_is_refused_when_one_of_its_conditions_fails(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets, "--condition", W3_UNUSED, "--condition", W1_UNUSED, given=OPENED)
    assert (ran.code, ran.out) == (1, "")
    assert "'WalletOpened' at position 1" in ran.err
    assert len(stored(wallets)) == 4


def test_append_writes_nothing_when_unless_matches(cli: Cli, wallets: str) -> None:
    unless = Query.of(types={"MoneyDeposited"}, tags={"wallet:w1"}).to_json()
    ran = cli("append", wallets, "--unless", unless, given=OPENED)
    assert (ran.code, ran.lines) == (0, [{"first": 2, "last": 2, "already": True}])
    assert len(stored(wallets)) == 4


def test_append_in_batches_makes_one_append_of_each(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets, "--batch", "2", given=f"{OPENED}\n" * 5)
    assert [(line["first"], line["last"]) for line in ran.lines] == [(5, 6), (7, 8), (9, 9)]


def test_append_in_batches_says_what_is_stored_when_a_line_is_wrong(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets, "--batch", "2", given=f"{OPENED}\n" * 3 + "{}")
    assert ran.code == 2
    assert "line 4" in ran.err
    assert "the 2 events before this batch are stored" in ran.err
    assert len(stored(wallets)) == 6


def test_append_in_batches_takes_no_condition(cli: Cli, wallets: str) -> None:
    ran = cli("append", wallets, "--batch", "2", "--condition", W3_UNUSED, given=OPENED)
    assert ran.code == 2
    assert len(stored(wallets)) == 4


def test_a_retry_with_the_same_ids_is_told_where_the_events_are(cli: Cli, wallets: str) -> None:
    line = '{"type": "T", "id": "2f1c7d5e-0d5c-4b0e-8a52-6d3f4d9f0b11"}'
    cli("append", wallets, given=line)
    assert cli("append", wallets, given=line).lines == [{"first": 5, "last": 5, "already": True}]


def test_too_many_events_for_one_append_are_told_of_batches(
    cli: Cli, wallets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.cli.events.MAX_EVENTS", 3)
    ran = cli("append", wallets, given=f"{OPENED}\n" * 4)
    assert ran.code == 2
    assert "--batch" in ran.err
    assert len(stored(wallets)) == 4
