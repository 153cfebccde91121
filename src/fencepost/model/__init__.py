"""The values that a store takes and returns: events, queries, conditions, and their limits.

Every value is immutable and is checked when it is created. So an event or a query that exists can be stored or answered
by every engine. The error for a malformed value names the field, the size of the value and the limit.

limits       how large each value may be
checks       checks one field each, and returns the checked value or raises `InvalidInput`
encodings    the stored forms of tags, metadata and times
events       `Event`, to be appended, and `SequencedEvent`, as stored
records      `Record`, and the changes that an append makes to records
queries      `Query` and its items, `AppendCondition`, the results of appends, and their recorded conditions
"""

from .checks import checked_all, checked_id, checked_name, checked_position, checked_prefix, checked_tags, checked_type
from .encodings import decode_metadata, decode_moment, decode_tags, encode_metadata, encode_moment, encode_tags
from .events import Event, SequencedEvent, event_of
from .limits import MAX_APPEND_BYTES, MAX_BUCKETS, MAX_EVENTS, MAX_ITEMS, MAX_POSITION
from .queries import (
    AppendCondition,
    Placed,
    Query,
    QueryItem,
    RecordedAppend,
    encode_conditions,
    item_of,
    query_of_items,
)
from .records import Delete, Put, Record

__all__ = [
    "MAX_APPEND_BYTES",
    "MAX_BUCKETS",
    "MAX_EVENTS",
    "MAX_ITEMS",
    "MAX_POSITION",
    "AppendCondition",
    "Delete",
    "Event",
    "Placed",
    "Put",
    "Query",
    "QueryItem",
    "Record",
    "RecordedAppend",
    "SequencedEvent",
    "checked_all",
    "checked_id",
    "checked_name",
    "checked_position",
    "checked_prefix",
    "checked_tags",
    "checked_type",
    "decode_metadata",
    "decode_moment",
    "decode_tags",
    "encode_conditions",
    "encode_metadata",
    "encode_moment",
    "encode_tags",
    "event_of",
    "item_of",
    "query_of_items",
]
