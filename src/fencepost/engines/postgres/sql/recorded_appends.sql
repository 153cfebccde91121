-- The conditions of appends, for stores that are opened with record_conditions. Other stores do not use this file.


-- The conditions of the append whose events are at `first` to `last`. An append that was not recorded has no row.
CREATE TABLE fencepost.append (
    last       bigint NOT NULL CONSTRAINT append_last PRIMARY KEY,
    first      bigint NOT NULL,
    conditions json   NOT NULL,  -- an array of conditions
    unless     json              -- a query
);


-- Whether a JSON value is an array of at most `most` strings of 1 to 1024 bytes each.
CREATE FUNCTION fencepost.are_strings(strings json, most integer) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN json_typeof(strings) = 'array' AND json_array_length(strings) <= most AND NOT EXISTS (
        SELECT FROM json_array_elements(strings) AS s (string)
        WHERE json_typeof(s.string) <> 'string' OR octet_length(s.string #>> '{}') NOT BETWEEN 1 AND 1024);
END $$;


-- Whether a JSON value is a query in the form that Fencepost writes, within the limits of fencepost.model.
CREATE FUNCTION fencepost.is_query(query json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN json_typeof(query) = 'object' AND (SELECT array_agg(k) FROM json_object_keys(query) AS k) = ARRAY['items']
       AND json_typeof(query -> 'items') = 'array' AND json_array_length(query -> 'items') BETWEEN 1 AND 1000
       AND NOT EXISTS (
        SELECT FROM json_array_elements(query -> 'items') AS i (item)
        WHERE (json_typeof(i.item) = 'object'
               AND (SELECT array_agg(k ORDER BY k) FROM json_object_keys(i.item) AS k) = ARRAY['tags', 'types']
               AND fencepost.are_strings(i.item -> 'types', 1000)
               AND fencepost.are_strings(i.item -> 'tags', 20)) IS NOT TRUE);
END $$;


-- Whether recorded conditions can be decoded. If they cannot, the function raises an error that names the field.
CREATE FUNCTION fencepost.is_recorded(conditions json, unless json) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF (json_typeof(conditions) = 'array' AND json_array_length(conditions) <= 100 AND NOT EXISTS (
        SELECT FROM json_array_elements(conditions) AS c (condition)
        WHERE (json_typeof(c.condition) = 'object'
               AND (SELECT array_agg(k ORDER BY k) FROM json_object_keys(c.condition) AS k)
                   = ARRAY['after', 'fail_if_events_match']
               AND fencepost.is_query(c.condition -> 'fail_if_events_match')
               AND json_typeof(c.condition -> 'after') = 'number'
               AND c.condition ->> 'after' ~ '^[0-9]{1,29}$'
               AND (c.condition ->> 'after')::numeric <= 79228162514264337593543950335) IS NOT TRUE
        )) IS NOT TRUE THEN
        RAISE check_violation USING MESSAGE =
            'conditions: a JSON array of at most 100 conditions is needed, each of them within the limits of a query';
    END IF;
    IF unless IS NOT NULL AND fencepost.is_query(unless) IS NOT TRUE THEN
        RAISE check_violation USING MESSAGE = 'unless: a query in JSON is needed, within the limits of a query';
    END IF;
    RETURN true;
END $$;
ALTER TABLE fencepost.append ADD CONSTRAINT append_valid
    CHECK (first BETWEEN 1 AND last AND fencepost.is_recorded(conditions, unless));


-- Record the conditions of appends, in the transaction in which `append_batch` has stored their events. So events and
-- conditions are stored together or not at all.
--
-- A caller may record the appends of its own transaction, each once, and no others. The appends are in the order of their
-- positions. The transaction still holds the lock of the store. So if it has stored the first and the last event of an
-- append, it has stored those between as well.
CREATE FUNCTION fencepost.record_appends(records json) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    wrong record;
BEGIN
    SELECT r.first, r.last INTO wrong FROM (
        SELECT r.first, r.last, lag(r.last, 1, a.recorded) OVER (ORDER BY r.n) AS previous
        FROM (SELECT coalesce(max(a.last), 0) FROM fencepost.append a) AS a (recorded),
             ROWS FROM (json_to_recordset(records) AS (first bigint, last bigint)) WITH ORDINALITY AS r (first, last, n)
        ) AS r
    WHERE (r.first > r.previous AND r.first <= r.last AND 2 = (
            SELECT count(*) FROM unnest(ARRAY[r.first, r.last]) AS own (position), fencepost.event e
            WHERE e.position = own.position AND e.xmin = pg_current_xact_id()::xid)) IS NOT TRUE
    LIMIT 1;
    IF FOUND THEN
        RAISE insufficient_privilege USING MESSAGE = format(
            'record_appends: positions %s to %s are not those of an append that this transaction has stored and not '
            'recorded yet', wrong.first, wrong.last);
    END IF;
    INSERT INTO fencepost.append (last, first, conditions, unless)
    SELECT r.last, r.first, r.conditions, r.unless
    FROM json_to_recordset(records) AS r (last bigint, first bigint, conditions json, unless json);
END $$;


REVOKE ALL ON FUNCTION fencepost.record_appends(json) FROM PUBLIC;
