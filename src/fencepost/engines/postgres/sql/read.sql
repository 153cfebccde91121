-- Reads: one page of events for each call. These functions run with the privileges of the reader.


-- The first `most` events with after < position <= upto that match one of the items, in order. The items have the form of
-- `checks` in `append_batch`; NULL stands for all events.
CREATE OR REPLACE FUNCTION fencepost.matching(items json, after bigint, upto bigint, most integer, backwards boolean)
RETURNS SETOF fencepost.event
LANGUAGE plpgsql STABLE AS $$
BEGIN
    --@ each branch                             | order:
    --@   IF items IS NULL AND backwards THEN   | DESC;
    --@   ELSIF items IS NULL THEN              |
    {branch}
        RETURN QUERY SELECT e.* FROM fencepost.event e
        WHERE e.position > after AND e.position <= upto ORDER BY e.position {order} LIMIT most;
    --@ end
    --@ each branch            | order:
    --@   ELSIF backwards THEN | DESC;
    --@   ELSE                 |
    {branch}
        RETURN QUERY SELECT e.* FROM (
            SELECT DISTINCT m.position
            FROM json_to_recordset(items) AS i (types text[], tags text[]),
                 fencepost.matches(i.types, i.tags, after, upto, most, backwards) AS m (position)
            ORDER BY m.position {order} LIMIT most) AS m,
            LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e
        ORDER BY m.position {order};
    --@ end
    END IF;
END $$;


-- A page of a reading, together with the head: the first `most` events with after < position <= upto that match one of
-- the items, in order. There is always at least one row; if no event matches, the columns of the event are NULL.
--
-- With `by_tags`, the rows are the events of the first tag of each item, up to `most` for each item, in order, with the
-- number of the item. The type is NULL if the event does not match the item. Each item has at least one row. Most
-- subjects of decisions have few events, and then this page is the whole reading. It is one statement, because preparing
-- a statement takes longer than finding a few events.
CREATE OR REPLACE FUNCTION fencepost.page(
    items json, after bigint, upto bigint, most integer, backwards boolean, by_tags boolean)
RETURNS TABLE (
    head bigint, item bigint, "position" bigint, type text, tags text[], data bytea, recorded_at timestamptz, id uuid,
    metadata text)
LANGUAGE plpgsql STABLE
{settings}
AS $$
#variable_conflict use_column
BEGIN
    IF NOT by_tags THEN
        RETURN QUERY
        SELECT t.head, 1::bigint, e.position, e.type, e.tags, e.data, e.recorded_at, e.id, e.metadata::text
        FROM (SELECT coalesce(max(position), 0) FROM fencepost.event) AS t (head)
        LEFT JOIN LATERAL fencepost.matching(items, after, least(upto, t.head), most, backwards) AS e ON true;
    --@ each branch            | order:
    --@   ELSIF backwards THEN | DESC;
    --@   ELSE                 |
    {branch}
        RETURN QUERY
        SELECT t.head, i.n, e.position,
               CASE WHEN e.tags @> i.tags AND (cardinality(i.types) = 0 OR e.type = ANY (i.types)) THEN e.type END,
               e.tags, e.data, e.recorded_at, e.id, e.metadata::text
        FROM (SELECT coalesce(max(position), 0) FROM fencepost.event) AS t (head),
             ROWS FROM (json_to_recordset(items) AS (types text[], tags text[])) WITH ORDINALITY AS i (types, tags, n),
             LATERAL (SELECT hashtextextended(i.tags[1], 0)) AS h (hash)
        LEFT JOIN LATERAL (SELECT * FROM (
            --@ each n: 1; 2; 3; 4
            (SELECT position, recorded_at, id, type, tags, data, metadata FROM fencepost.event
             WHERE (hashtextextended(tags[{n}], 0), position) > (h.hash, after)
               AND (hashtextextended(tags[{n}], 0), position) <= (h.hash, upto)
               AND tags[{n}] IS NOT NULL
             ORDER BY hashtextextended(tags[{n}], 0) {order}, position {order} LIMIT most)
            UNION ALL
            --@ end
            (SELECT e.*
             FROM (SELECT position FROM fencepost.more_tags
                   WHERE (tag, position) > (h.hash, after) AND (tag, position) <= (h.hash, upto)
                   ORDER BY tag {order}, position {order} LIMIT most) AS m,
                  LATERAL (SELECT * FROM fencepost.event e WHERE e.position = m.position OFFSET 0) AS e)
            ) AS s ORDER BY s.position {order} LIMIT most) AS e ON true;
    --@ end
    END IF;
END $$;
