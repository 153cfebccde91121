-- Appends: judge the appends of a batch in order and store those that are accepted, under the lock of the store.
--
-- `append_batch` and `append_one` are what clients call. Both run few statements in the common case, in which nothing
-- stands in the way of an append, because PL/pgSQL prepares every statement and expression again in each transaction.


-- Store the events of accepted appends after `head` and return their number. The caller says how many events come
-- `before` those of an append. If that is wrong, the positions are not the next ones, and nothing is stored.
CREATE FUNCTION fencepost.store_events(accepted json, head bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    stored record;
BEGIN
    WITH stored AS (
        INSERT INTO fencepost.event (position, recorded_at, id, type, tags, data, metadata)
        SELECT store_events.head + append.before + e.n, now.moment, e.id,
               e.type, e.tags, decode(e.data, 'base64'), e.metadata::json
        FROM (SELECT clock_timestamp()) AS now (moment),
             json_to_recordset(accepted) AS append (before bigint, events json),
             ROWS FROM (json_to_recordset(append.events) AS (id uuid, type text, tags text[], data text, metadata text))
                 WITH ORDINALITY AS e (id, type, tags, data, metadata, n)
        RETURNING position)
    SELECT count(*), min(s.position) AS first, max(s.position) AS last INTO stored FROM stored s;
    IF stored.count > 0 AND (stored.first <> head + 1 OR stored.last <> head + stored.count) THEN
        RAISE check_violation USING MESSAGE = format(
            'before: %s events were to be stored behind position %s, not at %s to %s',
            stored.count, head, stored.first, stored.last);
    END IF;
    RETURN stored.count;
END $$;


-- Look up the ids of an append: how many of them are stored, their lowest and highest position, the index of the first
-- id that is stored, the position of that event, and the index of the last id that is not stored.
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


-- Whether an append of this batch could be refused: an event has one of its ids, or a new event has the first tag of a
-- query item that must not match. False is certain; after true, `judge_batch` must decide.
--
-- Most decisions concern tags that no event has had since the caller read them. So this one statement settles most
-- batches.
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


-- Judge the appends of a batch in order and store those that are accepted after `head`. Returns the new head and the
-- verdicts.
--
-- Every append is judged against the tables. So before an append that `sees_batch` is judged, and at the end, the events
-- accepted so far are stored, in one statement.
--
-- A verdict is an object. Its outcome is one of
--   placed      stored at first .. last
--   already     stored earlier, at first .. last
--   conflict    the event at `first` matches the condition with index `detail`; the verdict contains a small event
--   overlap     the id with index `detail` is stored, at `first`; the id with index `last` is not
--   behind      the checkpoint is at `current` already
--   changed     the record with index `detail` is at the revision `current`, with that value; without, it does not exist
CREATE FUNCTION fencepost.judge_batch(appends json, INOUT head bigint, OUT verdicts json)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
    append    record;
    ids       record;
    condition integer;
    match     bigint;
    current   numeric;
    revisions json;
    verdict   json;
    given     json[]  := '{}';
    accepted  json[]  := '{}';
    stored    bigint  := head;
    count     integer;
BEGIN
    FOR append IN
        SELECT * FROM json_to_recordset(appends) AS a (
            events json, ids uuid[], checks json, checkpoint text, checkpoint_position numeric, records json,
            sees_batch boolean)
    LOOP
        verdict := NULL;
        IF append.sees_batch AND head > stored THEN
            PERFORM fencepost.store_events(array_to_json(accepted), stored);
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
            IF (append.checkpoint_position BETWEEN 0 AND 79228162514264337593543950335
                AND append.checkpoint_position % 1 = 0 AND octet_length(append.checkpoint) <= 1024
                AND append.checkpoint <> '') IS NOT TRUE THEN
                RAISE check_violation USING MESSAGE =
                    'checkpoint: a name of 1 to 1024 bytes and a whole number from 0 to 2^96 - 1 are needed';
            END IF;
            current := coalesce((SELECT convert_from(r.value, 'UTF8')::numeric FROM fencepost.record r
                                 WHERE r.name = 'checkpoints/' || append.checkpoint), 0);
            IF append.checkpoint_position <= current THEN
                verdict := json_build_object('outcome', 'behind', 'current', current::text);
            END IF;
        END IF;

        IF verdict IS NULL AND append.records IS NOT NULL THEN
            SELECT c.verdict, c.revisions INTO verdict, revisions FROM fencepost.change_records(append.records) AS c;
        END IF;

        IF verdict IS NULL AND append.checkpoint IS NOT NULL THEN
            INSERT INTO fencepost.record AS r (name, revision, value)
            VALUES ('checkpoints/' || append.checkpoint, 1,
                    convert_to(trunc(append.checkpoint_position)::text, 'UTF8'))
            ON CONFLICT (name) DO UPDATE SET revision = r.revision + 1, value = excluded.value;
        END IF;

        IF verdict IS NULL THEN
            count := coalesce(json_array_length(append.events), 0);
            IF count > 0 THEN
                accepted := accepted || json_build_object('before', head - stored, 'events', append.events);
            END IF;
            verdict := json_build_object(
                'outcome', 'placed', 'first', head + least(count, 1), 'last', head + count,
                'revisions', CASE WHEN append.records IS NOT NULL THEN revisions END);
            head := head + count;
        END IF;
        given := given || verdict;
    END LOOP;

    IF head > stored THEN
        PERFORM fencepost.store_events(array_to_json(accepted), stored);
    END IF;
    verdicts := array_to_json(given);
END $$;


-- Compare the records that an append changes with the revisions that it expects. If all agree, change them and return their
-- new revisions, 0 for a record that was deleted; otherwise return the verdict. A change without a value deletes.
--
-- An append names each record once. Otherwise one of the statements below fails, and nothing is stored.
CREATE FUNCTION fencepost.change_records(changes json, OUT verdict json, OUT revisions json)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    floor bigint;
BEGIN
    SELECT json_build_object('outcome', 'changed', 'detail', c.n, 'current', coalesce(r.revision::text, ''),
                             'value', coalesce(translate(encode(r.value, 'base64'), E'\n', ''), ''))
    INTO verdict
    FROM ROWS FROM (json_to_recordset(changes) AS (name text, expected bigint)) WITH ORDINALITY AS c (name, expected, n)
    LEFT JOIN fencepost.record r ON r.name = 'records/' || c.name
    WHERE coalesce(r.revision, 0) IS DISTINCT FROM c.expected
    ORDER BY c.n LIMIT 1;
    IF verdict IS NOT NULL THEN
        RETURN;
    END IF;

    INSERT INTO fencepost.record AS r (name, revision, value)
    SELECT 'deleted', max(c.expected), '' FROM json_to_recordset(changes) AS c (expected bigint, value text)
    WHERE c.value IS NULL HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET revision = excluded.revision WHERE r.revision < excluded.revision;
    DELETE FROM fencepost.record r USING json_to_recordset(changes) AS c (name text, value text)
    WHERE r.name = 'records/' || c.name AND c.value IS NULL;

    floor := coalesce((SELECT r.revision FROM fencepost.record r WHERE r.name = 'deleted'), 0);
    INSERT INTO fencepost.record AS r (name, revision, value)
    SELECT 'records/' || c.name, CASE WHEN c.expected = 0 THEN floor ELSE c.expected END + 1, decode(c.value, 'base64')
    FROM json_to_recordset(changes) AS c (name text, expected bigint, value text) WHERE c.value IS NOT NULL
    ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, value = excluded.value;

    SELECT json_agg(coalesce(r.revision, 0) ORDER BY c.n) INTO revisions
    FROM ROWS FROM (json_to_recordset(changes) AS (name text)) WITH ORDINALITY AS c (name, n)
    LEFT JOIN fencepost.record r ON r.name = 'records/' || c.name;
END $$;


-- The verdict for an append whose condition matches the event at position `match`.
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


-- For each check, the position after which the search for it can begin: the head if no event up to there matches, else the
-- position before the first event that does. A client calls this before `append_batch` for conditions that name many tags,
-- because their search may take long, and passes the positions as `after`. Under the lock, only newer events are searched.
CREATE FUNCTION fencepost.narrow_checks(checks json) RETURNS bigint[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    head bigint := (SELECT coalesce(max(e.position), 0) FROM fencepost.event e);
BEGIN
    RETURN ARRAY(
        SELECT greatest(c.after, coalesce(m.first - 1, head))
        FROM ROWS FROM (json_to_recordset(checks) AS (after bigint, types text[], tags text[]))
                 WITH ORDINALITY AS c (after, types, tags, n),
             LATERAL (SELECT min(f.position) FROM fencepost.matches(c.types, c.tags, c.after, head, 1, false)
                      AS f (position)) AS m (first)
        ORDER BY c.n);
END $$;


-- Judge the appends of a batch in order and store those that are accepted. Returns a number if all were placed, one after
-- the other, behind that position; otherwise an array of verdicts.
--
-- An append is a JSON object with
--   before      the number of events in the appends before it
--   events      an array of objects: type, tags, data (base64), and optionally id and metadata
--   ids         all ids, if the events have them
--   checks      the query items that must not match: condition (its index, -1 for `unless`), after, types, tags
--   checkpoint, checkpoint_position
--   records     the records that it changes: name, expected (a revision), value (base64), or no value to delete it
--   sees_batch  whether it could match, or share an id with, an earlier append of this batch that is not stored yet
-- A batch is plain if none of its appends sees the batch, has a checkpoint or changes a record. Then only ids and
-- conditions can cause a refusal, and conditions only through events above `oldest`. A client may set `sees_batch` more
-- often than needed and `plain` less often. If it does the opposite, its own conditions and ids are not checked, and its
-- checkpoint and records are not stored.
--
-- `patience_ms` limits the wait for the lock.
CREATE FUNCTION fencepost.append_batch(appends json, plain boolean, oldest bigint, patience_ms integer DEFAULT NULL)
RETURNS json
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    before  bigint;
    head    bigint;
    outcome json;
BEGIN
    -- The next statements run for every append. Each of them costs as much as inserting into an index.
    IF pg_is_in_recovery() OR current_setting('synchronous_commit') = 'off'
       OR current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM fencepost.prepare_transaction();
    END IF;
    IF NOT pg_try_advisory_xact_lock(1179537987, 'fencepost.event'::regclass::oid::integer) THEN
        PERFORM fencepost.wait_for_lock(patience_ms);
    END IF;

    -- From here on, each statement takes its own snapshot, under the lock.
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


-- Judge and store an append of one event without a checkpoint or records. Returns what `append_batch` returns. `oldest` is the lowest
-- `after` of its checks.
--
-- With a single caller nearly all appends are of this kind, and parsing the JSON of such a batch would take half as long
-- as storing it. So the event is passed as parameters. If nothing was stored after `oldest`, one statement does it all.
CREATE FUNCTION fencepost.append_one(
    id uuid, type text, tags text[], data bytea, metadata json, checks json, oldest bigint,
    patience_ms integer DEFAULT NULL) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off
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
    IF NOT pg_try_advisory_xact_lock(1179537987, 'fencepost.event'::regclass::oid::integer) THEN
        PERFORM fencepost.wait_for_lock(patience_ms);
    END IF;
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
                'before', 0, 'ids', ids, 'checks', checks, 'events', json_build_array(json_build_object(
                    'id', id, 'type', type, 'tags', tags, 'data', encode(data, 'base64'),
                    'metadata', metadata::text)))), false, 0);
        END IF;
        current := 9223372036854775807;  -- under the lock it stays true that nothing is in the way
    END LOOP;
    PERFORM pg_notify('fencepost_' || 'fencepost.event'::regclass::oid, placed::text);
    RETURN (placed - 1)::text;
