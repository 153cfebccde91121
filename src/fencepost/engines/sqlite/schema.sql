-- Format 3 of a Fencepost file. docs/reference/sqlite-format.md explains it.

-- The log. Rows are inserted with the next position, never changed, never deleted.
CREATE TABLE events (
    position    INTEGER PRIMARY KEY,
    type        TEXT    NOT NULL,
    tags        TEXT    NOT NULL,  -- a sorted JSON array of strings
    data        BLOB    NOT NULL,
    recorded_at INTEGER NOT NULL,  -- microseconds since 1970-01-01 UTC
    id          BLOB,              -- 16 bytes of UUID, or NULL
    metadata    TEXT               -- a JSON object of strings with sorted names, or NULL
) STRICT;

-- Types have numbers so that a posting is short.
CREATE TABLE types (
    number INTEGER PRIMARY KEY,
    type   TEXT NOT NULL UNIQUE
) STRICT;

-- The index: which events have a term. A term is a tag (TEXT), an id (BLOB), or the empty
-- string, which every event has. Events above the last generation are not in here yet.
CREATE TABLE postings (
    generation INTEGER NOT NULL,
    term       ANY     NOT NULL,
    type       INTEGER NOT NULL,
    position   INTEGER NOT NULL,
    PRIMARY KEY (generation, term, type, position)
) STRICT, WITHOUT ROWID;

-- Each generation holds the postings of a range of positions; the ready ones follow each other
-- without a gap from position 1. A building one is being merged from ready ones of its range and
-- has their postings up to the mark; a dead one has been merged and is being deleted.
CREATE TABLE generations (
    generation INTEGER PRIMARY KEY,
    state      TEXT    NOT NULL CHECK (state IN ('ready', 'building', 'dead')),
    level      INTEGER NOT NULL,
    first      INTEGER NOT NULL,
    last       INTEGER NOT NULL,
    mark_term     ANY,
    mark_type     INTEGER,
    mark_position INTEGER
) STRICT;

-- The head when a process last closed the store. A log that ends below it has lost its end.
CREATE TABLE closed (
    head INTEGER NOT NULL
) STRICT;
INSERT INTO closed VALUES (0);

-- Named values. The revision counts the changes. A name begins with records/, or with checkpoints/:
-- then the value is a position in decimal digits. The revision of the row 'deleted' is the highest
-- that a deleted record had.
CREATE TABLE records (
    name     TEXT    PRIMARY KEY,
    revision INTEGER NOT NULL,
    value    BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
