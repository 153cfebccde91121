"""Poison: events whose bytes are chosen to break a reader, and input that is chosen to break the command.

Promises: whatever is stored, every command that reads prints all of it, in JSON lines that mean the same bytes and in
tables, and exits with 0; no output holds a character that steers a terminal; and no input, however malformed, ends in
an exit code that is not documented for it.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from uuid import UUID

from click.testing import CliRunner

import fencepost
from fencepost import Event, Query
from fencepost.cli.app import run as run_command
from fencepost.tools import event_from_json

EVENTS = 20  # of one round
COMMAND = [sys.executable, "-m", "fencepost.cli"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fencepost.__file__).parents[1])}

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069]")

TEXTS = [
    "\x1b[2J\x1b[31m",  # clears the screen, and goes on in red
    "\x1b]0;owned\x07",  # sets the title of the window
    "\x9b2J",  # the same control sequence as one character
    "\u202egnp.exe",  # from right to left
    "\u2066\u2069\u200b\u200d",
    "\r\n\t\v\f\x08\x7f",
    "a" * 1_000,
    "日本語 👩‍👩‍👧 e\u0301",
    "[bold red]markup[/]",
    "'\"\\{}[]:,%s%n{0}$(id)`id`",
    '{"type": "Other"}',
    "\uffff\ue000\U000e0001",
]
NUMBERS = [b"1e999", b"-1e999", b"NaN", b"Infinity", b"9" * 6_000, b"1" + b"0" * 400, b"1.5", b"-0", b"0x1", b"01"]
BYTES = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",  # half of a surrogate pair, as UTF-8 does not allow it
    b"\xc0\x80",
    b'"\\ud800"',
    b'{"a": 1, "a": 2, "": {"": []}}',
    b'{"a": "\\u0000\\u001b"}',
    b"{",
    b"[1,]",
    b"{}\n{}",
    b" [1] ",
    "[\u2028]".encode(),
]


class Chance(random.Random):
    def text(self) -> str:
        if self.random() < 0.3:
            return "".join(chr(self.choice([self.randrange(1, 0xD800), self.randrange(1, 256)])) for _ in range(8))
        return self.choice(TEXTS)

    def nested(self, deepest: int) -> bytes:
        depth = self.randrange(1, deepest)
        opening, closing = self.choice([(b"[", b"]"), (b'{"a":', b"}")])
        inner = self.choice([b"", *NUMBERS]) if opening == b"[" else self.choice(NUMBERS)
        return opening * depth + inner + closing * self.choice([depth, depth, depth - 1])

    def data(self) -> bytes:
        choices: list[Callable[[], bytes]] = [
            lambda: self.choice(BYTES),
            lambda: self.randbytes(self.randrange(40)),
            lambda: self.text().encode(),
            lambda: json.dumps([self.text(), {self.text(): self.text()}], ensure_ascii=self.random() < 0.5).encode(),
            lambda: b"[" + self.choice(NUMBERS) + b"]",
            lambda: self.nested(self.choice([10, 3_000, 30_000])),
        ]
        return self.choice(choices)()

    def event(self) -> Event:
        return Event(
            self.text() or "T",
            data=self.data(),
            tags={self.text() for _ in range(self.randrange(4))} - {""},
            id=UUID(int=self.getrandbits(128)),
            metadata={self.text(): self.text() for _ in range(self.randrange(3))},
        )

    def value(self) -> str:
        """Something that is JSON, or nearly."""
        nested = self.nested(self.choice([5, 50_000])).decode()
        return self.choice(["null", "true", "7", "-1", '""', "[]", "{}", "[[]]", nested, json.dumps(self.text())])

    def line(self) -> bytes:
        names = ["type", "tags", "data", "data_base64", "id", "metadata", "position", "recorded_at", self.text()]
        fields = [("type", '"T"'), *((self.choice(names), self.value()) for _ in range(self.randrange(4)))]
        return self.spoilt("{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields) + "}")

    def query(self) -> str:
        item = ", ".join(f'"{self.choice(["types", "tags", "x"])}": {self.value()}' for _ in range(self.randrange(3)))
        items = ", ".join(["{" + item + "}"] * self.choice([0, 1, 2, 1_001]))
        return self.choice([self.value(), f'{{"items": [{items}]}}', f'{{"items": {self.value()}}}'])

    def condition(self) -> str:
        return f'{{"fail_if_events_match": {self.query()}, "after": {self.value()}}}'

    def spoilt(self, text: str) -> bytes:
        raw = bytearray(text.encode())
        for _ in range(self.choice([0, 0, 1, 3])):
            raw[self.randrange(len(raw))] = self.randrange(256)
        return bytes(raw)


def run(seconds: float, seed: int) -> str:
    chance = Chance(seed)
    end = monotonic() + seconds
    rounds = inputs = 0
    while monotonic() < end or not rounds:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "poison.db")
            try:
                _check_outputs(chance, path)
                inputs += _check_inputs(chance, path)
                if rounds % 50 == 0:
                    _check_process(chance, path)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, round {rounds}: {error}") from error
            rounds += 1
    return f"{rounds} stores of {EVENTS} nasty events read in every form, {inputs} malformed inputs"


def _check_outputs(chance: Chance, path: str) -> None:
    events = [chance.event() for _ in range(EVENTS)]
    with fencepost.open(path) as store:
        store.append(events)
    for command in (["read"], ["read", "--backwards"], ["tail", "-n", str(EVENTS)], ["tail", "--after", "0"]):
        lines = _out(command[0], path, *command[1:], "--json").encode().splitlines()
        order = reversed(events) if "--backwards" in command else events
        assert [event_from_json(line) for line in lines] == list(order), f"{command} does not print what is stored"
        assert INVISIBLE.search(_out(command[0], path, *command[1:], "--table")) is None
    for form in ("--json", "--table"):
        _out("stats", path, form)
        _out("verify", path, form)
        one = chance.choice(events)
        _out("check", path, "--query", Query.of(types={one.type}, tags=one.tags).to_json(), form, codes=(1,))
    piped = _out("read", path, "--json").encode()
    _out("init", f"{path}.copy")
    _out("append", f"{path}.copy", given=piped)
    with fencepost.open(f"{path}.copy") as copy:
        assert [event.event for event in copy.read()] == events, "a store that is piped into another is not the same"


def _check_inputs(chance: Chance, path: str) -> int:
    for _ in range(10):
        _out("append", path, given=b"\n".join(chance.line() for _ in range(3)), codes=(0, 1, 2))
        _out("read", path, "--query", chance.query(), "--limit", "1", codes=(0, 2))
        _out("check", path, "--query", chance.query(), codes=(0, 1, 2))
        _out("check", path, "--condition", chance.condition(), codes=(0, 1, 2))
        guards = ["--condition", chance.condition(), "--unless", chance.query()]
        _out("append", path, *guards, given=b'{"type": "T"}', codes=(0, 1, 2))
    return 50


def _check_process(chance: Chance, path: str) -> None:
    """The same of a process that follows the store while it is poisoned."""
    with fencepost.open(path) as store:
        after = store.head()
        command = [*COMMAND, "tail", "-f", path, "--after", str(after), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as process:
            assert process.stdout is not None
            for _ in range(EVENTS):
                event = chance.event()
                store.append([event])
                line = process.stdout.readline()
                assert line, f"tail -f ended with {process.wait()}: {process.communicate()[1]!r}"
                assert event_from_json(line) == event, "tail -f does not print what is stored"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            assert process.returncode == 130, (process.returncode, err)


def _out(command: str, path: str, *options: str, given: bytes = b"", codes: tuple[int, ...] = (0,)) -> str:
    """What the command prints, which it must do with one of the exit codes."""
    with CliRunner().isolation(given) as (out, err, _):
        code = run_command([command, path, *options])
        shown, complaint = out.getvalue().decode(), err.getvalue().decode()
    assert code in codes, f"{command} {options} exits with {code}: {complaint[-2_000:]}"
    for text in (shown, complaint):
        assert CONTROLS.search(text) is None, f"{command} {options} prints a control character"
    return shown
