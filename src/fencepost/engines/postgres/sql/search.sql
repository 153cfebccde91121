-- Search: the positions of the events that match a query item, in order.
--
-- An item names tags and types. Each tag, and the set of types, has a *stream*: the positions of its events in order.
-- An event matches the item if it is in all of its streams. Types and tags are found by hash, so each function that
-- decides compares the type and the tags of the event as well.
--
-- Each index is asked for entries between two rows (hash, position): only a scan of that index can serve this condition.
-- If the condition were an equality of hashes, a planner that considers the tag frequent would scan the log by position,
-- and for an absent tag to its end. docs/decisions/021 describes this; tests/postgres/test_index.py and test_matching.py
-- check it.


-- The first position at or beyond `at` in the stream of a tag. The event has the tag, or one with the same hash.
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
            UNION ALL
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) <= (hash, at)
               AND (hashtextextended(tags[2], 0), position) >= (hash, 0)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0) DESC, position DESC LIMIT 1)
            UNION ALL
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) <= (hash, at)
               AND (hashtextextended(tags[3], 0), position) >= (hash, 0)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0) DESC, position DESC LIMIT 1)
            UNION ALL
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) <= (hash, at)
               AND (hashtextextended(tags[4], 0), position) >= (hash, 0)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0) DESC, position DESC LIMIT 1)
            UNION ALL
            (SELECT position FROM fencepost.more_tags
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
            UNION ALL
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) >= (hash, at)
               AND (hashtextextended(tags[2], 0), position) <= (hash, 9223372036854775807)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0), position LIMIT 1)
            UNION ALL
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) >= (hash, at)
               AND (hashtextextended(tags[3], 0), position) <= (hash, 9223372036854775807)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0), position LIMIT 1)
            UNION ALL
            (SELECT position FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) >= (hash, at)
               AND (hashtextextended(tags[4], 0), position) <= (hash, 9223372036854775807)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0), position LIMIT 1)
            UNION ALL
            (SELECT position FROM fencepost.more_tags
             WHERE (tag, position) >= (hash, at) AND (tag, position) <= (hash, 9223372036854775807)
             ORDER BY tag, position LIMIT 1)
        ) AS p;
    END IF;
    RETURN found;
END $$;


-- The next `most` events with after < position <= upto in the stream of a tag, from `at` on. `fits` says whether the
-- event has all of `tags` and, unless `types` is empty, one of `types`. An event is returned twice if two of its tags
-- have the hash of `tag`.
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
            UNION ALL
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) <= (hash, at)
               AND (hashtextextended(tags[2], 0), position) > (hash, after)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0) DESC, position DESC LIMIT most)
            UNION ALL
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) <= (hash, at)
               AND (hashtextextended(tags[3], 0), position) > (hash, after)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0) DESC, position DESC LIMIT most)
            UNION ALL
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) <= (hash, at)
               AND (hashtextextended(tags[4], 0), position) > (hash, after)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0) DESC, position DESC LIMIT most)
            UNION ALL
            (SELECT e.position, e.type, e.tags
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
            UNION ALL
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) >= (hash, at)
               AND (hashtextextended(tags[2], 0), position) <= (hash, upto)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0), position LIMIT most)
            UNION ALL
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) >= (hash, at)
               AND (hashtextextended(tags[3], 0), position) <= (hash, upto)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0), position LIMIT most)
            UNION ALL
            (SELECT position, type, tags FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) >= (hash, at)
               AND (hashtextextended(tags[4], 0), position) <= (hash, upto)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0), position LIMIT most)
            UNION ALL
            (SELECT e.position, e.type, e.tags
               FROM (SELECT position FROM fencepost.more_tags
                     WHERE (tag, position) >= (hash, at) AND (tag, position) <= (hash, upto)
                     ORDER BY tag, position LIMIT most) AS m,
                    LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
        ) AS e ORDER BY e.position LIMIT most;
    END IF;
END $$;


-- The first position at or beyond `at` in the stream of some types.
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


-- As `walk`, for the stream of some types.
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


-- The next position, from `start` on, that the streams of some tags and of a set of types have in common, or a position
-- before it. NULL if they have none.
--
-- This is a leapfrog search. Each stream in turn jumps to its first position at or beyond the farthest one found so far.
-- When all streams agree on a position, they have it in common. The work is bounded by the shortest stream, and an absent
-- tag or type ends the search at once. If two long streams hardly ever meet, scanning one of them is faster, so the
-- search stops after four rounds and returns how far it came.
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


-- The stream whose next position, from `at` on, is the farthest: an index into `tags`, or 0 for the types.
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


-- The positions with after < position <= upto that match one query item, in order: the first `most` of them, possibly
-- followed by a few more.
--
-- The function first walks along the next few events of one tag, which are often all that there are. Otherwise it leaps
-- to the next position that the streams have in common. From there it walks along the stream that is farthest ahead, in
-- blocks, and compares the events, until less than a quarter of a block matches. Then it leaps again. So it reads dense
-- matches as fast as the events of one tag, skips sparse ones, and walks once along the shortest of several streams that
-- never meet.
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
