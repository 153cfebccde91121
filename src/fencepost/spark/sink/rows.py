"""From the rows of a DataFrame to events that a store accepts.

A task turns every row into an event before it stages the row. So a row that cannot be stored fails its task, with its
number and the problem, before any row is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ... import AppendCondition, Event
from ...errors import InvalidInput

GIVEN_BY_THE_STORE: Final = ("position", "recorded_at")

STAGED: Final = pa.schema(
    [
        ("type", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("data", pa.binary()),
        ("id", pa.string()),
        ("metadata", pa.map_(pa.string(), pa.string())),
        ("condition", pa.string()),
    ]
)
# The types of the columns of a DataFrame, as Spark names them.
TYPES: Final = {field.name: [field.dataType.simpleString()] for field in from_arrow_schema(STAGED)}
TYPES["data"].append("string")


class Row(NamedTuple):
    event: Event
    condition: AppendCondition | None


def check_columns(schema: StructType) -> None:
    """Refuse a DataFrame whose columns are not those of events."""
    for field in schema.fields:
        if field.name in GIVEN_BY_THE_STORE:
            raise InvalidInput(f"column {field.name!r}", "the store assigns it; drop the column")
        types = TYPES.get(field.name)
        if types is None:
            raise InvalidInput(f"column {field.name!r}", f"events have no such column; they have {', '.join(TYPES)}")
        given = field.dataType.simpleString()
        if given not in types:
            raise InvalidInput(f"column {field.name!r}", f"{' or '.join(types)} is needed, not {given}")
    if "type" not in schema.fieldNames():
        raise InvalidInput("column 'type'", "missing; every event has a type")


def staged(batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
    """The batch with the columns of `STAGED`; raises `InvalidInput` for a row that is not an event."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in STAGED
    ]
    made = pa.RecordBatch.from_arrays(columns, schema=STAGED)
    for _ in rows_of(made, before):
        pass
    return made


def rows_of(batch: pa.RecordBatch, before: int = 0) -> Iterator[Row]:
    """The rows of a staged batch; `before` is how many rows of the partition came before it."""
    columns = [batch.column(name).to_pylist() for name in STAGED.names]
    rows = enumerate(zip(*columns, strict=True), start=before + 1)
    for number, (type, tags, data, id, metadata, condition) in rows:
        try:
            if type is None:
                raise InvalidInput("type", "null; every event has a type")
            event = Event(type, data=data or b"", tags=tags or (), id=_id(id), metadata=dict(metadata or ()))
            yield Row(event, None if condition is None else AppendCondition.from_json(condition))
        except InvalidInput as error:
            raise InvalidInput(f"row {number} of its partition, column {error.field!r}", error.problem) from None


def _id(text: str | None) -> UUID | None:
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidInput("id", f"a UUID is needed, not {text!r:.80}") from None
