-- A Fencepost event store in one schema of a PostgreSQL database.
--
-- This file is valid as it is and makes the store in the schema `fencepost`; `install` puts another
-- schema's name in its place. Every name is qualified, so nothing depends on a session's settings.
--
-- The log is the table `event`. Positions are given out under one advisory lock that is held until the
-- commit has ended: they are gapless, in commit order, and no snapshot holds p without everything below p.
-- All that is ever written goes through `append_batch` and `append_one`; who may execute them needs no right to insert.

CREATE SCHEMA IF NOT EXISTS fencepost;


-- One row: the version of what this file makes, and a sample of the hash under which tags are indexed. Opening
-- refuses a version that it does not know, and a dump of a machine that hashes in another way.
CREATE TABLE fencepost.store (
    version    integer     NOT NULL,
    hash       bigint      NOT NULL DEFAULT hashtextextended('fencepost', 0),
    created_at timestamptz NOT NULL DEFAULT now(),
    single     boolean     NOT NULL DEFAULT true UNIQUE CHECK (single)
);
INSERT INTO fencepost.store (version) VALUES (1);


-- The log. Columns of a fixed width come first, since they are found without walking over the others.
--
-- What is indexed is a hash, which is short and of one width: of the type, and of each of the event's first four tags.
-- The hashes are nowhere but in the indexes. In the row or in a table of postings they would take a tenth to a fifth
-- of the space. The event's own type and tags have the last word, so a collision costs a look and decides nothing.
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

-- A vacuum after inserts marks pages as visible to all, which lets the indexes answer without the table.
ALTER TABLE fencepost.event SET (autovacuum_vacuum_insert_scale_factor = 0.05);


-- The tags of an event beyond its fourth.
CREATE TABLE fencepost.more_tags (
    tag      bigint NOT NULL,
    position bigint NOT NULL,
    CONSTRAINT more_tags_tag PRIMARY KEY (tag, position)
);


-- Which positions have a tag, wherever that is indexed. A position may come twice, if two tags of an event have the
-- same hash.
CREATE VIEW fencepost.tag_posting AS
    SELECT hashtextextended(tags[1], 0) AS tag, position FROM fencepost.event WHERE tags[1] IS NOT NULL
    UNION ALL SELECT hashtextextended(tags[2], 0), position FROM fencepost.event WHERE tags[2] IS NOT NULL
    UNION ALL SELECT hashtextextended(tags[3], 0), position FROM fencepost.event WHERE tags[3] IS NOT NULL
    UNION ALL SELECT hashtextextended(tags[4], 0), position FROM fencepost.event WHERE tags[4] IS NOT NULL
    UNION ALL SELECT tag, position FROM fencepost.more_tags;


-- How far consumers have come. Their positions may be those of another store, with wider positions.
CREATE TABLE fencepost.checkpoint (
    name     text           NOT NULL COLLATE "C" PRIMARY KEY,
    position numeric(29, 0) NOT NULL
);


-- The first position at or beyond `at` whose event has the tag, or another one with the same hash.
--
-- Each of the five indexes is asked for its first entry between two rows (hash, position): no plan but that index
-- can serve this. With an equality of hashes a planner that thinks the tag frequent walks along the log instead, and
-- for a tag that is not there it walks to the end.
CREATE FUNCTION fencepost.seek(tag text, at bigint, backwards boolean) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    hash  bigint := hashtextextended(seek.tag, 0);
    found bigint;
BEGIN
    IF backwards THEN
        SELECT max(p.position) INTO found FROM (
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[1], 0), position) <= (hash, at)
               AND (hashtextextended(tags[1], 0), position) >= (hash, 0)
               AND tags[1] IS NOT NULL
             ORDER BY hashtextextended(tags[1], 0) DESC, position DESC LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) <= (hash, at)
               AND (hashtextextended(tags[2], 0), position) >= (hash, 0)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0) DESC, position DESC LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) <= (hash, at)
               AND (hashtextextended(tags[3], 0), position) >= (hash, 0)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0) DESC, position DESC LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) <= (hash, at)
               AND (hashtextextended(tags[4], 0), position) >= (hash, 0)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0) DESC, position DESC LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.more_tags
             WHERE (tag, position) <= (hash, at) AND (tag, position) >= (hash, 0)
             ORDER BY tag DESC, position DESC LIMIT 1)
        ) AS p;
    ELSE
        SELECT min(p.position) INTO found FROM (
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[1], 0), position) >= (hash, at)
               AND (hashtextextended(tags[1], 0), position) <= (hash, 9223372036854775807)
               AND tags[1] IS NOT NULL
             ORDER BY hashtextextended(tags[1], 0), position LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) >= (hash, at)
               AND (hashtextextended(tags[2], 0), position) <= (hash, 9223372036854775807)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0), position LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) >= (hash, at)
               AND (hashtextextended(tags[3], 0), position) <= (hash, 9223372036854775807)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0), position LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) >= (hash, at)
               AND (hashtextextended(tags[4], 0), position) <= (hash, 9223372036854775807)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0), position LIMIT 1)
            UNION ALL (SELECT position FROM fencepost.more_tags
             WHERE (tag, position) >= (hash, at) AND (tag, position) <= (hash, 9223372036854775807)
             ORDER BY tag, position LIMIT 1)
        ) AS p;
    END IF;
    RETURN found;
