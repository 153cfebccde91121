"""The oracle: the kernel and the judgement as Coq has extracted them, asked over a pipe.

Questions and answers are plain values, those of the vectors' JSON: an event is
{"type", "tags", "id"}, a query is a list of {"types", "tags"}. On the wire they are tokens, in
the form that proofs/oracle.ml describes: strings in hex, lists with their length in front.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

BINARY = Path(__file__).parents[2] / "proofs" / "_build" / "oracle"


class Oracle:
    """One process that answers line by line. Use it as a context manager."""

    def __enter__(self) -> Oracle:
        self._process = subprocess.Popen([BINARY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.communicate(timeout=60)

    def kernel(self, event: Any, query: Any) -> dict[str, Any]:
        answer = self._ask(["kernel", *_event(event), *_query(query)])
        return {
            "matches": bool(_int(answer)),
            "write_buckets": _many(answer, _bucket),
            "read_targets": _many(answer, _bucket),
            "write_keys": _many(answer, _key),
            "read_keys": _many(answer, lambda tokens: _many(tokens, _key)),
        }

    def up_to(self, up_to: int, event: Any) -> dict[str, Any]:
        return {"write_buckets": _many(self._ask(["up_to", str(up_to), *_event(event)]), _bucket)}

    def batch(self, log: Any, appends: Any) -> dict[str, Any]:
        answer = self._ask(["batch", *_list(log, _event), *_list(appends, _append)])
        return {"verdicts": _many(answer, _verdict), "head": _int(answer)}

    def _ask(self, tokens: Iterable[str]) -> Iterator[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(tokens) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the oracle has ended"
        return iter(line.split())


def _text(value: str) -> Iterator[str]:
    yield "x" + value.encode().hex()


def _list(values: Any, encode: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    yield str(len(values))
    for value in values:
        yield from encode(value)


def _maybe(value: Any, encode: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    return _list([] if value is None else [value], encode)


def _event(event: Any) -> Iterator[str]:
    yield from _text(event["type"])
    yield from _list(event["tags"], _text)
    yield from _maybe(event.get("id"), _text)


def _query(query: Any) -> Iterator[str]:
    return _list(query, _item)


def _item(item: Any) -> Iterator[str]:
    yield from _list(item["types"], _text)
    yield from _list(item["tags"], _text)


def _condition(condition: Any) -> Iterator[str]:
    yield str(condition["after"])
    yield from _query(condition["query"])


def _checkpoint(checkpoint: Any) -> Iterator[str]:
    name, position = checkpoint
    yield from _text(name)
    yield str(position)


def _append(append: Any) -> Iterator[str]:
    yield from _list(append["events"], _event)
    yield from _list(append["conditions"], _condition)
    yield from _maybe(append["unless"], _query)
    yield from _maybe(append["checkpoint"], _checkpoint)


def _int(tokens: Iterator[str]) -> int:
    return int(next(tokens))


def _str(tokens: Iterator[str]) -> str:
    return bytes.fromhex(next(tokens).removeprefix("x")).decode()


def _many(tokens: Iterator[str], decode: Callable[[Iterator[str]], Any]) -> list[Any]:
    return [decode(tokens) for _ in range(_int(tokens))]


def _bucket(tokens: Iterator[str]) -> list[Any]:
    tags = _many(tokens, _str)
    types = _many(tokens, _str)
    return [tags, types[0] if types else None]


def _key(tokens: Iterator[str]) -> list[str]:
    kind = next(tokens)
    return [kind, "" if kind == "all" else _str(tokens)]


def _verdict(tokens: Iterator[str]) -> list[Any]:
    kind = next(tokens)
    if kind == "placed":
        return [kind, _int(tokens), _int(tokens), bool(_int(tokens))]
    if kind == "conflicting":
        after = _int(tokens)
        query = _many(tokens, lambda inner: {"types": _many(inner, _str), "tags": _many(inner, _str)})
        return [kind, {"after": after, "query": query}, _int(tokens)]
    if kind == "overlapping":
        return [kind, _str(tokens), _int(tokens), _str(tokens)]
    assert kind == "behind"
    return [kind, _str(tokens), _int(tokens), _int(tokens)]
