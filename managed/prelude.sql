-- What this edition has beside the objects of the module. The module keeps an open claim in the memory
-- of the backend; here it is a row from the grant on, and the row says whose it is.
ALTER TABLE idempotency.record
    -- The transaction that wrote the row last: its number, not that of a savepoint.
    ADD COLUMN IF NOT EXISTS written_in xid8,
    -- Of that transaction's claim: o open, t open and transactional, q the same at COMMIT, r running an
    -- operation, l left open with a lease, e ended, d ended by the token of another
    -- transaction's, n none to end (idem_once), g given back. Null: the row is of another claim.
    ADD COLUMN IF NOT EXISTS open_claim "char",
    -- The row that the open claim took the place of, as text.
    ADD COLUMN IF NOT EXISTS before text;

-- The condition of the module; older files wrote it out. Each write reads its text and initializes it, so it is a
-- short call. A function in PL/pgSQL is not planned at each call.
ALTER TABLE idempotency.record
    DROP CONSTRAINT IF EXISTS record_valid, ADD CONSTRAINT record_valid CHECK (idempotency.is_record(status, lease_until));

-- Removals of records that a snapshot may not know of, in 64 parts. A transaction with a fixed snapshot
-- locks the part of its key: PostgreSQL then reports a removal that the snapshot does not see.
CREATE TABLE idempotency.removal (
    part       integer PRIMARY KEY,
    removed_in xid8,
    -- The same, without claims that a transaction has begun itself.
    forgotten_in xid8
) WITH (fillfactor = 50);
COMMENT ON TABLE idempotency.removal IS 'last removal of young records, per part of the keys';
INSERT INTO idempotency.removal SELECT generate_series(0, 63);

-- What a session must not change for itself. The owner writes it: ALTER DATABASE takes these settings from superusers alone.
CREATE TABLE idempotency.setting (
    name  text PRIMARY KEY,
    value text NOT NULL,
    CONSTRAINT setting_valid CHECK (CASE name
        WHEN 'audit_retention' THEN value ~ '^[0-9]{1,9} ?(us|ms|s|min|h|d)?$'
        WHEN 'log_audit' THEN value IN ('on', 'off')
        WHEN 'sweep_beside_calls' THEN value ~ '^[0-9]{1,9}$'
        ELSE false END)
);
SELECT pg_extension_config_dump('idempotency.setting', '');
COMMENT ON TABLE idempotency.setting IS 'settings of the owner, which no session changes for itself';

-- A policy with the settings and defaults filled in. Spans are microseconds.
CREATE TYPE idempotency.in_force AS (
    /*TYPES_IN_FORCE*/
);

-- Spans and limits of a first attempt by a plain policy.
CREATE TYPE idempotency.terms AS (
    ttl bigint, retention bigint, lease bigint, body_limit bigint, omit_large_body boolean, if_silent "char"
);

-- The arguments of idem_begin, idem_once and idem_execute, and what follows from them by the policy.
CREATE TYPE idempotency.question AS (
    function text, key text, scope text, principal text, request jsonb, method text, path text,
    exclude text[], fingerprint bytea, operation text, ttl bigint, lease bigint, wait bigint,
    first_sent timestamptz, derive bigint, without_request boolean, hold boolean,
    same_statement boolean, transactional boolean, holder text, snapshot pg_snapshot,
    once boolean,
    -- what follows
    fingerprint_of integer, excluded text[], retention bigint, memory bigint,
    own_ttl boolean
);