END $$;


-- The next events in `after < position <= upto`, from `at` on, that have the tag or one with its hash; and whether they
-- have all of `tags`, and one of `types` if there are any. An event comes twice if two of its tags have this hash.
CREATE FUNCTION fencepost.walk(
    tag text, tags text[], types text[], at bigint, after bigint, upto bigint, most integer, backwards boolean)
RETURNS TABLE ("position" bigint, fits boolean)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    hash     bigint  := hashtextextended(walk.tag, 0);
    any_type boolean := cardinality(walk.types) = 0;
BEGIN
    IF backwards THEN
        RETURN QUERY SELECT e.position, e.tags @> walk.tags AND (any_type OR e.type = ANY (walk.types)) FROM (
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[1], 0), position) <= (hash, at)
               AND (hashtextextended(tags[1], 0), position) > (hash, after)
               AND tags[1] IS NOT NULL
             ORDER BY hashtextextended(tags[1], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) <= (hash, at)
               AND (hashtextextended(tags[2], 0), position) > (hash, after)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) <= (hash, at)
               AND (hashtextextended(tags[3], 0), position) > (hash, after)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) <= (hash, at)
               AND (hashtextextended(tags[4], 0), position) > (hash, after)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT e.position, e.type, e.tags
               FROM (SELECT position FROM fencepost.more_tags
                     WHERE (tag, position) <= (hash, at) AND (tag, position) > (hash, after)
                     ORDER BY tag DESC, position DESC LIMIT most) AS m,
                    LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
        ) AS e ORDER BY e.position DESC LIMIT most;
    ELSE
        RETURN QUERY SELECT e.position, e.tags @> walk.tags AND (any_type OR e.type = ANY (walk.types)) FROM (
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[1], 0), position) >= (hash, at)
               AND (hashtextextended(tags[1], 0), position) <= (hash, upto)
               AND tags[1] IS NOT NULL
             ORDER BY hashtextextended(tags[1], 0), position LIMIT most)
            UNION ALL (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) >= (hash, at)
               AND (hashtextextended(tags[2], 0), position) <= (hash, upto)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0), position LIMIT most)
            UNION ALL (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) >= (hash, at)
               AND (hashtextextended(tags[3], 0), position) <= (hash, upto)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0), position LIMIT most)
            UNION ALL (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) >= (hash, at)
               AND (hashtextextended(tags[4], 0), position) <= (hash, upto)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0), position LIMIT most)
            UNION ALL (SELECT e.position, e.type, e.tags
               FROM (SELECT position FROM fencepost.more_tags
                     WHERE (tag, position) >= (hash, at) AND (tag, position) <= (hash, upto)
                     ORDER BY tag, position LIMIT most) AS m,
                    LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
        ) AS e ORDER BY e.position LIMIT most;
    END IF;
END $$;


-- The first position at or beyond `at` whose event has one of the types.
CREATE FUNCTION fencepost.seek_types(types text[], at bigint, backwards boolean) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found bigint;
BEGIN
    IF backwards THEN
        SELECT max(e.position) INTO found
        FROM unnest(types) AS t (type), LATERAL (SELECT hashtextextended(t.type COLLATE "C", 0)) AS h (hash), LATERAL (
            SELECT e.position FROM fencepost.event e
            WHERE (hashtextextended(e.type, 0), e.position) <= (h.hash, at)
              AND (hashtextextended(e.type, 0), e.position) >= (h.hash, 0)
              AND e.type = t.type
            ORDER BY hashtextextended(e.type, 0) DESC, e.position DESC LIMIT 1) AS e;
    ELSE
        SELECT min(e.position) INTO found
        FROM unnest(types) AS t (type), LATERAL (SELECT hashtextextended(t.type COLLATE "C", 0)) AS h (hash), LATERAL (
            SELECT e.position FROM fencepost.event e
            WHERE (hashtextextended(e.type, 0), e.position) >= (h.hash, at)
              AND (hashtextextended(e.type, 0), e.position) <= (h.hash, 9223372036854775807)
              AND e.type = t.type
            ORDER BY hashtextextended(e.type, 0), e.position LIMIT 1) AS e;
    END IF;
    RETURN found;
