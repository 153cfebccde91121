"""A fold before it has a log: the class, its keys, its columns; checked on the driver, then carried to the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args, get_origin

from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from ..decisions import DefinitionError, Projection
from ..decisions.hints import alternatives
from ..errors import InvalidInput
from .columns import WIDE
from .shipping import Shipped, shipped
from .states import state_schema, type_of

OnError: TypeAlias = Literal["fail", "skip", "column"]

POSITION: Final = "position"
UPTO: Final = "upto"
ERROR: Final = "error"
STATE: Final = "state"


@dataclass(frozen=True)
class Plan:
    """What is folded by which keys into which columns."""

    projection: Shipped
    scope: tuple[str, ...]  # the parameters, which are also the names of the key's columns
    tags: tuple[str, ...]  # the names of their tags
    key_types: tuple[DataType, ...]
    state: StructType
    on_error: OnError
    whole: bool  # handlers take the stored event

    @classmethod
    def of(
        cls,
        projection: type[Projection],
        by: str | Sequence[str],
        *,
        on_error: OnError = "fail",
        schema: str | StructType | None = None,
    ) -> Plan:
        if on_error not in get_args(OnError):
            raise InvalidInput("on_error", f"one of {', '.join(get_args(OnError))} is needed, not {on_error!r:.80}")
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
            whole=any(handler.takes_stored or not handler.declarations for handler in definition.handlers),
        )
        _check_names(plan)
        return plan

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """The columns of the shuffled rows that hold the key, as it stands in the tags."""
        return tuple(f"key_{parameter}" for parameter in self.scope)

    @staticmethod
    def position_type(wide: bool) -> DataType:
        return WIDE if wide else LongType()

    def folded_schema(self, wide: bool) -> StructType:
        keys = [StructField(name, type) for name, type in zip(self.scope, self.key_types, strict=True)]
        errors = [StructField(ERROR, StringType())] if self.on_error == "column" else []
        return StructType([*keys, *self.state.fields, StructField(POSITION, self.position_type(wide)), *errors])

    def saved_schema(self, wide: bool) -> StructType:
        """What a view keeps: the columns, the key as it stands in the tags, and the state to go on from."""
        keys = [StructField(name, StringType()) for name in self.keys]
        return StructType([*self.folded_schema(wide).fields, *keys, StructField(STATE, BinaryType())])


def _check_scope(projection: type[Projection], by: Sequence[str]) -> None:
    definition = projection.definition
    name = projection.__qualname__
    if not definition.handlers:
        raise DefinitionError(f"{name} handles no event; give it a method with @on")
    if not definition.scope:
        raise DefinitionError(f"{name} is scoped by no tag, so there is one of it: use fencepost.decisions.project")
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
                f"{name}: {type!r} is handled in the scope {bound.scope}, so it does not name the instances that it "
                "concerns, and no key can be told from it"
            )


def _check_names(plan: Plan) -> None:
    """Each column has a name of its own, those of a view included; to Spark, `Upto` and `upto` are the same."""
    own = [POSITION, UPTO, STATE, *([ERROR] if plan.on_error == "column" else []), *plan.keys]
    taken = {name.lower() for name in own}
    for name in plan.scope:
        if name.lower() in taken:
            raise InvalidInput(
                f"parameter {name!r}",
                "folds and views have a column of this name; name the parameter otherwise, and its tag with tag('...')",
            )
    taken.update(name.lower() for name in plan.scope)
    for name in plan.state.names:
        if name.lower() in taken:
            raise InvalidInput(
                f"column {name!r}", "it is a column of folds or views; name the state's columns with schema="
            )


def _key_type(projection: type[Projection], parameter: str) -> DataType:
    type = type_of(plain_hint(projection.definition.scope_types[parameter]))
    if type is None:
        raise DefinitionError(f"{projection.__qualname__}.{parameter}: no column type follows from its annotation")
    return type


def plain_hint(hint: Any) -> Any:
    """`Annotated[int, tag("n")] | None` is an int here."""
    (member,) = [member for member in alternatives(hint) if member is not type(None)] or [str]
    return plain_hint(get_args(member)[0]) if get_origin(member) is Annotated else member
