-- Reads: one page of events for each call. These functions run with the privileges of the reader.


-- The first `most` events with after < position <= upto that match one of the items, in order. The items have the form of
-- `checks` in `append_batch`; NULL stands for all events.
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


-- A page of a reading, together with the head: the first `most` events with after < position <= upto that match one of
-- the items, in order. There is always at least one row; if no event matches, the columns of the event are NULL.
--
-- With `by_tags`, the rows are the events of the first tag of each item, up to `most` for each item, in order, with the
-- number of the item. The type is NULL if the event does not match the item. Each item has at least one row. Most
-- subjects of decisions have few events, and then this page is the whole reading. It is one statement, because preparing
-- a statement takes longer than finding a few events.
CREATE FUNCTION fencepost.page(
    items json, after bigint, upto bigint, most integer, backwards boolean, by_tags boolean)
RETURNS TABLE (
    head bigint, item bigint, "position" bigint, type text, tags text[], data bytea, recorded_at timestamptz, id uuid,
    metadata text)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
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
            UNION ALL
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[2], 0), position) <= (h.hash, upto)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0) DESC, position DESC LIMIT most)
            UNION ALL
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[3], 0), position) <= (h.hash, upto)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0) DESC, position DESC LIMIT most)
            UNION ALL
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[4], 0), position) <= (h.hash, upto)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0) DESC, position DESC LIMIT most)
            UNION ALL
            (SELECT e.*
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
            UNION ALL
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[2], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[2], 0), position) <= (h.hash, upto)
               AND tags[2] IS NOT NULL
             ORDER BY hashtextextended(tags[2], 0), position LIMIT most)
            UNION ALL
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[3], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[3], 0), position) <= (h.hash, upto)
               AND tags[3] IS NOT NULL
             ORDER BY hashtextextended(tags[3], 0), position LIMIT most)
            UNION ALL
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[4], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[4], 0), position) <= (h.hash, upto)
               AND tags[4] IS NOT NULL
             ORDER BY hashtextextended(tags[4], 0), position LIMIT most)
            UNION ALL
            (SELECT e.*
             FROM (SELECT position FROM fencepost.more_tags
                   WHERE (tag, position) > (h.hash, after) AND (tag, position) <= (h.hash, upto)
                   ORDER BY tag, position LIMIT most) AS m,
                  LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
            ) AS s ORDER BY s.position LIMIT most) AS e ON true;
    END IF;
END $$;