END $$;


-- As `walk`, along the events of some types.
CREATE FUNCTION fencepost.walk_types(
    types text[], tags text[], at bigint, after bigint, upto bigint, most integer, backwards boolean)
RETURNS TABLE ("position" bigint, fits boolean)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
BEGIN
    IF backwards THEN
        RETURN QUERY SELECT e.position, e.tags @> walk_types.tags
        FROM unnest(types) AS t (type), LATERAL (SELECT hashtextextended(t.type COLLATE "C", 0)) AS h (hash), LATERAL (
            SELECT e.position, e.type, e.tags FROM fencepost.event e
            WHERE (hashtextextended(e.type, 0), e.position) <= (h.hash, at)
              AND (hashtextextended(e.type, 0), e.position) > (h.hash, after)
              AND e.type = t.type
            ORDER BY hashtextextended(e.type, 0) DESC, e.position DESC LIMIT most) AS e
        ORDER BY e.position DESC LIMIT most;
    ELSE
        RETURN QUERY SELECT e.position, e.tags @> walk_types.tags
        FROM unnest(types) AS t (type), LATERAL (SELECT hashtextextended(t.type COLLATE "C", 0)) AS h (hash), LATERAL (
            SELECT e.position, e.type, e.tags FROM fencepost.event e
            WHERE (hashtextextended(e.type, 0), e.position) >= (h.hash, at)
              AND (hashtextextended(e.type, 0), e.position) <= (h.hash, upto)
              AND e.type = t.type
            ORDER BY hashtextextended(e.type, 0), e.position LIMIT most) AS e
        ORDER BY e.position LIMIT most;
    END IF;
END $$;


-- How far the streams of some tags and of a set of types can be followed without an event that is in all of them:
-- the position at which they meet, or one before that; NULL when they do not meet any more.
--
-- This is a leapfrog. Each stream in turn jumps, by a probe of its indexes, to its first position at or beyond the
-- farthest one known; when all agree they have met. The work is bounded by the shortest stream and not by the
-- hottest, and an absent tag or type ends it at once. Long streams that hardly ever meet are better walked along
-- than leaped through, so it gives up after a few rounds and says how far it came.
CREATE FUNCTION fencepost.leap(tags text[], types text[], start bigint, backwards boolean) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    streams  integer := cardinality(tags) + (cardinality(types) > 0)::integer;
    agreeing integer := 0;
    at       bigint  := start;
    found    bigint;
BEGIN
    FOR round IN 1 .. 4 LOOP
        FOR n IN 1 .. streams LOOP
            IF n <= cardinality(tags) THEN
                found := fencepost.seek(tags[n], at, backwards);
            ELSE
                found := fencepost.seek_types(types, at, backwards);
            END IF;
            agreeing := CASE WHEN found = at THEN agreeing + 1 ELSE 1 END;
            at := found;
            IF at IS NULL OR agreeing >= streams THEN
                RETURN at;
            END IF;
        END LOOP;
    END LOOP;
    RETURN at;
END $$;


-- The stream that comes again the latest, from a position on: an index into the tags, or 0 for the types.
CREATE FUNCTION fencepost.rarest(tags text[], types text[], at bigint, backwards boolean) RETURNS integer
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF cardinality(tags) = 1 AND cardinality(types) = 0 THEN
        RETURN 1;
    END IF;
    RETURN (
        SELECT s.n FROM (
            SELECT t.n::integer AS n, fencepost.seek(t.tag, at, backwards) AS next
            FROM unnest(tags) WITH ORDINALITY AS t (tag, n)
            UNION ALL SELECT 0, fencepost.seek_types(types, at, backwards) WHERE cardinality(types) > 0) AS s
        ORDER BY CASE WHEN backwards THEN -s.next ELSE s.next END DESC NULLS FIRST LIMIT 1);
END $$;


-- The positions with after < position <= upto that match one query item, in order: `most` of them, and perhaps a few
-- more.
--
-- First it looks at the next few events of one tag, which are often all that there are. Else it leaps to where the
-- item's streams meet, and from there on walks along the rarest of them in blocks, looking at the events, until a
-- block is mostly in vain. What is dense is thus read as fast as one tag, what is sparse is leaped over, and streams
-- that never meet cost one walk along the shortest.
CREATE FUNCTION fencepost.matches(
    types text[], tags text[], after bigint, upto bigint, most integer, backwards boolean) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE ROWS 10 AS $$
