"""Command ids, `once="..."`: make a decision idempotent by an id that the caller chooses.

A command id belongs to a decision: two decisions can use the same id independently. The events of the decision get the
tag `command_id:<scope>:<id>`, where the scope is the decision's name. Their metadata holds a digest of the arguments,
so that the same id with other arguments is refused instead of being answered with the result of another request.

The digest covers the arguments by name, encoded by msgspec in a fixed order. It is the same in every process, whether
arguments are passed by position or by name, and does not change when parameters with defaults are added. A projection
counts by its scope. Effects are left out, because they do not identify a request. tests/decisions/test_command_ids.py
holds this.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from ..errors import InvalidInput
from ..model import QueryItem
from ..model.limits import MAX_TAG_BYTES
from .codecs import is_pydantic
from .effects import Effect
from .errors import DefinitionError
from .idempotency import Once
from .projections import Projection, scope_of

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
    return Once(QueryItem(tags=(tag,)), tag=tag, digest=digest_of(compared, name))


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


def digest_of(arguments: Mapping[str, Any], name: str) -> str:
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
