"""`Once`: how a decision finds out that an earlier call already took it.

A `Once` is a query for the events of the earlier call. The decision searches the whole log for them in its read, and
the append searches again, atomically. So if two identical requests run at the same time, one writes, and the other
returns the events of the first: tests/decisions/test_once.py.

There are two kinds. `having(WithdrawalMade, withdrawal_id="x")` finds an event by its own tags. A command id, any
string or UUID, is for events that no field identifies. It belongs to a decision: the events get the tag
`command_id:<scope>:<id>`, where the scope is the decision's name.

The events found may belong to a different request with the same identity. For `having`, the fields that `same` names
are compared; for a command id, a digest of the arguments in the events' metadata. The digest is the same in every
process, whether arguments are passed by position or by name, and does not change when parameters with defaults are
added. A projection counts by its scope. Effects do not count: tests/decisions/test_command_ids.py.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..model import Event, Query, QueryItem, SequencedEvent, query_of_items
from ..model.limits import MAX_TAG_BYTES
from .codecs import is_pydantic
from .effects import Effect
from .errors import DefinitionError, RequestMismatch

AnyEvent = TypeVar("AnyEvent", Event, SequencedEvent)

# The metadata key of the digest of a command's arguments.
DIGEST: Final = "command_digest"


class Once(msgspec.Struct, frozen=True):
    """A query item for the events of an earlier call, and the declaration that decodes them, if known.

    For a command id, `tag` is the tag that the decision adds to its events, and `digest` the digest of its arguments.
    `fields` are the fields that `same` compares.
    """

    item: QueryItem
    declaration: Any = None  # a Declaration
    tag: str | None = None
    digest: str | None = None
    fields: Mapping[str, Any] | None = None

    @property
    def query(self) -> Query:
        return query_of_items((self.item,))

    def same(self, **fields: Any) -> Once:
        """Also compare these fields. If the event that is found has other values, it belongs to another request."""
        if self.declaration is None:
            raise DefinitionError("same() compares fields of an event, so it needs having(<event class>, ...)")
        if not fields.keys() <= self.declaration.fields.keys():
            unknown = sorted(fields.keys() - self.declaration.fields.keys())
            raise DefinitionError(f"same(): {unknown} are not fields of {self.declaration.type}")
        if self.fields is not None:
            fields = {**self.fields, **fields}
        return Once(self.item, self.declaration, self.tag, self.digest, fields)

    def among(self, events: Iterable[AnyEvent]) -> list[AnyEvent]:
        """The events that match. Compares types first, because decoding the tags is slow."""
        tags, types = self.item.tags, self.item.types
        return [event for event in events if (not types or event.type in types) and tags <= event.tags]

    def check(self, decision: str, events: Iterable[Event]) -> None:
        """Raise `DefinitionError` unless `once` finds one of these new events: a repeated call would write again."""
        if not self.among(events):
            raise DefinitionError(
                f"{decision}: once looks for {self.sought}, but no event that the decision returned matches"
            )

    def check_earlier(self, decision: str, earlier: Sequence[SequencedEvent]) -> None:
        """Raise `RequestMismatch` if the events that were found belong to another request."""
        if self.digest is None and self.fields is None:
            return
        for event in self.among(earlier):
            if self.digest is not None and event.metadata.get(DIGEST) != self.digest:
                raise RequestMismatch(decision, self.sought, event, ())
            if self.fields is not None:
                decoded = self.declaration.decode(event)
                other = tuple(name for name, value in self.fields.items() if getattr(decoded, name) != value)
                if other:
                    raise RequestMismatch(decision, self.sought, event, other)

    @property
    def sought(self) -> str:
        """A description of the query item, for messages."""
        return f"{'|'.join(sorted(self.item.types)) or 'any event'} with {sorted(self.item.tags)}"


COMMAND_ID: Final = "command_id"

# Stored in front of the digest; digests of different versions are not comparable.
DIGEST_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class CommandId:
    """A command id with options.

    `scope` replaces the decision's name: decisions with the same scope share their command ids. `arguments` replaces
    the arguments of the call in the comparison of requests. It is any value that msgspec can encode; with None, nothing
    is compared.
    """

    id: str | UUID
    scope: str | None = None
    arguments: Any = msgspec.UNSET


# What `once=` accepts.
OnceArgument: TypeAlias = Once | CommandId | str | UUID


def resolve_once(given: CommandId | str | UUID, name: str, arguments: Callable[[], Mapping[str, Any]]) -> Once:
    """The `Once` for a command id. `arguments` returns the arguments of the call by name."""
    if isinstance(given, (str, UUID)):
        given = CommandId(given)
    elif not isinstance(given, CommandId):
        problem = f"expected a command id (str, UUID or CommandId) or having(...), not {type(given).__name__}"
        raise DefinitionError(f"{name}: once: {problem}")
    tag = _tag(given, name)
    compared = arguments() if given.arguments is msgspec.UNSET else {"": given.arguments}
    return Once(QueryItem(tags=(tag,)), tag=tag, digest=arguments_digest(compared, name))


def _tag(command: CommandId, name: str) -> str:
    scope = name if command.scope is None else command.scope
    if "<lambda>" in scope:
        problem = "a lambda has no name for a command id to belong to"
        raise DefinitionError(f"{name}: {problem}; use decision(name=...)")
    if not scope or ":" in scope:
        # A colon separates scope and id in the tag, so that different pairs cannot give the same tag.
        raise InvalidInput("once.scope", f"{scope!r:.80} is empty or contains ':'")
    if not isinstance(command.id, (str, UUID)) or not str(command.id):
        raise InvalidInput("once", f"a command id is a UUID or a non-empty str, not {command.id!r:.80}")
    tag = f"{COMMAND_ID}:{scope}:{command.id}"
    size = len(tag.encode("utf-8", "surrogatepass"))
    if size > MAX_TAG_BYTES:
        raise InvalidInput(
            "once", f"the tag {tag:.60}... has {size} bytes, the limit is {MAX_TAG_BYTES}; use a shorter id or scope"
        )
    return tag


def arguments_digest(arguments: Mapping[str, Any], name: str) -> str:
    """The digest by which requests are compared. Raises `DefinitionError` for a value that msgspec cannot encode."""
    forms = []
    for parameter, value in sorted(arguments.items()):
        try:
            forms.append((parameter, encode_argument(value)))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = f"the argument {parameter!r}" if parameter else "the value of arguments="
            problem = f"{what}, of type {type(value).__name__}, cannot be compared between calls: {error}"
            advice = "pass what identifies the request: once=CommandId(id, arguments=...)"
            raise DefinitionError(f"{name}: {problem}; {advice}") from error
    return f"{DIGEST_VERSION}:{hashlib.blake2b(msgspec.msgpack.encode(forms), digest_size=16).hexdigest()}"


def given_arguments(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments to compare, by name: all except effects and those equal to their default."""
    bound = signature.bind(*args, **kwargs).arguments
    return {
        name: value
        for name, value in bound.items()
        if not isinstance(value, Effect) and not _is_default(value, signature.parameters[name].default)
    }


def _is_default(value: Any, default: Any) -> bool:
    if default is inspect.Parameter.empty or value is default:
        return value is default
    try:
        return encode_argument(value) == encode_argument(default)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False


def _plain(value: Any) -> Any:
    """Convert a value that msgspec cannot encode into one that it can."""
    from .projections import Projection, scope_of  # here, because projections import events, which import this module

    if isinstance(value, Projection):
        return scope_of(value)
    if is_pydantic(type(value)):
        return value.model_dump()
    raise TypeError(f"msgspec cannot encode {type(value).__name__}")


encode_argument: Final = msgspec.msgpack.Encoder(enc_hook=_plain, order="sorted").encode


def name_of(function: Callable[..., Any]) -> str:
    """The full name of a function. The same whether its module is imported or run as a program."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else Path(file).stem if file is not None else module
    return f"{module}.{function.__qualname__}"