END $$;


-- Take the lock of the store. Wait for at most `patience_ms`, or for the role's own `lock_timeout` if that is shorter.
CREATE FUNCTION fencepost.wait_for_lock(patience_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    own_ms numeric := extract(epoch FROM current_setting('lock_timeout')::interval) * 1000;
BEGIN
    IF patience_ms > 0 AND (own_ms = 0 OR own_ms > patience_ms) THEN
        PERFORM set_config('lock_timeout', patience_ms::text, true);
    END IF;
    PERFORM pg_advisory_xact_lock(1179537987, 'fencepost.event'::regclass::oid::integer);
END $$;


-- Refuse a transaction in which appends are not possible, and make its commit wait for the disk.
CREATE FUNCTION fencepost.prepare_transaction() RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE read_only_sql_transaction USING MESSAGE = 'the server is a read-only standby';
    END IF;
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- A snapshot taken before the lock would hide what was committed while waiting for the lock.
        RAISE invalid_transaction_state USING MESSAGE = 'append_batch needs the isolation level read committed';
    END IF;
    PERFORM set_config('synchronous_commit', 'on', true);  -- an append is durable when it returns
END $$;


-- Nothing may be called unless it is granted. The inner functions run with the privileges of `append_batch` or
-- `append_one`, which are those of the owner.
REVOKE ALL ON FUNCTION fencepost.append_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.append_one FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.judge_batch FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.change_records FROM PUBLIC;
REVOKE ALL ON FUNCTION fencepost.store_events FROM PUBLIC;
