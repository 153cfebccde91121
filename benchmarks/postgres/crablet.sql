-- The design of crablet, written for this comparison: one function that checks and then inserts, tags in an
-- array under a GIN index, positions from a sequence, and only what is older than every running transaction
-- counts as committed.
CREATE SCHEMA crablet;

CREATE TABLE crablet.events (
    position       bigserial   PRIMARY KEY,
    transaction_id xid8        NOT NULL DEFAULT pg_current_xact_id(),
    type           text        NOT NULL,
    tags           text[]      NOT NULL,
    data           bytea       NOT NULL,
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX events_tags ON crablet.events USING gin (tags);
CREATE INDEX events_type ON crablet.events (type, position);

CREATE FUNCTION crablet.append(new_type text, new_tags text[], new_data bytea) RETURNS bigint
LANGUAGE sql AS $$
    INSERT INTO crablet.events (type, tags, data) VALUES (new_type, new_tags, new_data) RETURNING position;
$$;

CREATE FUNCTION crablet.append_if(
    new_type text, new_tags text[], new_data bytea, types text[], required text[], after bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    placed bigint;
BEGIN
    IF EXISTS (
        SELECT FROM crablet.events e
        WHERE e.tags @> required AND e.type = ANY (types) AND e.position > after
          AND e.transaction_id < pg_snapshot_xmin(pg_current_snapshot())) THEN
        RETURN NULL;
    END IF;
    INSERT INTO crablet.events (type, tags, data) VALUES (new_type, new_tags, new_data) RETURNING position INTO placed;
    RETURN placed;
END $$;