DECLARE
    at       bigint  := CASE WHEN backwards THEN upto ELSE after + 1 END;
    step     bigint  := CASE WHEN backwards THEN -1 ELSE 1 END;
    any_type boolean := cardinality(types) = 0;
    block    integer := CASE WHEN cardinality(tags) = 1 AND any_type THEN most ELSE 8 END;
    found    integer := 0;
    stream   integer;
    walked   integer;
    hits     bigint[];
BEGIN
    IF cardinality(tags) = 0 AND any_type THEN
        IF backwards THEN
            RETURN QUERY SELECT e.position FROM fencepost.event e
            WHERE e.position > after AND e.position <= upto ORDER BY e.position DESC LIMIT most;
        ELSE
            RETURN QUERY SELECT e.position FROM fencepost.event e
            WHERE e.position > after AND e.position <= upto ORDER BY e.position LIMIT most;
        END IF;
        RETURN;
    ELSIF cardinality(tags) = 0 THEN
        RETURN QUERY SELECT w.position
        FROM fencepost.walk_types(matches.types, matches.tags, at, after, upto, most, backwards) AS w;
        RETURN;
    END IF;
    stream := 1;
    LOOP
        LOOP
            IF stream > 0 THEN
                SELECT array_agg(DISTINCT w.position) FILTER (WHERE w.fits), count(*),
                       CASE WHEN backwards THEN min(w.position) ELSE max(w.position) END + step
                INTO hits, walked, at
                FROM fencepost.walk(tags[stream], tags, types, at, after, upto, block, backwards) AS w;
            ELSE
                SELECT array_agg(w.position) FILTER (WHERE w.fits), count(*),
                       CASE WHEN backwards THEN min(w.position) ELSE max(w.position) END + step
                INTO hits, walked, at
                FROM fencepost.walk_types(types, tags, at, after, upto, block, backwards) AS w;
            END IF;
            RETURN QUERY SELECT h.position FROM unnest(hits) AS h (position);
            found := found + coalesce(cardinality(hits), 0);
            IF found >= most OR walked < block THEN
                RETURN;
            END IF;
            EXIT WHEN coalesce(cardinality(hits), 0) * 4 < block;
            block := least(block * 4, 1024);
        END LOOP;
        at := fencepost.leap(tags, types, at, backwards);
        IF at IS NULL OR at <= after OR at > upto THEN
            RETURN;
        END IF;
        IF most = 1 AND (
            SELECT e.tags @> matches.tags AND (any_type OR e.type = ANY (matches.types))
            FROM fencepost.event e WHERE e.position = at) THEN
            RETURN NEXT at;
            RETURN;
        END IF;
        stream := fencepost.rarest(tags, types, at + step, backwards);
        block := least(block * 4, 1024);
    END LOOP;
END $$;


