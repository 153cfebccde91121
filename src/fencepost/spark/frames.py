"""DataFrames of a log: `fencepost.spark.events`.

    events(spark, "wallet.db", lake="/data/wallet-lake")

A Python source hands over every row through a socket and cannot see which columns a query uses. Spark's own Parquet
reader does neither. So where a log is also kept as a lake, the events up to the lake's position are read from its files
by Spark itself, and only the later ones from the store. A DataFrame is one prefix of the log, from both parts: the
files and the end are fixed when it is created, and no event is in both. tests/spark/test_frames.py compares it with
`store.read()` while events are appended, exported and compacted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from hashlib import sha256
from operator import and_, or_
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from .. import Query
from ..errors import InvalidInput
from .basics import (
    TYPES,
    Options,
    Snapshot,
    Store,
    absolute_location,
    address_of,
    bounds_of,
    check_narrowed,
    full_schema,
    parse,
    place_of,
)
from .lake import export
from .lake_kind import LAKE
from .location import hadoop_url, object_url
from .scanning import snapshot

Folder: TypeAlias = str | os.PathLike[str]

POSITION: Final = "position"
NAMED_LAKE: Final = "fencepost.lake."  # how the settings begin that name the lake of a store
PATTERNS: Final = "*?[{\\"  # Spark treats a path with one of these as a pattern when it reads

# A reader that skips missing or damaged files would lose events silently, so no setting of the session may say so.
READING: Final = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "mergeSchema": "false",
    "parquet.page.verify-checksum.enabled": "true",
}


def events(
    spark: SparkSession,
    store: Store,
    *,
    query: Query | None = None,
    after: int = 0,
    up_to: int | None = None,
    columns: str | None = None,
    lake: Folder | None = None,
    refresh: bool = False,
    **options: Any,
) -> DataFrame:
    """The store's events as a DataFrame; `columns` is a schema such as "position long, type string".

    With the folder or URL of a `lake` of the same log, Spark reads the events that the lake holds from its files, and
    the later ones from the store; `refresh` exports those to the lake first. A `lake:` address is read the same way.
    Without a lake this is the same as `spark.read.format("fencepost")`, with Python values for options. The address
    may hold a password: Spark does not see it. With Spark Connect, store and lake are opened in the client.
    """
    if query is not None and not isinstance(query, Query):
        raise InvalidInput("query", f"a Query is needed, such as Query.of(types={{'Paid'}}), not {query!r:.80}")
    address, end = bounds_of(store, up_to)
    lake = chosen_lake(spark, store, lake)
    prefix: Snapshot | None = None
    if lake is not None or refresh or address.kind is LAKE or isinstance(store, Snapshot):
        prefix = prefix_of(spark, store, up_to=up_to, lake=lake, refresh=refresh)
    elif end is None and not isinstance(spark, SparkSession):
        # Spark Connect creates the source again for every action, so the end is fixed here, in the client.
        prefix = snapshot(address)
    named: dict[str, Any] = {"after": after, **options, **place_of(address)}
    if query is not None:
        named["query"] = query.to_json()
    if prefix is not None:
        end = prefix.up_to
    if end is not None:
        named["upTo"] = end
    if prefix is None or prefix.lake is None:
        reader = spark.read.format("fencepost").options(**named)
        return (reader.schema(columns) if columns is not None else reader).load()
    return _from_both(spark, prefix, named, columns)


def use_lake(spark: SparkSession, store: Store, folder: Folder | None) -> None:
    """Make this session read the store's events from the lake in the folder, as far as the lake goes.

    From then on `events`, `follow`, `fold`, `tables`, `what_if` and views need no `lake` argument for this store. None
    as the folder ends that. The session's settings hold the folder, never the address.
    """
    name = _setting(store)
    if folder is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, absolute_location(folder, "folder"))


def prefix_of(
    spark: SparkSession,
    store: Store,
    *,
    up_to: int | None = None,
    lake: Folder | None = None,
    refresh: bool = False,
) -> Snapshot:
    """The prefix that a read of the store has, with the files of the lake that it names or that `use_lake` named."""
    lake = chosen_lake(spark, store, lake)
    if refresh and lake is None:
        raise InvalidInput("refresh", "it exports to a lake, and none is named: events(..., lake=FOLDER)")
    if lake is not None and _is_pattern(absolute_location(lake, "lake")):
        raise InvalidInput("lake", f"Spark treats {PATTERNS} in a path as a pattern; rename the folder {lake}")
    if lake is not None and refresh:
        export(spark, store, os.fspath(lake), up_to=up_to)
    prefix = snapshot(store, up_to=up_to, lake=lake)
    if prefix.lake is not None and _is_pattern(prefix.lake.folder):
        return replace(prefix, lake=None)  # a `lake:` address: the Python source reads it
    return prefix


def chosen_lake(spark: SparkSession, store: Store, lake: Folder | None) -> Folder | None:
    """The lake that was given, or else the one that `use_lake` named; a snapshot says itself what is read."""
    if lake is not None or isinstance(store, Snapshot):
        return lake
    return spark.conf.get(_setting(store), None)


def lake_frame(spark: SparkSession, prefix: Snapshot, names: Sequence[str], *, after: int = 0) -> DataFrame | None:
    """The named columns of the events after `after` that the lake of the prefix holds, read by Spark itself.

    If this session cannot open the files, because it has no connector for their object store, the Python source reads
    them. None if there are no such events. The columns have the types that the files have.
    """
    assert prefix.lake is not None
    up_to = min(prefix.up_to, prefix.lake.up_to)
    files = [file for file in prefix.lake.files if file.overlaps(after, up_to)]
    if after >= up_to or not files:
        return None
    folder = native_folder(spark, prefix.lake.folder, files[-1].path, files[-1].bytes)
    if folder is None:
        source = spark.read.format("fencepost").options(store=f"lake:{prefix.lake.folder}", after=after, upTo=up_to)
        return source.schema(StructType([StructField(name, TYPES[name][0]) for name in names])).load()
    paths = [f"{folder}/{file.path}" for file in files]
    within: list[Column] = []
    if files[0].after < after:
        within.append(F.col(POSITION) > F.lit(after))
    if files[-1].up_to > up_to:
        within.append(F.col(POSITION) <= F.lit(up_to))
    read = dict.fromkeys([*names, POSITION] if within else names)
    schema = StructType([StructField(name, TYPES[name][0]) for name in read])
    frame = spark.read.schema(schema).options(**READING).parquet(*paths)
    return (frame.where(reduce(and_, within)) if within else frame).select(*names)


def native_folder(spark: SparkSession, folder: str, path: str, size: int) -> str | None:
    """The folder, or URL, as Spark's own readers name it; None if this session cannot open the file at `path` there.

    Spark opens files through Hadoop, those of an object store only if the connector for that store is on the class path
    and configured. The driver finds that out by asking Spark for the file, which has `size` bytes. If that fails for
    whatever reason, Python reads the files in the workers, with the credentials of the environment.
    tests/spark/slow/test_object_lakes_on_spark.py holds this.
    """
    url = object_url(folder, "folder")
    if url is None:
        # Named as a file of this machine, even if Spark's default file system is another one.
        return f"file://{folder}"
    named = hadoop_url(url)
    if named is None:
        return None
    try:
        # The content is not read: only its length is asked for, by the driver and by a task.
        found = spark.read.format("binaryFile").load(f"{named}/{path}").select("length").collect()
    except Exception:  # no connector, no credentials, no such file
        return None
    return named if [row["length"] for row in found] == [size] else None


def matches(query: Query) -> Column:
    """Whether a row with `type` and `tags` matches the query."""

    def item_matches(types: Sequence[str], tags: Sequence[str]) -> Column:
        terms = [F.array_contains("tags", tag) for tag in tags]
        if types:
            terms.insert(0, F.col("type").isin(list(types)))
        return reduce(and_, terms, F.lit(True)) if terms else F.lit(True)

    return reduce(or_, (item_matches(sorted(item.types), sorted(item.tags)) for item in query.items))


def _setting(store: Store) -> str:
    # Without its password: settings are shown, and the same store may be opened by several users.
    return NAMED_LAKE + sha256(str(address_of(store)).encode()).hexdigest()[:32]


def _is_pattern(folder: str) -> bool:
    return any(sign in folder for sign in PATTERNS)


def _from_both(spark: SparkSession, prefix: Snapshot, named: dict[str, Any], columns: str | None) -> DataFrame:
    """The lake's part and the store's part, with one schema."""
    assert prefix.lake is not None
    options = parse({name: str(value) for name, value in named.items()})
    if options.from_head:
        raise InvalidInput("option 'after'", "'head' is for streams; a batch read needs a position")
    schema = full_schema(options) if columns is None else spark.createDataFrame([], columns).schema
    check_narrowed(schema, options)
    past = _past(spark, prefix, options, schema)
    border = max(options.after, prefix.lake.up_to)
    if past is not None and border >= prefix.up_to:
        return past
    if options.store.kind is LAKE:  # an empty lake, or an empty range of one
        return spark.createDataFrame([], schema)
    rest = spark.read.format("fencepost").schema(schema).options(**{**named, "after": border}).load()
    return rest if past is None else past.union(rest)


def _past(spark: SparkSession, prefix: Snapshot, options: Options, schema: StructType) -> DataFrame | None:
    """The selected events of the lake, in the columns of the schema."""
    needed = list(schema.names)
    if not options.query.matches_all:
        needed += ["type", "tags"]
    if options.types is not None:
        needed += ["type"]
    if any(field.name == "data" and field.dataType != BinaryType() for field in schema.fields):
        needed += [POSITION, "type"]  # to name an event whose data cannot be decoded
    frame = lake_frame(spark, prefix, list(dict.fromkeys(needed)), after=options.after)
    if frame is None:
        return None
    if options.types is not None:
        frame = frame.where(F.col("type").isin(sorted(options.types)))
    if not options.query.matches_all:
        frame = frame.where(matches(options.query))
    return frame.select(*map(_converted, schema.fields))


def _converted(field: StructField) -> Column:
    """The column of a file as the type that the schema has."""
    column = F.col(field.name)
    if field.name == POSITION:
        return column.cast(field.dataType).alias(POSITION)
    if field.name != "data" or field.dataType == BinaryType():
        return column
    text = column.cast("string")
    problem = F.format_string(
        "column 'data': the event at position %s, of type '%s', is not UTF-8; read it with data='binary'",
        F.col(POSITION).cast("string"),
        F.col("type"),
    )
    checked = F.when(F.is_valid_utf8(text), text).otherwise(F.raise_error(problem).cast("string"))
    return (checked if field.dataType == StringType() else F.parse_json(checked)).alias("data")
