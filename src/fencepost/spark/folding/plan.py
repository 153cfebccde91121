"""What is folded by which keys into which columns: checked on the driver, then pickled into tasks.

A plan also says which columns the rows have that are shuffled by key: the key, `POSITION`, type, data, and `details`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ...decisions import DefinitionError, Projection
from ...decisions.inspection import alternatives
from ...errors import InvalidInput
from ..basics import Shipped, shipped
from .states import state_schema, type_of

OnError: TypeAlias = Literal["fail", "skip", "column"]

POSITION: Final = "position"
UPTO: Final = "up_to"
ERROR: Final = "error"
STATE: Final = "state"
# Of a history: the positions between which a row is the state of its key, and the times of their events.
VALID_FROM: Final = "valid_from"
VALID_TO: Final = "valid_to"
VALID_FROM_TIME: Final = "valid_from_time"
VALID_TO_TIME: Final = "valid_to_time"


@dataclass(frozen=True)
class Plan:
    """A fold, before it has a log."""

    projection: Shipped
    scope: tuple[str, ...]  # the parameters, which are also the names of the key's columns
    tags: tuple[str, ...]  # the names of their tags
    key_types: tuple[DataType, ...]
    state: StructType
    on_error: OnError
    whole: bool  # whether handlers take the stored event, or only its data
    history: bool = False  # whether a view keeps a row for each change, and not only the newest one

    @classmethod
    def of(
        cls,
        projection: type[Projection],
        by: str | Sequence[str],
        *,
        on_error: OnError = "fail",
        schema: str | StructType | None = None,
        history: bool = False,
    ) -> Plan:
        if on_error not in get_args(OnError):
            raise InvalidInput("on_error", f"one of {', '.join(get_args(OnError))} is needed, not {on_error!r:.80}")
        if history and on_error == "column":
            raise InvalidInput("on_error", "a history has no column for errors; use 'fail' or 'skip'")
        if not (isinstance(projection, type) and issubclass(projection, Projection)):
            raise DefinitionError(f"a projection class is needed, not {projection!r:.80}")
        reference = shipped(projection)
        _check_scope(projection, [by] if isinstance(by, str) else list(by))
        definition = projection.definition
        state = state_schema(projection, schema)
        plan = cls(
            projection=reference,
            scope=tuple(definition.scope),
            tags=tuple(definition.scope.values()),
            key_types=tuple(_key_type(projection, parameter) for parameter in definition.scope),
            state=state,
            on_error=on_error,
            # A history needs the times of the events as well.
            whole=history or any(handler.takes_stored or not handler.declarations for handler in definition.handlers),
            history=history,
        )
        _check_names(plan)
        return plan

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns of the shuffled rows that hold the key, as it is in the tags."""
        return tuple(f"key_{parameter}" for parameter in self.scope)

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The columns that identify a row of a view."""
        return (*self.keys, POSITION) if self.history else self.keys

    @cached_property
    def details(self) -> tuple[StructField, ...]:
        """The columns of the shuffled rows after type and data: what else the handlers need of an event."""
        if not self.whole:
            return (StructField("version", StringType()),)
        return (
            StructField("tags", ArrayType(StringType())),
            StructField("recorded_at", LongType()),
            StructField("id", StringType()),
            StructField("metadata", MapType(StringType(), StringType())),
        )

    def rows_schema(self, position: DataType) -> StructType:
        """The columns of the shuffled rows. A row without a type is a saved state, in the column `data`."""
        keys = [StructField(name, StringType()) for name in self.keys]
        event = [StructField(POSITION, position), StructField("type", StringType()), StructField("data", BinaryType())]
        return StructType([*keys, *event, *self.details])

    def folded_schema(self, position: DataType) -> StructType:
        keys = [StructField(name, type) for name, type in zip(self.scope, self.key_types, strict=True)]
        errors = [StructField(ERROR, StringType())] if self.on_error == "column" else []
        return StructType([*keys, *self.state.fields, StructField(POSITION, position), *errors])

    def saved_schema(self, position: DataType) -> StructType:
        """The columns that a view keeps: those of the fold, the key as it is in the tags, and the state."""
        keys = [StructField(name, StringType()) for name in self.keys]
        saved = [*self.folded_schema(position).fields, *keys, StructField(STATE, BinaryType())]
        if self.history:
            saved += [StructField(name, position) for name in (VALID_FROM, VALID_TO)]
            saved += [StructField(name, TimestampType()) for name in (VALID_FROM_TIME, VALID_TO_TIME)]
        return StructType(saved)

    def row_schema(self, position: DataType) -> StructType:
        """The columns of the fold without those of the key."""
        return StructType(self.folded_schema(position).fields[len(self.scope) :])


def _check_scope(projection: type[Projection], by: Sequence[str]) -> None:
    definition = projection.definition
    name = projection.__qualname__
    if not definition.handlers:
        raise DefinitionError(f"{name} handles no event; give it a method with @on")
    if not definition.scope:
        raise DefinitionError(
            f"{name} has no tag in its scope, so it has one instance: use fencepost.decisions.project"
        )
    known = set(definition.scope) | set(definition.scope.values())
    for given in by:
        if given not in known:
            raise InvalidInput("by", f"{name} is scoped by {', '.join(definition.scope)}, not by {given!r}")
    missing = [parameter for parameter, tag in definition.scope.items() if parameter not in by and tag not in by]
    if missing:
        raise InvalidInput("by", f"{name} is scoped by {', '.join(missing)} as well: by={list(definition.scope)}")
    for type, bound in [
        *definition.by_type.items(),
        *([("every other", definition.every)] if definition.every else []),
    ]:
        assert bound is not None
        if bound.scope != tuple(definition.scope):
            raise DefinitionError(
                f"{name}: {type!r} is handled in the scope {bound.scope}, so its tags do not name the "
                "instances that it concerns, and it has no key"
            )


def _check_names(plan: Plan) -> None:
    """Every column, those of a view included, needs a different name; Spark ignores case."""
    own = [POSITION, UPTO, STATE, *([ERROR] if plan.on_error == "column" else []), *plan.keys]
    own += [VALID_FROM, VALID_TO, VALID_FROM_TIME, VALID_TO_TIME] if plan.history else []
    problem = "folds and views have a column of this name; rename the parameter, and name its tag with tag('...')"
    refuse_names("parameter", plan.scope, own, problem)
    problem = "it is a column of folds or views; name the state's columns with schema="
    refuse_names("column", plan.state.names, [*own, *plan.scope], problem)


def refuse_names(kind: str, names: Iterable[str], taken: Iterable[str], problem: str) -> None:
    """Raise `InvalidInput` with the problem if one of the names is taken."""
    lowered = {name.lower() for name in taken}
    for name in names:
        if name.lower() in lowered:
            raise InvalidInput(f"{kind} {name!r}", problem)


def _key_type(projection: type[Projection], parameter: str) -> DataType:
    type = type_of(plain_hint(projection.definition.scope_types[parameter]))
    if type is None:
        raise DefinitionError(f"{projection.__qualname__}.{parameter}: no column type follows from its annotation")
    return type


def plain_hint(hint: Any) -> Any:
    """`Annotated[int, tag("n")] | None` is an int here."""
    (member,) = [member for member in alternatives(hint) if member is not type(None)] or [str]
    return plain_hint(get_args(member)[0]) if get_origin(member) is Annotated else member