-- Store the events of accepted appends, and return how many there are. The events of an append come behind `head` and
-- the `before` events of the appends before it.
CREATE FUNCTION fencepost.store_events(accepted json, head bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    count bigint;
BEGIN
    INSERT INTO fencepost.event (position, recorded_at, id, type, tags, data, metadata)
    SELECT store_events.head + append.before + e.n, now.moment, e.id,
           e.type, e.tags, decode(e.data, 'base64'), e.metadata::json
    FROM (SELECT clock_timestamp()) AS now (moment),
         json_to_recordset(accepted) AS append (before bigint, events json),
         ROWS FROM (json_to_recordset(append.events) AS (id uuid, type text, tags text[], data text, metadata text))
             WITH ORDINALITY AS e (id, type, tags, data, metadata, n);
    GET DIAGNOSTICS count = ROW_COUNT;
    RETURN count;
END $$;


-- Index the tags beyond the fourth of the events above `after`.
CREATE FUNCTION fencepost.store_more_tags(after bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO fencepost.more_tags (tag, position)
    SELECT DISTINCT hashtextextended(more.tag, 0), e.position
    FROM fencepost.event e, unnest(e.tags[5:]) AS more (tag)
    WHERE e.position > after;
END $$;


-- What the ids of an append decide: how many of them are stored, from where to where, the first that is stored
-- and the last that is not, both by their place in the append.
CREATE FUNCTION fencepost.stored_ids(
    ids uuid[], OUT stored integer, OUT first bigint, OUT last bigint,
    OUT first_stored integer, OUT first_stored_position bigint, OUT last_missing integer)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    SELECT count(e.position), min(e.position), max(e.position),
           min(i.n) FILTER (WHERE e.position IS NOT NULL), max(i.n) FILTER (WHERE e.position IS NULL)
    INTO stored, first, last, first_stored, last_missing
    FROM unnest(ids) WITH ORDINALITY AS i (id, n)
    LEFT JOIN LATERAL (SELECT e.position FROM fencepost.event e WHERE e.id = i.id OFFSET 0) AS e ON true;
    SELECT e.position INTO first_stored_position FROM fencepost.event e WHERE e.id = ids[first_stored];
END $$;


-- Whether anything could stand in the way of an append of this batch: an event with one of its ids, or one with the
-- first tag of a query item that must not match. False is certain, true is to be looked at closely.
--
-- Most decisions are about tags that no event has had since, so most batches need no closer look, and for all
-- their appends this is one statement.
CREATE FUNCTION fencepost.is_doubtful(appends json) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM json_to_recordset(appends) AS a (ids uuid[], checks json)
        WHERE EXISTS (SELECT FROM fencepost.event e WHERE e.id = ANY (a.ids))
           OR EXISTS (
            SELECT FROM json_to_recordset(a.checks) AS c (after bigint, tags text[])
            WHERE cardinality(c.tags) = 0 OR EXISTS (
                SELECT FROM fencepost.tag_posting p
                WHERE (p.tag, p.position) > (hashtextextended(c.tags[1], 0), c.after)
                  AND (p.tag, p.position) <= (hashtextextended(c.tags[1], 0), 9223372036854775807))));
END $$;


-- Judge the appends of a batch in order and store what is accepted behind `head`; the new one, and their verdicts.
--
-- Everything is judged against the tables. So what was accepted is stored, all in one statement, before an
-- append that `sees_batch` is judged, and at the end.
--
-- A verdict is an object; its outcome is one of
--   placed      at first .. last
--   already     stored before, at first .. last
--   conflict    the event at `first` matches the condition with the index `detail`; it is given along unless it is large
--   overlap     the id at place `detail` is stored, at `first`; the one at place `last` is not
--   behind      the checkpoint is at `current`
CREATE FUNCTION fencepost.judge_batch(appends json, INOUT head bigint, OUT verdicts json)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    append    record;
    ids       record;
    condition integer;
    match     bigint;
    current   numeric;
    verdict   json;
    given     json[]  := '{}';
    accepted  json[]  := '{}';
    stored    bigint  := head;
    many_tags boolean := false;
BEGIN
    FOR append IN
        SELECT * FROM json_to_recordset(appends) AS a (
            count integer, events json, ids uuid[], checks json,
            checkpoint text, checkpoint_position numeric, many_tags boolean, sees_batch boolean)
    LOOP
        verdict := NULL;
        IF append.sees_batch AND head > stored THEN
            PERFORM fencepost.store_events(array_to_json(accepted), 0);
            IF many_tags THEN
                PERFORM fencepost.store_more_tags(stored);
                many_tags := false;
            END IF;
            accepted := '{}';
            stored := head;
        END IF;

        IF append.ids IS NOT NULL THEN
            ids := fencepost.stored_ids(append.ids);
            IF ids.stored = cardinality(append.ids) THEN
                verdict := json_build_object('outcome', 'already', 'first', ids.first, 'last', ids.last);
            ELSIF ids.stored > 0 THEN
                verdict := json_build_object('outcome', 'overlap', 'first', ids.first_stored_position,
                                             'last', ids.last_missing, 'detail', ids.first_stored);
            END IF;
        END IF;

        IF verdict IS NULL AND append.checks IS NOT NULL THEN
            SELECT c.condition, m.position INTO condition, match
            FROM json_to_recordset(append.checks) AS c (condition integer, after bigint, types text[], tags text[]),
                 LATERAL fencepost.matches(c.types, c.tags, c.after, head, 1, false) AS m (position)
            WHERE cardinality(c.tags) = 0 OR EXISTS (
                SELECT FROM fencepost.tag_posting p
                WHERE (p.tag, p.position) > (hashtextextended(c.tags[1], 0), c.after)
                  AND (p.tag, p.position) <= (hashtextextended(c.tags[1], 0), 9223372036854775807))
            ORDER BY c.condition, m.position LIMIT 1;
            IF condition = -1 THEN
                verdict := json_build_object('outcome', 'already', 'first', match, 'last', match);
            ELSIF condition >= 0 THEN
                verdict := fencepost.conflict(condition, match);
            END IF;
        END IF;

        IF verdict IS NULL AND append.checkpoint IS NOT NULL THEN
            current := coalesce((SELECT c.position FROM fencepost.checkpoint c WHERE c.name = append.checkpoint), 0);
            IF append.checkpoint_position <= current THEN
                verdict := json_build_object('outcome', 'behind', 'current', current::text);
            ELSE
                INSERT INTO fencepost.checkpoint AS c (name, position)
                VALUES (append.checkpoint, append.checkpoint_position)
                ON CONFLICT (name) DO UPDATE SET position = excluded.position;
            END IF;
        END IF;

        IF verdict IS NULL THEN
            IF append.count > 0 THEN
                accepted := accepted || json_build_object('before', head, 'events', append.events);
                many_tags := many_tags OR coalesce(append.many_tags, false);
            END IF;
            verdict := json_build_object(
                'outcome', 'placed', 'first', head + least(append.count, 1), 'last', head + append.count);
            head := head + append.count;
        END IF;
        given := given || verdict;
    END LOOP;

    IF head > stored THEN
        PERFORM fencepost.store_events(array_to_json(accepted), 0);
        IF many_tags THEN
            PERFORM fencepost.store_more_tags(stored);
        END IF;
    END IF;
    verdicts := array_to_json(given);
END $$;


-- The verdict that the event at `match` is in the way of a condition.
CREATE FUNCTION fencepost.conflict(condition integer, match bigint) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT json_build_object('outcome', 'conflict', 'detail', condition, 'first', match, 'event', CASE
            WHEN octet_length(e.data) <= 8192 THEN json_build_object(
                'position', e.position, 'type', e.type, 'tags', e.tags,
                'data', translate(encode(e.data, 'base64'), E'\n', ''),
                'recorded_at', (extract(epoch FROM e.recorded_at) * 1000000)::bigint,
                'id', e.id, 'metadata', e.metadata::text) END)
        FROM fencepost.event e WHERE e.position = match);
