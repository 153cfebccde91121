-- The tables of a Fencepost event store in one schema of a PostgreSQL database, and their constraints.
--
-- The files in this folder are written for the schema `fencepost`; install.py substitutes the name of another schema.
-- Every name is qualified, so nothing depends on the settings of a session.
--
-- PostgreSQL plans a query well only if its order and its bounds are constants in its text. So the queries for both
-- directions, and for each of the tag indexes, are spelled out. One generic plan must suit every tag and every size of
-- the log, so the functions that clients call exclude plans that depend on statistics. 1179537987 is the first key of
-- every advisory lock of Fencepost: "FNRC" in ASCII.
--
-- The log is the table `event`. An append assigns positions under one advisory lock, which it holds until its commit has
-- finished. Therefore positions have no gaps, they are in commit order, and a snapshot that contains position p contains
-- everything below p.
--
-- All writes go through `append_batch` and `append_one`. A role that may execute them needs no INSERT privilege, so these
-- functions do not trust their caller. They compute or check positions and index entries. The constraints of the tables
-- enforce the limits of an event, for COPY and restored dumps as well. A caller that passes a wrong `plain`, `oldest`,
-- `ids` or `sees_batch` loses the checks of its own append, and nothing else.

CREATE SCHEMA IF NOT EXISTS fencepost;


