"""The seam for authors of engines and tools: everything of the kernel that other packages may use.

Programs use `fencepost`, `fencepost.aio` and `fencepost.decisions`. A package that adds an engine, or that works on
stores of any engine, needs more: the protocol of engines, verdicts, addresses, waiting that Ctrl-C can end, files that
appear complete or not at all, observers, and the checks and stored forms of values. Those names are here. The packages
`consumers`, `server`, `spark`, `tools` and `cli` import nothing else from inside the kernel: import-linter checks it.
docs/reference/engine.md describes them.
"""

from __future__ import annotations

from .buckets import matches
from .core.address import (
    FOUNDATIONDB,
    KINDS,
    MEMORY,
    POSTGRES,
    SQLITE,
    Address,
    Kind,
    Tables,
    open_engine,
    tables_at,
    without_options,
)
from .core.durable_file import durable_file, sync, write_durably
from .core.engine import (
    Capability,
    Engine,
    InThread,
    ReadStart,
    SupportsAsyncCommit,
    SupportsAsyncRead,
    SupportsBegin,
    SupportsRecordedAppends,
    SupportsRestore,
    record_pages,
)
from .core.file_tools import Problem, Report, Salvage, backup, salvage, verify
from .core.group_commit import BatchCommitted
from .core.interrupts import Waiters, Wakeup, interruptibly, pause, shielded
from .core.log_lines import configure_logs
from .core.observers import Observation, has_observers, notify, observe
from .core.record_keys import CHECKPOINTS, RECORDS, key_range
from .core.redaction import has_secret, login_of, redacted, scrubbed
from .core.restore import SeenStrings
from .core.verdicts import Append, Behind, Changed, Conflict, Failed, Overlap, Verdict
from .model import RecordedAppend, checked_name, checked_position, checked_tags, checked_type, limits
from .model.encodings import NOT_DECODABLE, decode_moment, encode_json, encode_metadata, encode_moment, encode_tags
from .model.limits import MAX_APPEND_BYTES, MAX_BUCKETS, MAX_EVENTS, MAX_ITEMS, MAX_POSITION
from .store import append_each, engine_of, recorded, restore

__all__ = [
    "CHECKPOINTS",
    "FOUNDATIONDB",
    "KINDS",
    "MAX_APPEND_BYTES",
    "MAX_BUCKETS",
    "MAX_EVENTS",
    "MAX_ITEMS",
    "MAX_POSITION",
    "MEMORY",
    "NOT_DECODABLE",
    "POSTGRES",
    "RECORDS",
    "SQLITE",
    "Address",
    "Append",
    "BatchCommitted",
    "Behind",
    "Capability",
    "Changed",
    "Conflict",
    "Engine",
    "Failed",
    "InThread",
    "Kind",
    "Observation",
    "Overlap",
    "Problem",
    "ReadStart",
    "RecordedAppend",
    "Report",
    "Salvage",
    "SeenStrings",
    "SupportsAsyncCommit",
    "SupportsAsyncRead",
    "SupportsBegin",
    "SupportsRecordedAppends",
    "SupportsRestore",
    "Tables",
    "Verdict",
    "Waiters",
    "Wakeup",
    "append_each",
    "backup",
    "checked_name",
    "checked_position",
    "checked_tags",
    "checked_type",
    "decode_moment",
    "durable_file",
    "encode_json",
    "encode_metadata",
    "encode_moment",
    "encode_tags",
    "engine_of",
    "configure_logs",
    "has_observers",
    "has_secret",
    "interruptibly",
    "key_range",
    "limits",
    "login_of",
    "matches",
    "notify",
    "observe",
    "open_engine",
    "pause",
    "record_pages",
    "recorded",
    "redacted",
    "restore",
    "salvage",
    "scrubbed",
    "shielded",
    "sync",
    "tables_at",
    "verify",
    "without_options",
    "write_durably",
]