END $$;


-- Judge the appends of a batch in order, store what is accepted, and say what became of them: a number stands for the
-- position behind which all were placed, one after the other; else there is an array of verdicts.
--
-- An append is a JSON object with
--   before      how many events the appends before it have
--   count       how many events it has
--   events      their array: type, tags, data (base64), id and metadata (if any)
--   ids         all ids, if the events have them
--   checks      the query items that must not match: condition (its index, -1 for `unless`), after, types, tags
--   checkpoint, checkpoint_position
--   many_tags   whether one of its events has more than four
--   sees_batch  whether it could match, or share an id or checkpoint with, an append before it in this batch that is
--               not stored by then
-- A batch is plain if none of its appends sees the batch, has a checkpoint, or many tags. Ids, and conditions of
-- whatever is above `oldest`, are all that can stand in its way. A client may say `sees_batch` too often and `plain` too
-- rarely, never the other way round.
CREATE FUNCTION fencepost.append_batch(appends json, plain boolean, oldest bigint) RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- The plans must be good for every tag and at every size, so they are made once and without statistics.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    before  bigint;
    head    bigint;
    outcome json;
BEGIN
    -- What is done for every append is written in few statements: each costs as much as the insertion into an index.
    IF pg_is_in_recovery() OR current_setting('synchronous_commit') = 'off'
       OR current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM fencepost.prepare_transaction();
    END IF;
    PERFORM pg_advisory_xact_lock(1179537987, 'fencepost.event'::regclass::oid::integer);

    -- Each statement from here on has a snapshot of its own, taken under the lock.
    SELECT coalesce(max(e.position), 0) INTO before FROM fencepost.event e;
    IF NOT plain OR oldest < before AND fencepost.is_doubtful(appends) THEN
        SELECT judged.head, judged.verdicts INTO head, outcome
        FROM fencepost.judge_batch(appends, before) AS judged;
    ELSE
        head := before + fencepost.store_events(appends, before);
        outcome := before;
    END IF;
    IF head > before THEN
        PERFORM pg_notify('fencepost_' || 'fencepost.event'::regclass::oid, head::text);
    END IF;
    RETURN outcome;
END $$;


-- Judge and store an append of one event that has at most four tags, without a checkpoint, and say what became of it as
-- `append_batch` does. `oldest` is the lowest `after` of its checks.
--
-- A store with one caller appends little else, and then to read a batch of one event from JSON takes half as long as to
-- store it. So the event comes as it is, and if nothing was stored since `oldest` then all is done in one statement.
CREATE FUNCTION fencepost.append_one(
    id uuid, type text, tags text[], data bytea, metadata json, checks json, oldest bigint) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_variable
