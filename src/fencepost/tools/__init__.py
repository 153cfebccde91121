"""Copy a log from one store to another, check a store of any engine by reading it, and write events as JSON.

    part       cuts a log into parts that one restore can take, by events and by bytes
    log_copy   `copy_log`: resumable, and verified by reading the target again and comparing digests
    record_copy  `copy_records`: the records and checkpoints, for a copy of the log
    log_check  `check_log`: what can be checked through the interface of a store alone
    event_json  the one JSON form of an event, for the command, HTTP, NDJSON, exports and imports
    event_lines  the same form for many stored events, several times faster

Everything here works on `EventStore`, so it works for every engine, and for a store behind a server.
"""

from .event_json import (
    EventDocument,
    WirePosition,
    document_of,
    escape_controls,
    event_from_json,
    event_of,
    event_to_json,
    from_wire,
    sequenced_from_json,
    sequenced_of,
    to_wire,
)
from .event_lines import EventLines
from .log_check import Checked, check_log
from .log_copy import Copied, copy_log
from .part import PART_BYTES, PART_EVENTS, AppendsUpto, Part, log_parts, no_collections

__all__ = [
    "PART_BYTES",
    "PART_EVENTS",
    "AppendsUpto",
    "Checked",
    "Copied",
    "EventDocument",
    "EventLines",
    "WirePosition",
    "Part",
    "check_log",
    "copy_log",
    "document_of",
    "escape_controls",
    "event_from_json",
    "event_of",
    "event_to_json",
    "to_wire",
    "log_parts",
    "no_collections",
    "from_wire",
    "sequenced_from_json",
    "sequenced_of",
]