-- One row: the version of this schema, and a sample of the hash under which tags are indexed. Opening a store fails if
-- the library does not know the version, or if the sample shows that the store was dumped on a machine whose hash
-- function differs.
CREATE TABLE fencepost.store (
    version    integer     NOT NULL,
    hash       bigint      NOT NULL DEFAULT hashtextextended('fencepost', 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    single     boolean     NOT NULL DEFAULT true UNIQUE CHECK (single)
);
INSERT INTO fencepost.store (version) VALUES (1);


-- The log. Columns of fixed width come first, because PostgreSQL finds them without decoding the columns before them.
--
-- The indexes contain 64-bit hashes, which are short and have one width: the hash of the type, and the hash of each of
-- the first four tags. The hashes are stored in the indexes only; in the row or in a separate table they would take
-- another 10 to 20 % of the space. Every search compares the type and tags of the row itself, so a hash collision costs
-- one row lookup and never changes a result.
CREATE TABLE fencepost.event (
    position    bigint      NOT NULL CONSTRAINT event_position PRIMARY KEY,
    recorded_at timestamptz NOT NULL,
    id          uuid,
    type        text        NOT NULL COLLATE "C",
    tags        text[]      NOT NULL,
    data        bytea       NOT NULL,
    metadata    json
);
CREATE UNIQUE INDEX event_id ON fencepost.event (id) WHERE id IS NOT NULL;
CREATE INDEX event_type ON fencepost.event (hashtextextended(type, 0), position);
CREATE INDEX event_tag1 ON fencepost.event (hashtextextended(tags[1], 0), position) WHERE tags[1] IS NOT NULL;
CREATE INDEX event_tag2 ON fencepost.event (hashtextextended(tags[2], 0), position) WHERE tags[2] IS NOT NULL;
CREATE INDEX event_tag3 ON fencepost.event (hashtextextended(tags[3], 0), position) WHERE tags[3] IS NOT NULL;
CREATE INDEX event_tag4 ON fencepost.event (hashtextextended(tags[4], 0), position) WHERE tags[4] IS NOT NULL;

-- A vacuum after inserts marks pages as visible to all, which allows scans that read the index alone.
ALTER TABLE fencepost.event SET (autovacuum_vacuum_insert_scale_factor = 0.05);


-- Whether an event is within the limits of fencepost.model and in the form that readers expect. If it is not, the function
-- raises an error that names the field. Tags must be sorted, which rules out duplicates.
--
-- This is a function because PostgreSQL parses the text of a constraint's expression again in each statement: the same
-- checks, written as an expression, took four times as long.
CREATE FUNCTION fencepost.is_event(
    "position" bigint, type text, tags text[], data bytea, metadata json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    tag      text;
    previous text := '';
BEGIN
    IF ("position" > 0 AND octet_length(type) BETWEEN 1 AND 1024 AND octet_length(data) <= 1048576
        AND cardinality(tags) <= 20
        AND coalesce(array_ndims(tags) = 1 AND array_lower(tags, 1) = 1, cardinality(tags) = 0)) IS NOT TRUE THEN
        RAISE check_violation USING DETAIL = format('The event is at position %s.', "position"), MESSAGE = CASE
            WHEN "position" <= 0 THEN 'position: the first one is 1'
            WHEN octet_length(type) NOT BETWEEN 1 AND 1024
            THEN format('type: %s bytes of UTF-8, from 1 to 1024 are allowed', octet_length(type))
            WHEN octet_length(data) > 1048576
            THEN format('data: %s bytes, the limit is 1048576', octet_length(data))
            WHEN cardinality(tags) > 20
            THEN format('tags: %s tags, the limit is 20', cardinality(tags))
            ELSE 'tags: an array of one dimension with the lower bound 1 is needed' END;
    END IF;
    FOREACH tag IN ARRAY tags LOOP
        IF (octet_length(tag) <= 1024 AND tag > previous COLLATE "C") IS NOT TRUE THEN
            RAISE check_violation USING DETAIL = format('The event is at position %s.', "position"), MESSAGE = CASE
                WHEN tag IS NULL THEN 'tags: NULL is not a tag'
                WHEN octet_length(tag) BETWEEN 1 AND 1024
                THEN 'tags: they must be in the order of their bytes, each of them once'
                ELSE format('tags: %s bytes of UTF-8, from 1 to 1024 are allowed', octet_length(tag)) END;
        END IF;
        previous := tag;
    END LOOP;
    RETURN metadata IS NULL OR fencepost.is_metadata("position", metadata);
END $$;
-- Whether metadata is a JSON object of strings in which each name occurs once. The only accepted form is the one that
-- Fencepost writes: no white space, and one spelling for each character. So two names are equal exactly if their texts
-- are equal, and no text contains an unpaired surrogate, which PostgreSQL accepts and readers cannot decode. The type
-- `json` has checked the rest of the syntax, so the regular expression need not be strict about commas.
--
-- `jsonb` keeps each name once, and its text has a space after each colon and each comma. If there are n names, the text
-- of the `jsonb` value is therefore 2n - 1 characters longer than a text without duplicates. But `jsonb` cannot hold
-- U+0000, which metadata may contain; then the function compares the names one by one. The common case is decided in a
-- single expression, because PL/pgSQL prepares each expression again in each transaction.
CREATE FUNCTION fencepost.is_metadata("position" bigint, metadata json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wrong text;
BEGIN
    IF octet_length(metadata::text) <= 16384 AND metadata::text ~ $re$(?x)
            ^[{](?: "(?: [^"\\] | \\["\\bfnrt] | \\u00(?: 0[0-7bef] | 1[0-9a-f] ) )*"
                  : "(?: [^"\\] | \\["\\bfnrt] | \\u00(?: 0[0-7bef] | 1[0-9a-f] ) )*" ,? )*[}]$ $re$ THEN
        IF (CASE WHEN strpos(metadata::text, $re$\u0000$re$) = 0 AND metadata::text <> '{}' THEN
               length(metadata::text) + 2 * jsonb_array_length(jsonb_path_query_array(metadata::jsonb, '$.keyvalue()'))
               = length(metadata::jsonb::text) + 1 END) THEN
            RETURN true;
        ELSIF (SELECT count(*) = count(DISTINCT m[1])
               FROM regexp_matches(metadata::text, $re$("(?:[^"\\]|\\.)*"):"(?:[^"\\]|\\.)*"$re$, 'g') AS m) THEN
            RETURN true;
        END IF;
        wrong := 'a name is there twice';
    ELSIF octet_length(metadata::text) > 16384 THEN
        wrong := format('%s bytes as JSON, the limit is 16384', octet_length(metadata::text));
    ELSE
        wrong := 'a JSON object of strings is needed, without white space or escapes that JSON does not require';
    END IF;
    RAISE check_violation USING
        DETAIL = format('The event is at position %s.', "position"), MESSAGE = 'metadata: ' || wrong;
END $$;


ALTER TABLE fencepost.event ADD CONSTRAINT event_valid
    CHECK (fencepost.is_event(position, type, tags, data, metadata));


-- The hashes of the fifth and all further tags of each event.
CREATE TABLE fencepost.more_tags (
    tag      bigint NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT more_tags_tag PRIMARY KEY (tag, position)
);


-- A trigger fills this table, so that the tags are indexed no matter how an event was stored.
CREATE FUNCTION fencepost.store_more_tags() RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencepost.more_tags (tag, position)
    SELECT hashtextextended(more.tag, 0), NEW.position FROM unnest(NEW.tags[5:]) AS more (tag)
    ON CONFLICT DO NOTHING;  -- two tags may have the same hash
    RETURN NULL;
END $$;
CREATE TRIGGER event_more_tags AFTER INSERT ON fencepost.event
    FOR EACH ROW WHEN (NEW.tags[5] IS NOT NULL) EXECUTE FUNCTION fencepost.store_more_tags();


-- The positions of each tag, from all five indexes. A position occurs twice if two tags of its event have the same hash.
CREATE VIEW fencepost.tag_posting AS
    SELECT hashtextextended(tags[1], 0) AS tag, position FROM fencepost.event WHERE tags[1] IS NOT NULL
    UNION ALL SELECT hashtextextended(tags[2], 0), position FROM fencepost.event WHERE tags[2] IS NOT NULL
    UNION ALL SELECT hashtextextended(tags[3], 0), position FROM fencepost.event WHERE tags[3] IS NOT NULL
    UNION ALL SELECT hashtextextended(tags[4], 0), position FROM fencepost.event WHERE tags[4] IS NOT NULL
    UNION ALL SELECT tag, position FROM fencepost.more_tags;


-- Records: named values beside the log. Each change of a record adds one to its revision. The name of a record begins with
-- records/, that of a checkpoint with checkpoints/; the value of a checkpoint is its position in decimal digits. The row
-- `deleted` has the highest revision that a deleted record had. A new record begins above it, so that an expected
-- revision which was seen before a deletion is never valid again.
CREATE TABLE fencepost.record (
    name     text   NOT NULL COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    value    bytea  NOT NULL,
    CONSTRAINT record_valid CHECK (
        revision > 0 AND octet_length(value) <= 65536 AND (
            name = 'deleted'
            OR starts_with(name, 'records/') AND octet_length(name) BETWEEN 9 AND 1032
            OR starts_with(name, 'checkpoints/') AND octet_length(name) BETWEEN 13 AND 1036))
);