DECLARE
    current bigint := oldest;
    placed  bigint;
    ids     uuid[];
BEGIN
    IF pg_is_in_recovery() OR current_setting('synchronous_commit') = 'off'
       OR current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM fencepost.prepare_transaction();
    END IF;
    PERFORM pg_advisory_xact_lock(1179537987, 'fencepost.event'::regclass::oid::integer);
    LOOP
        INSERT INTO fencepost.event AS e (position, recorded_at, id, type, tags, data, metadata)
        SELECT h.head + 1, clock_timestamp(), id, type, tags, data, metadata
        FROM (SELECT coalesce(max(e.position), 0) FROM fencepost.event e) AS h (head)
        WHERE h.head <= current
          AND (id IS NULL OR NOT EXISTS (SELECT FROM fencepost.event e WHERE e.id = append_one.id))
        RETURNING e.position INTO placed;
        EXIT WHEN placed IS NOT NULL;

        ids := CASE WHEN id IS NOT NULL THEN ARRAY[id] END;
        IF fencepost.is_doubtful(json_build_array(json_build_object('ids', ids, 'checks', checks))) THEN
            RETURN fencepost.append_batch(json_build_array(json_build_object(
                'before', 0, 'count', 1, 'ids', ids, 'checks', checks, 'events', json_build_array(json_build_object(
                    'id', id, 'type', type, 'tags', tags, 'data', encode(data, 'base64'),
                    'metadata', metadata::text)))), false, 0);
        END IF;
        current := 9223372036854775807;  -- under the lock it stays true that nothing is in the way
    END LOOP;
    PERFORM pg_notify('fencepost_' || 'fencepost.event'::regclass::oid, placed::text);
    RETURN (placed - 1)::text;
END $$;


-- Refuse a transaction in which nothing can be appended, and make its commit wait for the disk.
CREATE FUNCTION fencepost.prepare_transaction() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'the server is a read-only standby';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot taken before the lock would hide what was committed while waiting for it.
        RAISE invalid_transaction_state USING MESSAGE = 'append_batch needs the isolation level read committed';
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);  -- an append is durable when it returns
END $$;


-- The events with after < position <= upto that match one of the items, `most` of them, in order. Items are as in
-- `checks` of `append_batch`; NULL stands for all events.
CREATE FUNCTION fencepost.matching(items json, after bigint, upto bigint, most integer, backwards boolean)
RETURNS SETOF fencepost.event
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF items IS NULL AND backwards THEN
        RETURN QUERY SELECT e.* FROM fencepost.event e
        WHERE e.position > after AND e.position <= upto ORDER BY e.position DESC LIMIT most;
    ELSIF items IS NULL THEN
        RETURN QUERY SELECT e.* FROM fencepost.event e
        WHERE e.position > after AND e.position <= upto ORDER BY e.position LIMIT most;
    ELSIF backwards THEN
        RETURN QUERY SELECT e.* FROM (
            SELECT DISTINCT m.position
            FROM json_to_recordset(items) AS i (types text[], tags text[]),
                 fencepost.matches(i.types, i.tags, after, upto, most, backwards) AS m (position)
            ORDER BY m.position DESC LIMIT most) AS m,
            LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e
        ORDER BY m.position DESC;
    ELSE
        RETURN QUERY SELECT e.* FROM (
            SELECT DISTINCT m.position
            FROM json_to_recordset(items) AS i (types text[], tags text[]),
                 fencepost.matches(i.types, i.tags, after, upto, most, backwards) AS m (position)
            ORDER BY m.position LIMIT most) AS m,
            LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e
        ORDER BY m.position;
    END IF;
END $$;


-- A page of a reading: the next events in `after < position <= upto` that match one of the items, `most` of them, in
-- order, beside the head. There is at least one row, if need be without an event.
--
-- With `by_tags` it is the events of the first tag of each item, `most` for each, in order, beside the number of the item.
-- An event that does not match the item has no type. For each item there is at least one row. Most things that are
-- decided about have had a few events, and then this is all that is to be read. It is one statement, since to make
-- ready for one takes longer than to find a few events.
CREATE FUNCTION fencepost.page(
    items json, after bigint, upto bigint, most integer, backwards boolean, by_tags boolean)
