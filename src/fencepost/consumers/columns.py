"""The columns of a read model: one for each parameter and field of a projection, and how values are stored in them.

Numbers, texts and truth values are stored as such, so that a query can compare and add them. Every other type is stored
as JSON text. Whatever is stored is read back as the value that it was, since the next event is applied to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from ..decisions import DefinitionError, Projection
from ..decisions.inspection import alternatives, state_of

SQL_TYPES: Final = {int: "BIGINT", float: "DOUBLE PRECISION", bool: "BOOLEAN", str: "TEXT"}
POSITION: Final = "position"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    sql: str
    to_sql: Callable[[Any], Any]
    from_sql: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _truth(value: Any) -> Any:
    return None if value is None else bool(value)


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def column_of(name: str, hint: Any) -> Column:
    members = [member for member in alternatives(hint) if member is not NoneType]
    if len(members) == 1 and members[0] in SQL_TYPES:
        kind = members[0]
        return Column(name, SQL_TYPES[kind], _same, _truth if kind is bool else _same)
    return Column(name, "TEXT", _to_json, partial(msgspec.json.decode, type=hint))


def _from_tag(hint: Any) -> Callable[[str], Any]:
    """How the text of a tag becomes the parameter that a projection expects, such as an int."""
    (kind,) = [member for member in alternatives(hint) if member is not NoneType] or [str]
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return _same if kind is str else partial(msgspec.convert, type=kind, strict=False)


class Columns:
    """The columns of a projection class: its key, its state, and the position of the last event of the row."""

    def __init__(self, projection: type[Projection]) -> None:
        definition = projection.definition
        if not definition.scope:
            raise DefinitionError(f"{definition.name} has no parameter, so its read model would have no key")
        if POSITION in {*definition.scope, *definition.state}:
            raise DefinitionError(f"{definition.name}: {POSITION!r} is a column of every read model; rename the field")
        self.keys = tuple(definition.scope)
        self.state = [column_of(name, hint) for name, hint in definition.state.items()]
        self._projection = projection
        self._from_tags = [_from_tag(definition.scope_types.get(key, str)) for key in self.keys]
        self._names = frozenset(column.name for column in self.state)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.keys, *(column.name for column in self.state), POSITION)

    def create(self, table: str) -> str:
        keys = [f"{quoted(key)} TEXT NOT NULL" for key in self.keys]
        state = [f"{quoted(column.name)} {column.sql}" for column in self.state]
        primary = ", ".join(map(quoted, self.keys))
        inside = ", ".join([*keys, *state, f"{POSITION} BIGINT NOT NULL", f"PRIMARY KEY ({primary})"])
        return f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({inside})"

    def upsert(self, table: str) -> str:
        names = ", ".join(map(quoted, self.names))
        marks = ", ".join("%s" for _ in self.names)
        changed = [quoted(column.name) for column in self.state] + [POSITION]
        updates = ", ".join(f"{name} = excluded.{name}" for name in changed)
        keys = ", ".join(map(quoted, self.keys))
        return f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks}) ON CONFLICT ({keys}) DO UPDATE SET {updates}"

    def select(self, table: str, count: int) -> str:
        """The rows of `count` keys; 0 means all rows."""
        names = ", ".join(map(quoted, self.names))
        if count == 0:
            return f"SELECT {names} FROM {quoted(table)}"
        if len(self.keys) == 1:
            where = f"{quoted(self.keys[0])} IN ({', '.join('%s' for _ in range(count))})"
        else:
            one = " AND ".join(f"{quoted(key)} = %s" for key in self.keys)
            where = " OR ".join(f"({one})" for _ in range(count))
        return f"SELECT {names} FROM {quoted(table)} WHERE {where}"

    def row_of(self, key: tuple[str, ...], projection: Projection) -> tuple[Any, ...]:
        values = projection.__dict__
        if len(values) > len(self.keys) + len(self._names):
            undeclared = state_of(projection).keys() - self._names
            raise DefinitionError(f"{projection.definition.name}: declare the fields {sorted(undeclared)} in the class")
        state = [column.to_sql(getattr(projection, column.name)) for column in self.state]
        return (*key, *state, projection.position)

    def instance(self, key: tuple[str, ...]) -> Projection:
        """A new projection for a key, whose parts are as they are in the tags of events."""
        return self._projection(*(convert(part) for convert, part in zip(self._from_tags, key, strict=True)))

    def projection_of(self, row: Sequence[Any]) -> tuple[tuple[str, ...], Projection]:
        key = tuple(row[: len(self.keys)])
        projection = self.instance(key)
        for column, value in zip(self.state, row[len(self.keys) :], strict=False):
            projection.__dict__[column.name] = column.from_sql(value)
        projection.position = int(row[-1])
        return key, projection


def quoted(name: str) -> str:
    """The name as an SQL identifier. A percent sign would be taken for a placeholder."""
    if "%" in name or "\0" in name:
        raise DefinitionError(f"{name!r} cannot be the name of a table or column")
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
