"""How large each value may be. The limits are the same for every engine, so an application can change its engine.

docs/decisions/005-limits.md gives the reasons. tests/unit/test_model.py holds each limit from both sides, and
tests/postgres/test_callers.py holds that postgres.sql has the same ones.
"""

from typing import Final

MAX_TYPE_BYTES: Final = 1_024  # types are index keys; this is far below the key limit of every engine
MAX_TAG_BYTES: Final = 1_024  # likewise
MAX_TAGS: Final = 20  # of one event; each tag adds an index entry, and a key on FoundationDB
MAX_DATA_BYTES: Final = 1_048_576  # larger content belongs in a blob store, with its address in the event
MAX_METADATA_BYTES: Final = 16_384  # as JSON; metadata is for ids and names, not for content
MAX_EVENTS: Final = 100_000  # in one append, which is one transaction that other appends wait for
MAX_APPEND_BYTES: Final = 67_108_864  # of data in one append, for the same reason
MAX_CONDITIONS: Final = 100  # in one append
MAX_ITEMS: Final = 1_000  # in one query
MAX_TYPES: Final = 1_000  # in one item
MAX_BUCKETS: Final = 1_000  # in one query; each bucket costs one search
MAX_CONDITION_BUCKETS: Final = 256  # in one append, for conditions and `unless` together: other appends wait
MAX_NAME_BYTES: Final = 1_024  # of a record or a checkpoint
MAX_VALUE_BYTES: Final = 65_536  # of a record; larger values belong in events, or in a blob store
MAX_RECORDS: Final = 64  # changed in one append, so that all of them fit into one request or transaction
MAX_REVISION: Final = 2**63 - 2  # of a record: one less than the largest bigint, so that 1 can be added
MAX_POSITION: Final = 2**96 - 1  # the widest positions are FoundationDB's versionstamps

HOW_BUCKETS_COUNT: Final = "an item counts once for each of its types, or once if it names none"