RETURNS TABLE (
    head bigint, item bigint, "position" bigint, type text, tags text[], data bytea, recorded_at timestamptz, id uuid,
    metadata text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    IF NOT by_tags THEN
        RETURN QUERY
        SELECT t.head, 1::bigint, e.position, e.type, e.tags, e.data, e.recorded_at, e.id, e.metadata::text
        FROM (SELECT coalesce(max(position), 0) FROM fencepost.event) AS t (head)
        LEFT JOIN LATERAL fencepost.matching(items, after, least(upto, t.head), most, backwards) AS e ON true;
    ELSIF backwards THEN
        RETURN QUERY
        SELECT t.head, i.n, e.position,
               CASE WHEN e.tags @> i.tags AND (cardinality(i.types) = 0 OR e.type = ANY (i.types)) THEN e.type END,
               e.tags, e.data, e.recorded_at, e.id, e.metadata::text
        FROM (SELECT coalesce(max(position), 0) FROM fencepost.event) AS t (head),
             ROWS FROM (json_to_recordset(items) AS (types text[], tags text[])) WITH ORDINALITY AS i (types, tags, n),
             LATERAL (SELECT hashtextextended(i.tags[1], 0)) AS h (hash)
        LEFT JOIN LATERAL (SELECT * FROM (
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[1], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[1], 0), position) <= (h.hash, upto)
               AND tags[1] IS NOT NULL
             ORDER BY hashtextextended(tags[1], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[2], 0), position) <= (h.hash, upto)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[3], 0), position) <= (h.hash, upto)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[4], 0), position) <= (h.hash, upto)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0) DESC, position DESC LIMIT most)
            UNION ALL (SELECT e.*
             FROM (SELECT position FROM fencepost.more_tags
                   WHERE (tag, position) > (h.hash, after) AND (tag, position) <= (h.hash, upto)
                   ORDER BY tag DESC, position DESC LIMIT most) AS m,
                  LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
            ) AS s ORDER BY s.position DESC LIMIT most) AS e ON true;
    ELSE
        RETURN QUERY
        SELECT t.head, i.n, e.position,
               CASE WHEN e.tags @> i.tags AND (cardinality(i.types) = 0 OR e.type = ANY (i.types)) THEN e.type END,
               e.tags, e.data, e.recorded_at, e.id, e.metadata::text
        FROM (SELECT coalesce(max(position), 0) FROM fencepost.event) AS t (head),
             ROWS FROM (json_to_recordset(items) AS (types text[], tags text[])) WITH ORDINALITY AS i (types, tags, n),
             LATERAL (SELECT hashtextextended(i.tags[1], 0)) AS h (hash)
        LEFT JOIN LATERAL (SELECT * FROM (
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[1], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[1], 0), position) <= (h.hash, upto)
               AND tags[1] IS NOT NULL
             ORDER BY hashtextextended(tags[1], 0), position LIMIT most)
            UNION ALL (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[2], 0), position) <= (h.hash, upto)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0), position LIMIT most)
            UNION ALL (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[3], 0), position) <= (h.hash, upto)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0), position LIMIT most)
            UNION ALL (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[4], 0), position) <= (h.hash, upto)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0), position LIMIT most)
            UNION ALL (SELECT e.*
             FROM (SELECT position FROM fencepost.more_tags
                   WHERE (tag, position) > (h.hash, after) AND (tag, position) <= (h.hash, upto)
                   ORDER BY tag, position LIMIT most) AS m,
                  LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
            ) AS s ORDER BY s.position LIMIT most) AS e ON true;
    END IF;
END $$;


-- Nobody may use what is here unless it is granted. The functions inside run with the rights of `append_batch`,
-- or, in reading, with those of the reader.
REVOKE ALL ON FUNCTION fencepost.append_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.append_one FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.judge_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.store_events FROM PUBLIC;

-- What appends were conditional on, for stores that are opened with record_conditions. Others never touch this.


-- The conditions of the append whose events are `first` to `last`; an append that was not recorded has no row.
CREATE TABLE fencepost.append (
    last       bigint NOT NULL CONSTRAINT append_last PRIMARY KEY,
    first      bigint NOT NULL,
    conditions json   NOT NULL,  -- an array of conditions
    unless     json              -- a query
);


-- Keep what appends were conditional on. Called in the transaction that `append_batch` has stored their events in, so
-- neither is there without the other.
CREATE FUNCTION fencepost.record_appends(records json) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO fencepost.append (last, first, conditions, unless)
    SELECT r.last, r.first, r.conditions, r.unless
    FROM json_to_recordset(records) AS r (last bigint, first bigint, conditions json, unless json);
END $$;


REVOKE ALL ON FUNCTION fencepost.record_appends(json) FROM PUBLIC;
