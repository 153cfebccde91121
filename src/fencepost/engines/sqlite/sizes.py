"""Every size and threshold of the engine, each with its reason.

Modules read them as `sizes.NAME` when they need them, so that a test can make all of them small in one place:
tests/contract/test_sqlite_in_miniature.py runs the whole contract that way.
"""

from __future__ import annotations

from typing import Final

PAGE_BYTES: Final = 4_096  # a page of a file that this engine creates

# Reading.
SCAN_EVENTS: Final = 1_024  # events in a page of a scan
SCAN_APPENDS: Final = 1_024  # recorded appends in a page of a scan
UNINDEXED_EVENTS: Final = 256  # at most this many events that the tail lacks are filtered instead of added to it
SHORT_EVENTS: Final = 256  # a read of this many events is short: it takes about as long as a sync
SHORT_BYTES: Final = 1_048_576  # a read of more data is not short
SIZED_ROWS: Final = 64  # rows of a short read that are fetched before their data is added up
SHORT_READS: Final = 16  # short reads of concurrent callers that one thread does together

# Committing.
INSERT_ROWS: Final = 64  # rows in one INSERT: one statement for each row costs several times as much
TAIL_EVENTS: Final = 4_096  # a longer tail is written to disk: writing it delays commits, reading it delays opening
KEPT_BYTES: Final = 1_024  # the tail keeps events with at most this much data; larger ones are read from the file
OPTIMISTIC_TRIES: Final = 3  # then the batch takes the write lock first, so that it cannot starve
ALERT_BATCHES: Final = 16  # after a collision, this many batches look for other processes' commits before judging

# The index.
GENERATION_EVENTS: Final = 131_072  # events in a generation of level 0 before the next one begins
MERGED: Final = 8  # generations of one level that become one of the next
STEP_POSTINGS: Final = 20_000  # postings copied or deleted in one step of a merge: some ten milliseconds
MERGE_REST: Final = 3  # after a step, callers get this many times its duration before the next step
RARE: Final = 64  # a term with at most this many postings in a generation is read with one statement
FEW: Final = 16  # keys that a search asks for first, doubled each time, since most searches end soon
MANY: Final = 4_096  # keys that a search asks for at most
LEAPFROG_TERMS: Final = 64  # a query whose items of several tags name more tags than this is searched by bitmaps
WINDOW: Final = 65_536  # positions in a bitmap at most; the first one has MANY, since most searches end soon

# The write-ahead log. A log that is soon written from its beginning again stays short, and syncing pages that are
# overwritten is cheaper than syncing a file that grows.
CHECKPOINT_PAGES: Final = 1_000  # 4 MiB, copied into the file at a time
# SQLite starts the log again from its beginning only at a moment without readers. With steady readers no such moment
# comes by itself, so a log of this length is *restarted*: the writer waits for the reads that are under way.
RESTART_PAGES: Final = 4_000
RESTART_PATIENCE_S: Final = 0.1  # the writer does not wait longer for readers, such as a backup
LOG_BYTES: Final = RESTART_PAGES * PAGE_BYTES  # a longer log file is cut to this length when the log is restarted

# How often a waiting reader looks for the commits of other processes, and how often if none came for some time.
POLL_S: Final = 0.01
QUIET_POLL_S: Final = 0.015
QUIET_S: Final = 5.0
