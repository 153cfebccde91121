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
