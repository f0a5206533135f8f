-- The objects of extension "idempotency". Functions go to the schema of CREATE EXTENSION, tables
-- and views always to the schema "idempotency".
--
-- Every role may call a function unless its rights are revoked here. idem_grant grants the revoked ones
-- by the beginning of their symbol in the library: idem_operator_ to operators only, idem_administrator_
-- to administrators only, idem_staff_ to both, idem_worker_ to workers only, idem_owner_ to no role, all
-- others to every role that it is called for.

\echo Use "CREATE EXTENSION idempotency" to load this file. \quit

-- Names and operators without a schema are PostgreSQL's: pg_catalog comes first, and PostgreSQL looks up
-- neither functions nor operators in pg_temp.
SET LOCAL search_path TO pg_catalog, pg_temp;

CREATE SCHEMA idempotency;
COMMENT ON SCHEMA idempotency IS 'records and policies of the extension idempotency';

----------------------------------------------------------------------------------------------------
-- Storage
----------------------------------------------------------------------------------------------------

-- A call, because the executor reads the text of a check anew for each row that SQL writes.
CREATE FUNCTION idempotency.is_record(status "char", lease_until timestamptz) RETURNS boolean
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_is_record';
COMMENT ON FUNCTION idempotency.is_record IS 'whether a record has a known status, and a lease if it is in progress';

-- Rows are inserted once, updated a few times at most (leased claims), and deleted by age. Heartbeats
-- change no indexed column, so these updates stay HOT.
-- The key compares bytes: an upgrade of a collation's library must not reorder its index, because a
-- record that is not found is executed again.
CREATE TABLE idempotency.record (
    scope           text COLLATE "C" NOT NULL,
    principal       text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    status          "char" NOT NULL,
    if_silent       "char" NOT NULL DEFAULT 't',
    body_omitted    boolean NOT NULL DEFAULT false,
    omit_large_body boolean NOT NULL DEFAULT false,
    status_code     integer,
    attempt         integer NOT NULL,
    body_limit      integer NOT NULL DEFAULT 0,
    token           bigint NOT NULL,
    lease_us        bigint NOT NULL,
    backend_pid     integer,
    fingerprint_of  integer,
    created_at      timestamptz NOT NULL,
    claimed_at      timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL,
    retained_until  timestamptz NOT NULL,
    lease_until     timestamptz,
    next_attempt_at timestamptz,
    finished_at     timestamptz,
    backend_start   timestamptz,
    fingerprint     bytea,
    operation       text,
    headers         jsonb,
    body            bytea,
    error           text,
    reference       text,
    recovery_point  text,
    state           jsonb,
    holder          text,
    request         jsonb,
    method          text,
    path            text,
    counted         text[],
    excluded        text[],
    resolved_by     text,
    -- With the policy's encrypt: the key that encrypted the values, and the encrypted values. Their
    -- columns in plain text are null then.
    sealed_by       text,
    salt            bytea,
    sealed_fingerprint bytea,
    sealed_headers  bytea,
    sealed_body     bytea,
    sealed_error    bytea,
    sealed_reference bytea,
    sealed_recovery_point bytea,
    sealed_state    bytea,
    sealed_holder   bytea,
    sealed_request  bytea,
    sealed_method   bytea,
    sealed_path     bytea,
    -- The key first: it distinguishes rows in one comparison, while scope and principal are mostly the
    -- same. An operator who knows only the key can use the index, too.
    CONSTRAINT record_pkey PRIMARY KEY (key, scope, principal),
    CONSTRAINT record_valid CHECK (idempotency.is_record(status, lease_until))
) WITH (
    fillfactor = 90,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05,
    toast.autovacuum_vacuum_scale_factor = 0.02
);
COMMENT ON TABLE idempotency.record IS 'one row per scope, principal and key; read it through idempotency.records';
COMMENT ON COLUMN idempotency.record.status IS 'i in progress, c completed, f failed, r retryable, x exhausted, u unknown';
COMMENT ON COLUMN idempotency.record.token IS 'fencing token of the current claim';
COMMENT ON COLUMN idempotency.record.backend_pid IS 'the backend of a claim with hold: the claim lapses when that backend exits';
COMMENT ON COLUMN idempotency.record.fingerprint_of IS
    'sum of 1: has the method; 2: has the path; 4: given by the caller; 8: the key was derived from it; null: the request alone, or no fingerprint';
COMMENT ON COLUMN idempotency.record.backend_start IS 'when that backend began, because pids are reused';
COMMENT ON COLUMN idempotency.record.if_silent IS 'status after its lease: t may be taken over, u unknown, x exhausted';
COMMENT ON COLUMN idempotency.record.reference IS 'the provider''s reference of an unknown attempt';
COMMENT ON COLUMN idempotency.record.operation IS 'the function that idem_execute runs for this key';
COMMENT ON COLUMN idempotency.record.omit_large_body IS 'policy at the claim: whether a body over the limit is left out';
COMMENT ON COLUMN idempotency.record.body_limit IS 'policy at the claim: largest body in bytes';
COMMENT ON COLUMN idempotency.record.lease_us IS 'lease of the claim in microseconds';
COMMENT ON COLUMN idempotency.record.method IS 'the request''s method, where the policy stores requests';
COMMENT ON COLUMN idempotency.record.path IS 'the request''s path, where the policy stores requests';
COMMENT ON COLUMN idempotency.record.counted IS 'fields that the fingerprint covers; null: all, or the caller gave the fingerprint';
COMMENT ON COLUMN idempotency.record.excluded IS 'fields that the fingerprint leaves out; null: none, or the caller gave the fingerprint';
COMMENT ON COLUMN idempotency.record.sealed_by IS 'id of the key that encrypted values of this record';
COMMENT ON COLUMN idempotency.record.salt IS 'the key of this record is derived from this and from that key';
COMMENT ON COLUMN idempotency.record.created_at IS 'first claim';
COMMENT ON COLUMN idempotency.record.claimed_at IS 'claim of this attempt';
COMMENT ON COLUMN idempotency.record.expires_at IS 'end of the replay';
COMMENT ON COLUMN idempotency.record.retained_until IS 'end of the key''s memory';

-- Encrypted values do not compress.
ALTER TABLE idempotency.record
    ALTER COLUMN sealed_fingerprint SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_headers SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_body SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_error SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_reference SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_recovery_point SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_state SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_holder SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_request SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_method SET STORAGE EXTERNAL,
    ALTER COLUMN sealed_path SET STORAGE EXTERNAL;

-- The end of retention.
CREATE INDEX record_retained_until ON idempotency.record (retained_until);

-- Claims in progress and records to decide, oldest first. A record that is written with its result has
-- no entry. Because of this index, the end of a leased claim is not a HOT update.
CREATE INDEX record_outstanding ON idempotency.record (status, claimed_at) WHERE status = ANY ('{i,u,x}'::"char"[]);

-- Failed attempts that may be repeated, by the end of their pause: those that idem_claim_due grants. A record
-- that is written with another result has no entry. With the end of the ttl, records past it are passed over
-- without a look at the table.
CREATE INDEX record_due ON idempotency.record (scope, next_attempt_at, expires_at) WHERE status = 'r';

-- The records that each key has encrypted. A record in the clear has no entry.
CREATE INDEX record_sealed_by ON idempotency.record (sealed_by) WHERE sealed_by IS NOT NULL;

CREATE TABLE idempotency.policy (
    scope_pattern        text COLLATE "C" NOT NULL,
    ttl                  interval,
    retention            interval,
    max_ttl              interval,
    lease                interval,
    max_lease            interval,
    wait                 interval,
    max_attempts         integer,
    retry_base           interval,
    retry_cap            interval,
    retry_jitter         text,
    on_missing_key       text,
    derive_window        interval,
    principal_required   boolean,
    fingerprint_required boolean,
    store_request        boolean,
    on_lease_expiry      text,
    unknown_retry_after  interval,
    abandon_after        interval,
    on_abandon           text,
    max_body_bytes       integer,
    on_large_body        text,
    fingerprint_fields   text[],
    exclude_fields       text[],
    drop_headers         text[],
    final_errors         text[],
    error_statuses       jsonb,
    allowed_role         name,
    keep_history         boolean,
    encrypt              boolean,
    transactional_only   boolean,
    reason_required      boolean,
    max_open_claims      integer,
    since                timestamptz,
    memory_before        interval,
    dropped              boolean NOT NULL DEFAULT false,
    CONSTRAINT policy_pkey PRIMARY KEY (scope_pattern),
    CONSTRAINT policy_on_lease_expiry_known
        CHECK (on_lease_expiry = ANY ('{takeover,unknown}'::text[])),
    CONSTRAINT policy_on_large_body_known CHECK (on_large_body = ANY ('{error,omit}'::text[])),
    CONSTRAINT policy_retry_jitter_known CHECK (retry_jitter = ANY ('{full,none}'::text[])),
    CONSTRAINT policy_on_missing_key_known
        CHECK (on_missing_key = ANY ('{generate,derive,error}'::text[])),
    CONSTRAINT policy_on_abandon_known CHECK (on_abandon = ANY ('{fail,release,unknown}'::text[])),
    CONSTRAINT policy_unknown_retry_after_in_range
        CHECK (unknown_retry_after > '0'::interval
               AND unknown_retry_after <= '36525 days'::interval),
    CONSTRAINT policy_abandon_after_in_range
        CHECK (abandon_after > '0'::interval
               AND abandon_after <= '36525 days'::interval),
    CONSTRAINT policy_max_attempts_positive CHECK (max_attempts > 0),
    CONSTRAINT policy_max_open_claims_positive CHECK (max_open_claims > 0),
    CONSTRAINT policy_max_body_bytes_in_range
        CHECK (max_body_bytes >= 0 AND max_body_bytes <= 268435456),
    CONSTRAINT policy_ttl_in_range CHECK (ttl > '0'::interval AND ttl <= '36525 days'::interval),
    CONSTRAINT policy_retention_in_range
        CHECK (retention > '0'::interval
               AND retention <= '36525 days'::interval),
    CONSTRAINT policy_retention_covers_ttl CHECK (retention >= ttl),
    CONSTRAINT policy_lease_in_range
        CHECK (lease > '0'::interval AND lease <= '36525 days'::interval),
    CONSTRAINT policy_max_ttl_in_range
        CHECK (max_ttl > '0'::interval
               AND max_ttl <= '36525 days'::interval),
    CONSTRAINT policy_ttl_within_max CHECK (ttl <= max_ttl),
    CONSTRAINT policy_max_lease_in_range
        CHECK (max_lease > '0'::interval
               AND max_lease <= '36525 days'::interval),
    CONSTRAINT policy_lease_within_max CHECK (lease <= max_lease),
    CONSTRAINT policy_derive_window_in_range
        CHECK (derive_window > '0'::interval
               AND derive_window <= '36525 days'::interval),
    CONSTRAINT policy_fingerprint_fields_given CHECK (cardinality(fingerprint_fields) > 0),
    CONSTRAINT policy_error_statuses_map CHECK (jsonb_typeof(error_statuses) = 'object'),
    CONSTRAINT policy_wait_in_range CHECK (wait >= '0'::interval AND wait <= '1 day'::interval),
    CONSTRAINT policy_retry_base_in_range
        CHECK (retry_base >= '0'::interval
               AND retry_base <= '36525 days'::interval),
    CONSTRAINT policy_retry_cap_in_range
        CHECK (retry_cap >= '0'::interval
               AND retry_cap <= '36525 days'::interval),
    CONSTRAINT policy_retry_base_below_cap CHECK (retry_base <= retry_cap),
    CONSTRAINT policy_memory_before_in_range
        CHECK (memory_before > '0'::interval
               AND memory_before <= '36525 days'::interval),
    CONSTRAINT policy_past_complete
        CHECK ((since IS NULL) = (memory_before IS NULL)
               AND (since IS NOT NULL OR NOT dropped)),
    -- 255 characters of four bytes: a dump must fit whatever the encoding of the database into which
    -- it is restored.
    CONSTRAINT policy_scope_pattern_fits CHECK (octet_length(scope_pattern) <= 1020),
    CONSTRAINT policy_scope_pattern_printable CHECK (scope_pattern !~ E'[\\u0001-\\u001f\\u007f]'),
    CONSTRAINT policy_star_at_the_end CHECK (scope_pattern !~~ '%*_%')
);
COMMENT ON TABLE idempotency.policy IS 'policies of scopes; write with idem_policy_set, idem_policy_alter and idem_policy_drop';
COMMENT ON COLUMN idempotency.policy.since IS 'requests first sent before this moment are judged by memory_before as well';
COMMENT ON COLUMN idempotency.policy.memory_before IS 'the shortest time for which keys were remembered before';
COMMENT ON COLUMN idempotency.policy.dropped IS 'the policy was dropped; its row is kept for its memory';
-- A name, so that a dump can be restored where the role does not exist (yet): the scope is closed
-- there. With a regrole, COPY would fail and leave every scope without its policy.
COMMENT ON COLUMN idempotency.policy.allowed_role IS 'only members of the role with this name may use the scope; closed if there is no such role';

-- The sweeper's journal: exactly one row.
CREATE TABLE idempotency.journal (
    last_run      timestamptz,
    last_duration interval,
    last_rows     bigint,
    total_rows    bigint NOT NULL DEFAULT 0,
    failures      integer NOT NULL DEFAULT 0,
    last_error    text,
    last_error_at timestamptz
);
COMMENT ON TABLE idempotency.journal IS 'last visit of a sweeper to this database; read it through idempotency.sweeper';
INSERT INTO idempotency.journal DEFAULT VALUES;
CREATE UNIQUE INDEX journal_one_row ON idempotency.journal ((true));
-- Without an identity, a publication of all tables would refuse updates.
ALTER TABLE idempotency.journal REPLICA IDENTITY FULL;

-- Decisions of operators and of the owner. Only the functions that decide write here, in their own
-- transaction. Rows do not refer to records, because they outlive them.
CREATE TABLE idempotency.audit (
    decided_at       timestamptz NOT NULL,
    action           text COLLATE "C" NOT NULL,
    scope            text COLLATE "C",
    principal        text COLLATE "C",
    key              text COLLATE "C",
    key_digest       bytea,
    role             text,
    before           jsonb,
    after            jsonb,
    reason           text,
    decided_by       text NOT NULL,
    acting_as        text NOT NULL,
    application_name text,
    client_addr      inet,
    erased           boolean NOT NULL DEFAULT false,
    -- Null until the row is linked.
    number           bigint,
    link             bytea,
    salt             bytea,
    names_digest     bytea
);
COMMENT ON TABLE idempotency.audit IS 'decisions of operators and of the owner; read it through idempotency.decisions';
COMMENT ON COLUMN idempotency.audit.scope IS 'of the record, or the pattern of the policy';
COMMENT ON COLUMN idempotency.audit.key_digest IS 'SHA-256 of the key if idempotency.log_keys was off';
COMMENT ON COLUMN idempotency.audit.role IS 'the role of a grant or revoke';
COMMENT ON COLUMN idempotency.audit.decided_by IS 'the user of the session';
COMMENT ON COLUMN idempotency.audit.acting_as IS 'the current user';
COMMENT ON COLUMN idempotency.audit.erased IS 'principal and key were removed for good';
COMMENT ON COLUMN idempotency.audit.number IS 'the place in the chain';
COMMENT ON COLUMN idempotency.audit.link IS 'digest of this row and of the link before it';
COMMENT ON COLUMN idempotency.audit.names_digest IS 'digest of salt, principal and key; it stays when they are erased';
-- The end of retention.
CREATE INDEX audit_decided_at ON idempotency.audit (decided_at);
-- Decisions about a key. A row has an entry in one of them, or in none.
CREATE INDEX audit_key ON idempotency.audit (key) WHERE key IS NOT NULL;
CREATE INDEX audit_key_digest ON idempotency.audit (key_digest) WHERE key_digest IS NOT NULL;
-- The chain, and what is not in it yet. Not unique: a restore into a database with decisions must work.
CREATE INDEX audit_number ON idempotency.audit (number) WHERE number IS NOT NULL;
CREATE INDEX audit_unlinked ON idempotency.audit (decided_at) WHERE number IS NULL;
-- Without an identity, a publication of all tables would refuse deletes.
ALTER TABLE idempotency.audit REPLICA IDENTITY FULL;

CREATE FUNCTION idempotency.owner_writes() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_owner_writes';
COMMENT ON FUNCTION idempotency.owner_writes IS 'refuses writes by any role but the owner of the table';
-- Per row and ENABLE ALWAYS, like those of policies: they also fire for a subscription and in the
-- replica role.
CREATE TRIGGER owner_writes
    BEFORE INSERT OR UPDATE OR DELETE ON idempotency.audit
    FOR EACH ROW EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER owner_truncates
    BEFORE TRUNCATE ON idempotency.audit
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.owner_writes();
ALTER TABLE idempotency.audit ENABLE ALWAYS TRIGGER owner_writes;
ALTER TABLE idempotency.audit ENABLE ALWAYS TRIGGER owner_truncates;

SELECT pg_extension_config_dump('idempotency.audit', '');

-- A row of the audit is linked when it is committed, by the next visit of a sweeper or idem_cleanup:
-- it gets the next number, and a digest over its content and the link before. So no decision waits for
-- another one. This is the state of the chain: its newest link, and that of the last row that went by
-- age. After a restore there may be two rows: the one with the greater number counts.
CREATE TABLE idempotency.audit_chain (
    anchor_number bigint NOT NULL DEFAULT 0,
    anchor_link   bytea NOT NULL DEFAULT '',
    number        bigint NOT NULL DEFAULT 0,
    link          bytea NOT NULL DEFAULT '',
    linked_in     xid8,
    logged        bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE idempotency.audit_chain IS 'newest link of the audit, and of its rows that went by age';
COMMENT ON COLUMN idempotency.audit_chain.anchor_number IS 'the last row that was removed by age';
COMMENT ON COLUMN idempotency.audit_chain.linked_in IS 'the transaction that made the newest link';
COMMENT ON COLUMN idempotency.audit_chain.logged IS 'the newest link that is in the server log';
INSERT INTO idempotency.audit_chain DEFAULT VALUES;
-- Without an identity, a publication of all tables would refuse updates.
ALTER TABLE idempotency.audit_chain REPLICA IDENTITY FULL;
CREATE TRIGGER owner_writes
    BEFORE INSERT OR UPDATE OR DELETE ON idempotency.audit_chain
    FOR EACH ROW EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER owner_truncates
    BEFORE TRUNCATE ON idempotency.audit_chain
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.owner_writes();
ALTER TABLE idempotency.audit_chain ENABLE ALWAYS TRIGGER owner_writes;
ALTER TABLE idempotency.audit_chain ENABLE ALWAYS TRIGGER owner_truncates;
SELECT pg_extension_config_dump('idempotency.audit_chain', 'WHERE number > 0');

-- The text form of an array distinguishes all lists of texts. The bytes are those of the database.
CREATE FUNCTION idempotency.digest_of_texts(texts text[]) RETURNS bytea
    LANGUAGE sql STABLE
    RETURN sha256(convert_to(texts::text, getdatabaseencoding()));
COMMENT ON FUNCTION idempotency.digest_of_texts IS 'SHA-256 of a list of texts';

-- The part of a row that an erasure removes. The salt goes with it, so the digest that stays tells
-- nothing about the names.
CREATE FUNCTION idempotency.digest_of_names(salt bytea, a idempotency.audit) RETURNS bytea
    LANGUAGE sql STABLE
    RETURN sha256(salt || idempotency.digest_of_texts(ARRAY[(a).principal, (a).key, encode((a).key_digest, 'hex')]));
COMMENT ON FUNCTION idempotency.digest_of_names IS 'salted digest of the principal and key of a decision';

CREATE FUNCTION idempotency.digest_of_decision(names_digest bytea, a idempotency.audit) RETURNS bytea
    LANGUAGE sql STABLE
    RETURN idempotency.digest_of_texts(ARRAY[
        encode(timestamptz_send((a).decided_at), 'hex'), (a).action, (a).scope, encode(names_digest, 'hex'), (a).role,
        (a).before::text, (a).after::text, (a).reason, (a).decided_by, (a).acting_as, (a).application_name,
        (a).client_addr::text]);
COMMENT ON FUNCTION idempotency.digest_of_decision IS 'digest of a decision';

CREATE FUNCTION idempotency.next_link(link bytea, number bigint, digest bytea) RETURNS bytea
    LANGUAGE sql STABLE
    RETURN sha256(link || int8send(number) || digest);
COMMENT ON FUNCTION idempotency.next_link IS 'link of a decision, from that before it';

-- Links committed decisions, oldest first. One session at a time does so; others, and rows that are
-- locked, are passed over. A row is left to the next call if another session has changed it since the
-- snapshot: its new version has another ctid. Nothing is linked between the tables of a restore, or
-- where a subscription feeds the audit.
--
-- Without work it writes nothing. It also returns the newest link that is committed and not logged yet.
-- Links of this transaction are for a later call, because it may roll back.
CREATE FUNCTION idempotency.link_decisions(most bigint, logs boolean, OUT linked bigint, OUT log_number bigint, OUT log_link text)
    LANGUAGE sql AS $$
WITH RECURSIVE tip AS MATERIALIZED (
    SELECT c.number, c.link,
           logs AND c.number > c.logged AND c.linked_in IS DISTINCT FROM pg_current_xact_id_if_assigned() AS is_news
      FROM idempotency.audit_chain c
     WHERE c.number = (SELECT max(m.number) FROM idempotency.audit_chain m)
       AND c.number >= coalesce((SELECT max(a.number) FROM idempotency.audit a WHERE a.number IS NOT NULL), 0)
       AND (EXISTS (SELECT FROM idempotency.audit u WHERE u.number IS NULL) OR (logs AND c.number > c.logged))
       AND NOT EXISTS (SELECT FROM pg_subscription_rel s WHERE s.srrelid = 'idempotency.audit'::regclass)
     LIMIT 1 FOR UPDATE SKIP LOCKED
), found AS MATERIALIZED (
    SELECT a.ctid AS at, a.decided_at, a AS decision, CASE WHEN NOT a.erased THEN uuid_send(gen_random_uuid()) END AS salt
      FROM (SELECT u.ctid AS at FROM idempotency.audit u
             WHERE u.number IS NULL AND EXISTS (SELECT FROM tip) ORDER BY u.decided_at LIMIT greatest(most, 0)) seen
      JOIN idempotency.audit a ON a.ctid = seen.at AND (a.ctid = seen.at) IS TRUE
       FOR UPDATE OF a SKIP LOCKED
), named AS MATERIALIZED (
    SELECT f.*, idempotency.digest_of_names(f.salt, f.decision) AS names_digest FROM found f
), placed AS MATERIALIZED (
    SELECT n.at, n.salt, n.names_digest, idempotency.digest_of_decision(n.names_digest, n.decision) AS digest,
           row_number() OVER (ORDER BY n.decided_at, n.at) AS place
      FROM named n
), digests AS MATERIALIZED (
    SELECT string_agg(p.digest, ''::bytea ORDER BY p.place) AS bytes, count(*) AS count FROM placed p
), links (place, number, link) AS (
    SELECT 0::bigint, t.number, t.link FROM tip t
     UNION ALL
    SELECT l.place + 1, l.number + 1,
           idempotency.next_link(l.link, l.number + 1, substr(d.bytes, (32 * l.place + 1)::integer, 32))
      FROM links l, digests d WHERE l.place < d.count
), written AS (
    UPDATE idempotency.audit a SET number = l.number, link = l.link, salt = p.salt, names_digest = p.names_digest
      FROM placed p JOIN links l USING (place) WHERE a.ctid = p.at
), moved AS (
    UPDATE idempotency.audit_chain c
       SET number = l.number, link = l.link,
           linked_in = CASE WHEN l.place > 0 THEN pg_current_xact_id() ELSE c.linked_in END,
           logged = CASE WHEN t.is_news THEN t.number ELSE c.logged END
      FROM tip t, links l, digests d
     WHERE c.number = t.number AND l.place = d.count AND (d.count > 0 OR t.is_news)
)
SELECT d.count, CASE WHEN t.is_news THEN t.number END, CASE WHEN t.is_news THEN encode(t.link, 'hex') END
  FROM digests d LEFT JOIN tip t ON true $$;
COMMENT ON FUNCTION idempotency.link_decisions IS 'links decisions of the audit; returns how many, and what is to be logged';

-- Removes decisions by age in the order of their links, so the chain stays whole from its anchor on.
CREATE FUNCTION idempotency.remove_old_decisions(until timestamptz, most bigint) RETURNS bigint
    LANGUAGE sql AS $$
WITH tip AS MATERIALIZED (
    SELECT c.number FROM idempotency.audit_chain c
     WHERE c.number = (SELECT max(m.number) FROM idempotency.audit_chain m)
       AND EXISTS (SELECT FROM idempotency.audit a WHERE a.decided_at <= until)
     LIMIT 1 FOR UPDATE SKIP LOCKED
), oldest AS (
    SELECT a.number, a.decided_at FROM idempotency.audit a
     WHERE a.number IS NOT NULL AND EXISTS (SELECT FROM tip) ORDER BY a.number LIMIT greatest(most, 0)
), last AS MATERIALIZED (
    SELECT max(o.number) AS number
      FROM (SELECT oldest.number, bool_and(oldest.decided_at <= until) OVER (ORDER BY oldest.number) AS is_old FROM oldest) o
     WHERE o.is_old
), removed AS (
    DELETE FROM idempotency.audit a WHERE a.number <= (SELECT l.number FROM last l) RETURNING a.number, a.link
), moved AS (
    UPDATE idempotency.audit_chain c SET anchor_number = r.number, anchor_link = r.link
      FROM tip t, removed r, last l WHERE c.number = t.number AND r.number = l.number
)
SELECT count(*) FROM removed $$;
COMMENT ON FUNCTION idempotency.remove_old_decisions IS 'removes decisions that are due by age; returns how many';

-- The faults of the chain. `outside` is a line of the server log: number and link.
CREATE FUNCTION idempotency.faults_of_audit(outside text)
    RETURNS TABLE (number bigint, rows bigint, problem text, decided_at timestamptz, detail text)
    LANGUAGE sql STABLE AS $$
WITH chain AS MATERIALIZED (
    SELECT c.anchor_number, c.anchor_link, c.number, c.link FROM idempotency.audit_chain c ORDER BY c.number DESC LIMIT 1
), linked AS (
    SELECT a.number, a.link, a.decided_at,
           lag(a.number, 1, c.anchor_number) OVER before AS number_before,
           idempotency.next_link(lag(a.link, 1, c.anchor_link) OVER before, a.number,
                                 idempotency.digest_of_decision(a.names_digest, a)) AS expected,
           CASE WHEN a.erased THEN num_nonnulls(a.principal, a.key, a.key_digest) = 0
                ELSE idempotency.digest_of_names(a.salt, a) = a.names_digest END AS has_its_names
      FROM idempotency.audit a, chain c
     WHERE a.number > c.anchor_number
    WINDOW before AS (ORDER BY a.number)
), given AS (
    SELECT split_part(outside, ':', 1)::bigint AS number, decode(split_part(outside, ':', 2), 'hex') AS link
     WHERE outside IS NOT NULL
), faults (number, rows, problem, decided_at, detail) AS (
    SELECT NULL::bigint, NULL::bigint, 'removed', NULL::timestamptz, 'The table idempotency.audit_chain has no row.'
     WHERE NOT EXISTS (SELECT FROM chain)
     UNION ALL
    SELECT l.number, 1, 'changed', l.decided_at, 'The link does not follow from the row and from the link before it.'
      FROM linked l WHERE l.number = l.number_before + 1 AND (l.link = l.expected AND l.has_its_names) IS NOT TRUE
     UNION ALL
    SELECT l.number_before + 1, l.number - l.number_before - 1, 'removed', NULL, 'Rows with these numbers are missing.'
      FROM linked l WHERE l.number > l.number_before + 1
     UNION ALL
    SELECT c.number + 1, count(*), 'inserted', max(l.decided_at), 'The chain has not come to these numbers.'
      FROM chain c JOIN linked l ON l.number > c.number GROUP BY c.number
     UNION ALL
    SELECT a.number, 1, 'inserted', a.decided_at, 'The chain begins after this number.'
      FROM chain c JOIN idempotency.audit a ON a.number <= c.anchor_number
     UNION ALL
    SELECT l.number, 1, 'inserted', l.decided_at, 'Another row has the same number.' FROM linked l WHERE l.number = l.number_before
     UNION ALL
    SELECT n.newest + 1, c.number - n.newest, 'removed', NULL, 'Rows with these numbers are missing.'
      FROM chain c, LATERAL (SELECT coalesce(max(l.number), c.anchor_number) AS newest FROM linked l) n WHERE n.newest < c.number
     UNION ALL
    SELECT c.number, 1, 'changed', NULL, 'The table idempotency.audit_chain has another link for this number.'
      FROM chain c LEFT JOIN linked l ON l.number = c.number
     WHERE CASE WHEN c.number = c.anchor_number THEN c.anchor_link ELSE l.link END <> c.link
     UNION ALL
    SELECT g.number, g.number - c.number, 'removed', NULL, 'The chain ends before the given link.'
      FROM given g, chain c WHERE g.number > c.number
     UNION ALL
    SELECT g.number, 1, 'changed', l.decided_at, 'The row has another link than the given one: the chain was made anew.'
      FROM given g, chain c LEFT JOIN linked l ON l.number = (SELECT x.number FROM given x)
     WHERE g.number BETWEEN c.anchor_number AND c.number
       AND coalesce(CASE WHEN g.number = c.anchor_number THEN c.anchor_link ELSE l.link END, '') <> g.link
     UNION ALL
    SELECT g.number, 1, 'not verifiable', NULL, 'The row of the given link is removed by age.'
      FROM given g, chain c WHERE g.number < c.anchor_number)
SELECT f.number, f.rows, f.problem, f.decided_at, f.detail FROM faults f ORDER BY f.number, f.problem, f.detail $$;
COMMENT ON FUNCTION idempotency.faults_of_audit IS 'rows of the audit that were changed, removed or inserted past the functions';

-- The secret seed of the locks of keys: without it, clients could compute keys that share a lock. One
-- row. A restore replaces the row made here by that of the dump.
CREATE TABLE idempotency.seed (
    value   bytea NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT seed_fits CHECK (octet_length(value) = 16)
);
COMMENT ON TABLE idempotency.seed IS 'secret seed of the locks: one row, readable by the owner only';
-- Without an identity, a publication of all tables would refuse deletes.
ALTER TABLE idempotency.seed REPLICA IDENTITY FULL;
-- A UUID has 122 strong random bits.
INSERT INTO idempotency.seed (value)
SELECT substr(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 1, 16);

CREATE FUNCTION idempotency.seed_coming() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_seed_coming';
COMMENT ON FUNCTION idempotency.seed_coming IS 'removes the previous seed';
CREATE FUNCTION idempotency.seed_changed() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_seed_changed';
COMMENT ON FUNCTION idempotency.seed_changed IS 'tells every backend that the seed has changed';
-- Like those of the audit and of policies. They fire in the order of their names.
CREATE TRIGGER owner_writes
    BEFORE INSERT OR UPDATE OR DELETE ON idempotency.seed
    FOR EACH ROW EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER owner_truncates
    BEFORE TRUNCATE ON idempotency.seed
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER seed_coming
    BEFORE INSERT ON idempotency.seed
    FOR EACH ROW EXECUTE FUNCTION idempotency.seed_coming();
CREATE TRIGGER seed_changed
    AFTER INSERT OR UPDATE OR DELETE ON idempotency.seed
    FOR EACH ROW EXECUTE FUNCTION idempotency.seed_changed();
CREATE TRIGGER seed_truncated
    AFTER TRUNCATE ON idempotency.seed
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.seed_changed();
ALTER TABLE idempotency.seed ENABLE ALWAYS TRIGGER owner_writes;
ALTER TABLE idempotency.seed ENABLE ALWAYS TRIGGER owner_truncates;
ALTER TABLE idempotency.seed ENABLE ALWAYS TRIGGER seed_coming;
ALTER TABLE idempotency.seed ENABLE ALWAYS TRIGGER seed_changed;
ALTER TABLE idempotency.seed ENABLE ALWAYS TRIGGER seed_truncated;
SELECT pg_extension_config_dump('idempotency.seed', '');

-- The master keys that have encrypted values here, so that another key under the same id is noticed.
-- Several rows if transactions used the key first at the same time. A check value reveals nothing of
-- its key.
CREATE TABLE idempotency.encryption_key (
    key_id      text COLLATE "C" NOT NULL,
    check_value bytea NOT NULL,
    first_used  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE idempotency.encryption_key IS 'check values of the keys that have encrypted values in this database';
ALTER TABLE idempotency.encryption_key REPLICA IDENTITY FULL;

CREATE FUNCTION idempotency.key_changed() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_key_changed';
COMMENT ON FUNCTION idempotency.key_changed IS 'tells every backend that keys were used first, or removed';
CREATE TRIGGER owner_writes
    BEFORE INSERT OR UPDATE OR DELETE ON idempotency.encryption_key
    FOR EACH ROW EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER owner_truncates
    BEFORE TRUNCATE ON idempotency.encryption_key
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER key_changed
    AFTER INSERT OR UPDATE OR DELETE ON idempotency.encryption_key
    FOR EACH ROW EXECUTE FUNCTION idempotency.key_changed();
CREATE TRIGGER key_truncated
    AFTER TRUNCATE ON idempotency.encryption_key
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.key_changed();
ALTER TABLE idempotency.encryption_key ENABLE ALWAYS TRIGGER owner_writes;
ALTER TABLE idempotency.encryption_key ENABLE ALWAYS TRIGGER owner_truncates;
ALTER TABLE idempotency.encryption_key ENABLE ALWAYS TRIGGER key_changed;
ALTER TABLE idempotency.encryption_key ENABLE ALWAYS TRIGGER key_truncated;
SELECT pg_extension_config_dump('idempotency.encryption_key', '');

-- The end of each attempt, where the policy has keep_history. A row is inserted when an attempt ends,
-- and deleted by age. Attempt numbers of a record may repeat, its tokens do not.
CREATE TABLE idempotency.attempt (
    scope          text COLLATE "C" NOT NULL,
    principal      text COLLATE "C" NOT NULL,
    key            text COLLATE "C" NOT NULL,
    attempt        integer NOT NULL,
    token          bigint NOT NULL,
    holder         text,
    sealed_holder  bytea,
    begun          timestamptz NOT NULL,
    ended          timestamptz NOT NULL,
    how            text COLLATE "C" NOT NULL,
    status_code    integer,
    error          text,
    sealed_error   bytea,
    reference      text,
    sealed_reference bytea,
    sealed_by      text,
    salt           bytea,
    resolved_by    text,
    retained_until timestamptz NOT NULL,
    CONSTRAINT attempt_pkey PRIMARY KEY (key, scope, principal, token)
);
COMMENT ON TABLE idempotency.attempt IS 'how attempts ended, where the policy has keep_history; read it through idempotency.attempts';
CREATE INDEX attempt_retained_until ON idempotency.attempt (retained_until);
CREATE INDEX attempt_sealed_by ON idempotency.attempt (sealed_by) WHERE sealed_by IS NOT NULL;

SELECT pg_extension_config_dump('idempotency.attempt', '');
SELECT pg_extension_config_dump('idempotency.record', '');
SELECT pg_extension_config_dump('idempotency.policy', '');

-- The grants of a cluster: see rights.cpp.
CREATE FUNCTION idempotency.granted_here(role name, operator boolean, administrator boolean, worker boolean)
    RETURNS boolean
    LANGUAGE c STRICT AS 'MODULE_PATHNAME', 'idem_owner_granted_here';
COMMENT ON FUNCTION idempotency.granted_here IS 'applies a row of idempotency.granted on this node';

CREATE FUNCTION idempotency.revoked_here() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_owner_revoked_here';
COMMENT ON FUNCTION idempotency.revoked_here IS 'revokes a row of idempotency.granted on this node';

CREATE TABLE idempotency.granted (
    role          name NOT NULL,
    operator      boolean NOT NULL,
    administrator boolean NOT NULL,
    worker        boolean NOT NULL,
    CONSTRAINT granted_pkey PRIMARY KEY (role),
    CONSTRAINT granted_here CHECK (idempotency.granted_here(role, operator, administrator, worker))
);
COMMENT ON TABLE idempotency.granted IS 'grants of idem_grant in a cluster, on every node; empty on a single server';
-- A row of another role would give rights on nodes that are added later.
CREATE TRIGGER owner_writes
    BEFORE INSERT OR UPDATE OR DELETE ON idempotency.granted
    FOR EACH ROW EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER owner_truncates
    BEFORE TRUNCATE ON idempotency.granted
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.owner_writes();
ALTER TABLE idempotency.granted ENABLE ALWAYS TRIGGER owner_writes;
ALTER TABLE idempotency.granted ENABLE ALWAYS TRIGGER owner_truncates;
CREATE TRIGGER revoked_here
    AFTER DELETE ON idempotency.granted
    FOR EACH ROW EXECUTE FUNCTION idempotency.revoked_here();
SELECT pg_extension_config_dump('idempotency.granted', '');

-- Stable, because the planner keeps a view with a volatile column apart from the query around it: the
-- first records in the order of their keys would cost a sort of the whole table.
CREATE FUNCTION idempotency.claim_lives(lease_until timestamptz, backend_pid integer, backend_start timestamptz)
    RETURNS boolean
    LANGUAGE c STABLE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'idem_claim_lives';
COMMENT ON FUNCTION idempotency.claim_lives
    IS 'whether the lease of a claim is alive, and its backend too if it names one';

CREATE FUNCTION idempotency.this_node() RETURNS text
    LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'idem_this_node';
COMMENT ON FUNCTION idempotency.this_node IS 'host and port of this node of a cluster; null on a single server';

CREATE FUNCTION idempotency.of_nodes(shape anyelement) RETURNS SETOF anyelement
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_of_nodes';
COMMENT ON FUNCTION idempotency.of_nodes IS 'rows of a view of this schema from every node of a cluster';

CREATE VIEW idempotency.records AS
SELECT scope, principal COLLATE "C" AS principal, key,
       CASE
           WHEN status = 'c' THEN 'completed'
           WHEN status = 'f' THEN 'failed'
           WHEN status = 'r' THEN 'retryable'
           WHEN status = 'x' THEN 'exhausted'
           WHEN status = 'u' THEN 'unknown'
           WHEN if_silent = 't' OR idempotency.claim_lives(lease_until, backend_pid, backend_start)
               THEN 'in_progress'
           WHEN if_silent = 'x' THEN 'exhausted'
           ELSE 'unknown'
       END AS status,
       attempt, status_code, headers, body, body_omitted, error, reference, recovery_point, state, holder,
       backend_pid IS NOT NULL AS held, created_at, claimed_at, finished_at, lease_until,
       next_attempt_at, NULLIF(expires_at, 'infinity') AS expires_at,
       NULLIF(retained_until, 'infinity') AS retained_until,
       fingerprint, operation, request, method, path, resolved_by, sealed_by, idempotency.this_node() AS node
  FROM idempotency.record;
COMMENT ON VIEW idempotency.records IS 'the records, with statuses as words and without tokens';

CREATE VIEW idempotency.attempts AS
SELECT scope, principal COLLATE "C" AS principal, key, attempt, holder, begun, ended, how,
       status_code, error, reference, resolved_by, retained_until, sealed_by,
       idempotency.this_node() AS node
  FROM idempotency.attempt;
COMMENT ON VIEW idempotency.attempts IS 'how attempts ended, where the policy has keep_history';

-- With Citus, the table may be colocated with others; principals then have the collation of those.
CREATE FUNCTION idempotency.fit_principals(collation text DEFAULT NULL) RETURNS void
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_owner_fit_principals';
COMMENT ON FUNCTION idempotency.fit_principals IS 'gives principals the collation of the cluster, while there are no shards';
SELECT idempotency.fit_principals();

CREATE VIEW idempotency.policies AS
SELECT scope_pattern, ttl, retention, max_ttl, lease, max_lease, wait, max_attempts, retry_base,
       retry_cap, retry_jitter, on_missing_key, derive_window, principal_required,
       fingerprint_required, store_request, on_lease_expiry, unknown_retry_after, abandon_after, on_abandon,
       max_body_bytes, on_large_body, fingerprint_fields, exclude_fields, drop_headers,
       final_errors, error_statuses, allowed_role, keep_history, encrypt,
       transactional_only, reason_required, max_open_claims, since, memory_before,
       CASE WHEN allowed_role IS NOT NULL
            THEN EXISTS (SELECT FROM pg_roles WHERE rolname = allowed_role)
       END AS role_exists
  FROM idempotency.policy
 WHERE NOT dropped;
COMMENT ON VIEW idempotency.policies IS 'the policies, and whether the roles that they admit exist';

-- Read as the owner of the table, also if it consists of shards.
CREATE FUNCTION idempotency.claims_here(
    OUT scope text,
    OUT principal text,
    OUT key text,
    OUT status "char",
    OUT if_silent "char",
    OUT attempt integer,
    OUT holder text,
    OUT recovery_point text,
    OUT error text,
    OUT reference text,
    OUT backend_pid integer,
    OUT backend_start timestamptz,
    OUT claimed_at timestamptz,
    OUT lease_until timestamptz,
    OUT finished_at timestamptz,
    OUT retained_until timestamptz
) RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_claims_here';
COMMENT ON FUNCTION idempotency.claims_here IS 'records of this node that are in progress, unknown or exhausted; error and reference only for roles that may read idempotency.records';

-- Running executions. A leased claim is a row. A transactional one shows only its lock, because its row
-- is not written yet.
CREATE VIEW idempotency.in_flight_here AS
SELECT 'leased' AS kind, scope, principal, key, attempt, holder, backend_pid AS pid,
       NULL::text AS application_name, claimed_at AS since,
       clock_timestamp() - claimed_at AS age, lease_until, idempotency.this_node() AS node
  FROM idempotency.claims_here()
 WHERE status = 'i'
   AND idempotency.claim_lives(lease_until, backend_pid, backend_start)
UNION ALL
SELECT CASE WHEN l.pid IS NULL THEN 'prepared' ELSE 'transactional' END, NULL, NULL, NULL, NULL, NULL,
       l.pid, a.application_name, a.xact_start,
       clock_timestamp() - a.xact_start, NULL, idempotency.this_node()
  FROM pg_locks l
  LEFT JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.locktype = 'advisory' AND l.objsubid = 18756
   AND l.granted AND l.mode = 'ExclusiveLock'
   AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
COMMENT ON VIEW idempotency.in_flight_here IS 'of this node, leased claims and transactions that hold the lock of a key';

CREATE VIEW idempotency.in_flight AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.in_flight_here);
COMMENT ON VIEW idempotency.in_flight IS 'leased claims, and transactions that hold the lock of a key';

CREATE VIEW idempotency.abandoned_here AS
SELECT scope, principal, key,
       CASE if_silent WHEN 't' THEN 'in_progress' WHEN 'x' THEN 'exhausted' ELSE 'unknown' END AS status,
       attempt, holder, recovery_point, claimed_at, lease_until,
       GREATEST(clock_timestamp() - lease_until, '0') AS overdue,
       idempotency.this_node() AS node
  FROM idempotency.claims_here()
 WHERE status = 'i'
   AND NOT idempotency.claim_lives(lease_until, backend_pid, backend_start);
COMMENT ON VIEW idempotency.abandoned_here IS 'claims of this node whose lease has expired, or whose session has ended';

CREATE VIEW idempotency.abandoned AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.abandoned_here);
COMMENT ON VIEW idempotency.abandoned IS 'claims whose lease has expired, or whose session has ended, and that no session has taken over';

CREATE VIEW idempotency.unknown_here AS
SELECT scope, principal, key, attempt, holder, recovery_point, error, reference,
       lease_until IS NOT NULL AS silent, claimed_at, COALESCE(lease_until, finished_at) AS since,
       GREATEST(clock_timestamp() - COALESCE(lease_until, finished_at), '0') AS age,
       idempotency.this_node() AS node
  FROM idempotency.claims_here()
 WHERE status = 'u'
    OR (status = 'i' AND if_silent = 'u'
        AND NOT idempotency.claim_lives(lease_until, backend_pid, backend_start));
COMMENT ON VIEW idempotency.unknown_here IS 'records of this node whose outcome is unknown';

CREATE VIEW idempotency.unknown AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.unknown_here);
COMMENT ON VIEW idempotency.unknown IS 'records with an unknown outcome: ended as unknown, or timed out with on_lease_expiry unknown';

CREATE VIEW idempotency.exhausted_here AS
SELECT scope, principal, key, attempt, holder, recovery_point, error, reference,
       lease_until IS NOT NULL AS silent, claimed_at, COALESCE(lease_until, finished_at) AS since,
       GREATEST(clock_timestamp() - COALESCE(lease_until, finished_at), '0') AS age,
       CASE WHEN status = 'x' THEN retained_until END AS retained_until, idempotency.this_node() AS node
  FROM idempotency.claims_here()
 WHERE status = 'x'
    OR (status = 'i' AND if_silent = 'x'
        AND NOT idempotency.claim_lives(lease_until, backend_pid, backend_start));
COMMENT ON VIEW idempotency.exhausted_here IS 'records of this node whose attempts are used up';

CREATE VIEW idempotency.exhausted AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.exhausted_here);
COMMENT ON VIEW idempotency.exhausted IS 'records whose last attempt failed or timed out, max_attempts reached';

CREATE FUNCTION idempotency.backlog(until timestamptz, OUT rows bigint, OUT oldest timestamptz)
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_backlog';
COMMENT ON FUNCTION idempotency.backlog IS 'records of this node that are due for removal, counted to 10,000, and since when the oldest is due';

CREATE VIEW idempotency.sweeper_here AS
SELECT current_database() AS database, j.last_run, j.last_duration, j.last_rows, j.total_rows,
       b.rows AS backlog, g.until - b.oldest AS behind,
       j.failures, j.last_error, j.last_error_at,
       (SELECT min(a.pid) FROM pg_stat_activity a
         WHERE a.backend_type = 'idempotency launcher') AS launcher_pid,
       idempotency.this_node() AS node
  FROM idempotency.journal j
 CROSS JOIN (SELECT now() - COALESCE(current_setting('idempotency.cleanup_grace', true), '0')::interval AS until) g
 CROSS JOIN LATERAL idempotency.backlog(g.until) b;
COMMENT ON VIEW idempotency.sweeper_here IS 'the sweeper of this node';

CREATE VIEW idempotency.sweeper AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.sweeper_here);
COMMENT ON VIEW idempotency.sweeper IS 'last visit of a sweeper to this database, and its backlog';

CREATE FUNCTION idempotency.due_by_scope(OUT scope text, OUT records bigint, OUT oldest timestamptz)
    RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_due_by_scope';
COMMENT ON FUNCTION idempotency.due_by_scope IS 'per scope, the records of this node that a worker may take, and since when the oldest is due';

CREATE VIEW idempotency.due_here AS
SELECT scope, sum(records)::bigint AS records, min(oldest) AS oldest,
       GREATEST(clock_timestamp() - min(oldest), '0') AS age, idempotency.this_node() AS node
  FROM idempotency.due_by_scope()
 GROUP BY scope;
COMMENT ON VIEW idempotency.due_here IS 'the records of this node that are due, per scope';

CREATE VIEW idempotency.due AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.due_here);
COMMENT ON VIEW idempotency.due IS 'retryable records past their pause, and claims with an expired lease, per scope';

CREATE FUNCTION idempotency.scope_stats(
    OUT scope text,
    OUT executed bigint,
    OUT replayed bigint,
    OUT in_progress bigint,
    OUT mismatches bigint,
    OUT takeovers bigint,
    OUT retries bigint,
    OUT retry_later bigint,
    OUT exhausted bigint,
    OUT expired bigint,
    OUT unknown bigint,
    OUT completed bigint,
    OUT failed bigint,
    OUT waits bigint,
    OUT wait_micros bigint,
    OUT swept bigint,
    OUT abandoned bigint,
    OUT encryption_errors bigint,
    OUT store_errors bigint,
    OUT evicted bigint,
    OUT since timestamptz
) RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_scope_stats';
COMMENT ON FUNCTION idempotency.scope_stats IS 'counters of this database, one row per scope; null: the shared row of scopes that lost theirs';

-- In the row of the total, "total" is true.
CREATE VIEW idempotency.stats_here AS
SELECT scope, GROUPING(scope) = 1 AS total,
       sum(executed)::bigint AS executed,
       sum(replayed)::bigint AS replayed,
       sum(in_progress)::bigint AS in_progress,
       sum(mismatches)::bigint AS mismatches,
       sum(takeovers)::bigint AS takeovers,
       sum(retries)::bigint AS retries,
       sum(retry_later)::bigint AS retry_later,
       sum(exhausted)::bigint AS exhausted,
       sum(expired)::bigint AS expired,
       sum(unknown)::bigint AS unknown,
       sum(completed)::bigint AS completed,
       sum(failed)::bigint AS failed,
       sum(waits)::bigint AS waits,
       sum(wait_micros)::double precision / 1000000 AS wait_seconds,
       sum(swept)::bigint AS swept,
       sum(abandoned)::bigint AS abandoned,
       sum(encryption_errors)::bigint AS encryption_errors,
       sum(store_errors)::bigint AS store_errors,
       sum(evicted)::bigint AS evicted,
       min(since) AS since,
       idempotency.this_node() AS node
  FROM idempotency.scope_stats()
 GROUP BY GROUPING SETS ((scope), ());
COMMENT ON VIEW idempotency.stats_here IS 'the counters of this node';

CREATE VIEW idempotency.stats AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.stats_here);
COMMENT ON VIEW idempotency.stats IS 'outcomes and results, per scope and in total';

CREATE FUNCTION idempotency.tables_here(
    OUT shard bigint,
    OUT "table" regclass,
    OUT store text,
    OUT why text
) RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_tables_here';
COMMENT ON FUNCTION idempotency.tables_here IS 'the tables with the records of this node';

CREATE VIEW idempotency.stores_here AS
SELECT shard, "table"::text AS "table", store, why, idempotency.this_node() AS node
  FROM idempotency.tables_here();
COMMENT ON VIEW idempotency.stores_here IS 'the stores of this node';

CREATE VIEW idempotency.stores AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.stores_here);
COMMENT ON VIEW idempotency.stores IS 'tables with records, and the store of each: heap, or sql and why';

CREATE VIEW idempotency.decisions_here AS
SELECT decided_at, action, scope, principal, key, key_digest, role, before, after, reason, decided_by,
       acting_as, application_name, client_addr, erased, number, link, idempotency.this_node() AS node
  FROM idempotency.audit;
COMMENT ON VIEW idempotency.decisions_here IS 'decisions made on this node';

CREATE VIEW idempotency.decisions AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.decisions_here);
COMMENT ON VIEW idempotency.decisions IS 'decisions of operators and of the owner: when, by which user and why';

CREATE FUNCTION idempotency.keys_here(
    OUT key_id text,
    OUT available boolean,
    OUT current boolean,
    OUT records bigint,
    OUT why text
) RETURNS SETOF record
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_keys_here';
COMMENT ON FUNCTION idempotency.keys_here IS 'keys in the key file of this node, and those that encrypted records of this node';

CREATE VIEW idempotency.encryption_keys_here AS
SELECT key_id, available, current, records, why, idempotency.this_node() AS node
  FROM idempotency.keys_here();
COMMENT ON VIEW idempotency.encryption_keys_here IS 'the encryption keys of this node';

CREATE VIEW idempotency.encryption_keys AS
SELECT * FROM idempotency.of_nodes(NULL::idempotency.encryption_keys_here);
COMMENT ON VIEW idempotency.encryption_keys IS 'keys of encrypted records by id, and how many records each has encrypted';

CREATE FUNCTION idempotency.policy_changed() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_policy_changed';
COMMENT ON FUNCTION idempotency.policy_changed IS 'tells every backend that policies have changed';

-- Per row, because a logical replication subscriber fires no statement triggers. ENABLE ALWAYS, because
-- the replica role must fire them, too. The functions write as the owner: a role that may write all
-- tables would open a closed scope.
CREATE TRIGGER owner_writes
    BEFORE INSERT OR UPDATE OR DELETE ON idempotency.policy
    FOR EACH ROW EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER owner_truncates
    BEFORE TRUNCATE ON idempotency.policy
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.owner_writes();
CREATE TRIGGER policy_changed
    AFTER INSERT OR UPDATE OR DELETE ON idempotency.policy
    FOR EACH ROW EXECUTE FUNCTION idempotency.policy_changed();
CREATE TRIGGER policy_truncated
    AFTER TRUNCATE ON idempotency.policy
    FOR EACH STATEMENT EXECUTE FUNCTION idempotency.policy_changed();
ALTER TABLE idempotency.policy ENABLE ALWAYS TRIGGER owner_writes;
ALTER TABLE idempotency.policy ENABLE ALWAYS TRIGGER owner_truncates;
ALTER TABLE idempotency.policy ENABLE ALWAYS TRIGGER policy_changed;
ALTER TABLE idempotency.policy ENABLE ALWAYS TRIGGER policy_truncated;

----------------------------------------------------------------------------------------------------
-- Types
----------------------------------------------------------------------------------------------------

CREATE TYPE @extschema@.idem_claim AS (
    outcome        text,
    key            text,
    scope          text,
    principal      text,
    token          bigint,
    attempt        integer,
    status         text,
    status_code    integer,
    headers        jsonb,
    body           bytea,
    body_omitted   boolean,
    error          text,
    reference      text,
    recovery_point text,
    state          jsonb,
    holder         text,
    retry_after    double precision,
    created_at     timestamptz,
    finished_at    timestamptz,
    lease_until    timestamptz,
    expires_at     timestamptz
);
COMMENT ON TYPE @extschema@.idem_claim IS 'result of idem_begin, idem_execute and idem_get';

CREATE TYPE @extschema@.idem_due AS (
    key            text,
    scope          text,
    principal      text,
    token          bigint,
    attempt        integer,
    operation      text,
    method         text,
    path           text,
    request        jsonb,
    recovery_point text,
    state          jsonb,
    error          text,
    created_at     timestamptz,
    lease_until    timestamptz
);
COMMENT ON TYPE @extschema@.idem_due IS 'a record that idem_claim_due has granted';

CREATE TYPE @extschema@.idem_response AS (
    status_code integer,
    headers     jsonb,
    body        bytea
);
COMMENT ON TYPE @extschema@.idem_response IS 'a response that an operation of idem_execute may return';

CREATE TYPE @extschema@.idem_explanation AS (
    outcome      text,
    reason       text,
    why          text,
    next         text,
    execution    text,
    key          text,
    scope        text,
    principal    text,
    retry_after  double precision,
    retry_at     timestamptz,
    record       jsonb,
    lease        jsonb,
    holder       jsonb,
    request      jsonb,
    policy       jsonb,
    notes        text[],
    is_standby   boolean,
    explained_at timestamptz,
    node         text
);
COMMENT ON TYPE @extschema@.idem_explanation IS 'result of idem_explain';

----------------------------------------------------------------------------------------------------
-- The protocol. Functions that decide are VOLATILE, PARALLEL UNSAFE and COST 10000: a call may record a
-- key, so the planner should evaluate every other condition first.
----------------------------------------------------------------------------------------------------

CREATE FUNCTION idempotency.without_defaults(internal) RETURNS internal
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_without_defaults';
COMMENT ON FUNCTION idempotency.without_defaults
    IS 'planner support: drops trailing arguments that equal their defaults';

CREATE FUNCTION @extschema@.idem_begin(
    key text,
    request jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    fingerprint bytea DEFAULT NULL,
    ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    first_sent timestamptz DEFAULT NULL,
    hold boolean DEFAULT false,
    holder text DEFAULT NULL,
    same_statement boolean DEFAULT false,
    transactional boolean DEFAULT false,
    method text DEFAULT NULL,
    path text DEFAULT NULL,
    exclude text[] DEFAULT NULL,
    derive interval DEFAULT NULL
) RETURNS @extschema@.idem_claim
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 SUPPORT idempotency.without_defaults
    AS 'MODULE_PATHNAME', 'idem_begin';
COMMENT ON FUNCTION @extschema@.idem_begin IS 'claim a key, or get the outcome of its request';
REVOKE ALL ON FUNCTION @extschema@.idem_begin FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_complete(
    key text,
    status_code integer DEFAULT NULL,
    body text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    ttl interval DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_complete_text';
COMMENT ON FUNCTION @extschema@.idem_complete(text, integer, text, jsonb, text, text, bigint, interval)
    IS 'end a claim with the response that every repeat gets';
REVOKE ALL ON FUNCTION @extschema@.idem_complete(text, integer, text, jsonb, text, text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_complete(
    key text,
    status_code integer,
    body bytea,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    ttl interval DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_complete_bytea';
COMMENT ON FUNCTION @extschema@.idem_complete(text, integer, bytea, jsonb, text, text, bigint, interval)
    IS 'end a claim with the response that every repeat gets';
REVOKE ALL ON FUNCTION @extschema@.idem_complete(text, integer, bytea, jsonb, text, text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_complete(
    key text,
    status_code integer,
    body jsonb,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    ttl interval DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_complete_jsonb';
COMMENT ON FUNCTION @extschema@.idem_complete(text, integer, jsonb, jsonb, text, text, bigint, interval)
    IS 'end a claim with the response that every repeat gets';
REVOKE ALL ON FUNCTION @extschema@.idem_complete(text, integer, jsonb, jsonb, text, text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_complete(
    key text,
    status_code integer,
    body json,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    ttl interval DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_complete_text';
COMMENT ON FUNCTION @extschema@.idem_complete(text, integer, json, jsonb, text, text, bigint, interval)
    IS 'end a claim with the response that every repeat gets';
REVOKE ALL ON FUNCTION @extschema@.idem_complete(text, integer, json, jsonb, text, text, bigint, interval) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_fail(
    key text,
    error text DEFAULT NULL,
    retryable boolean DEFAULT false,
    status_code integer DEFAULT NULL,
    body text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    retry_after interval DEFAULT NULL,
    uncertain boolean DEFAULT false
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_fail_text';
COMMENT ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, text, jsonb, text, text, bigint, interval, boolean)
    IS 'end a claim with a failure, final or retryable';
REVOKE ALL ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, text, jsonb, text, text, bigint, interval, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_fail(
    key text,
    error text,
    retryable boolean,
    status_code integer,
    body bytea,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    retry_after interval DEFAULT NULL,
    uncertain boolean DEFAULT false
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_fail_bytea';
COMMENT ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, bytea, jsonb, text, text, bigint, interval, boolean)
    IS 'end a claim with a failure, final or retryable';
REVOKE ALL ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, bytea, jsonb, text, text, bigint, interval, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_fail(
    key text,
    error text,
    retryable boolean,
    status_code integer,
    body jsonb,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    retry_after interval DEFAULT NULL,
    uncertain boolean DEFAULT false
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_fail_jsonb';
COMMENT ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, jsonb, jsonb, text, text, bigint, interval, boolean)
    IS 'end a claim with a failure, final or retryable';
REVOKE ALL ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, jsonb, jsonb, text, text, bigint, interval, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_fail(
    key text,
    error text,
    retryable boolean,
    status_code integer,
    body json,
    headers jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    retry_after interval DEFAULT NULL,
    uncertain boolean DEFAULT false
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_fail_text';
COMMENT ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, json, jsonb, text, text, bigint, interval, boolean)
    IS 'end a claim with a failure, final or retryable';
REVOKE ALL ON FUNCTION @extschema@.idem_fail(text, text, boolean, integer, json, jsonb, text, text, bigint, interval, boolean) FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_unknown(
    key text,
    error text DEFAULT NULL,
    reference text DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_unknown';
COMMENT ON FUNCTION @extschema@.idem_unknown
    IS 'end a claim whose outcome is unknown, until its token or an operator decides';
REVOKE ALL ON FUNCTION @extschema@.idem_unknown FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_extend(
    key text,
    token bigint,
    lease interval DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT ''
) RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_extend';
COMMENT ON FUNCTION @extschema@.idem_extend IS 'heartbeat: extend the lease of a claim; returns its new end';
REVOKE ALL ON FUNCTION @extschema@.idem_extend FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_checkpoint(
    key text,
    recovery_point text,
    state jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL,
    lease interval DEFAULT NULL
) RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_checkpoint';
COMMENT ON FUNCTION @extschema@.idem_checkpoint
    IS 'store the progress of an operation, and extend its lease; returns its new end';
REVOKE ALL ON FUNCTION @extschema@.idem_checkpoint FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_release(
    key text,
    scope text DEFAULT '',
    principal text DEFAULT '',
    token bigint DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_release';
COMMENT ON FUNCTION @extschema@.idem_release IS 'give a claim back as if it had not begun';
REVOKE ALL ON FUNCTION @extschema@.idem_release FROM PUBLIC;

----------------------------------------------------------------------------------------------------
-- Shortcuts
----------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.idem_once(
    key text,
    scope text DEFAULT '',
    principal text DEFAULT '',
    ttl interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    same_statement boolean DEFAULT false
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_once';
COMMENT ON FUNCTION @extschema@.idem_once
    IS 'true the first time, false after; call it in the transaction that handles the message, never as a condition of a query';
REVOKE ALL ON FUNCTION @extschema@.idem_once FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_once_each(
    keys text[],
    scope text DEFAULT '',
    principal text DEFAULT '',
    ttl interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    same_statement boolean DEFAULT false
) RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_once_each';
COMMENT ON FUNCTION @extschema@.idem_once_each
    IS 'the keys of the array that are new, each once; call it in the transaction that handles the messages';
REVOKE ALL ON FUNCTION @extschema@.idem_once_each FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_execute(
    key text,
    operation regprocedure,
    request jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    fingerprint bytea DEFAULT NULL,
    ttl interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    first_sent timestamptz DEFAULT NULL,
    holder text DEFAULT NULL,
    method text DEFAULT NULL,
    path text DEFAULT NULL
) RETURNS @extschema@.idem_claim
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 SUPPORT idempotency.without_defaults
    AS 'MODULE_PATHNAME', 'idem_execute';
COMMENT ON FUNCTION @extschema@.idem_execute
    IS 'run a function of jsonb exactly once and store its result';
REVOKE ALL ON FUNCTION @extschema@.idem_execute FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_get(
    key text,
    scope text DEFAULT '',
    principal text DEFAULT ''
) RETURNS @extschema@.idem_claim
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_get';
COMMENT ON FUNCTION @extschema@.idem_get IS 'read a record and decide nothing; works on a standby';
REVOKE ALL ON FUNCTION @extschema@.idem_get FROM PUBLIC;

----------------------------------------------------------------------------------------------------
-- For workers
----------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.idem_claim_due(
    scope text,
    max_claims integer DEFAULT 1,
    lease interval DEFAULT NULL,
    holder text DEFAULT NULL
) RETURNS SETOF @extschema@.idem_due
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_worker_claim_due';
COMMENT ON FUNCTION @extschema@.idem_claim_due
    IS 'claim up to max_claims records that are due, oldest first; those that another session has are passed over';
REVOKE ALL ON FUNCTION @extschema@.idem_claim_due FROM PUBLIC;

----------------------------------------------------------------------------------------------------
-- For operators
----------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.idem_resolve(
    key text,
    action text,
    scope text DEFAULT '',
    principal text DEFAULT '',
    status_code integer DEFAULT NULL,
    body text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    reason text DEFAULT NULL,
    even_if_running boolean DEFAULT false
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_resolve';
COMMENT ON FUNCTION @extschema@.idem_resolve
    IS 'decide a record that waits for its holder or for an operator: release, complete, fail or reopen';
REVOKE ALL ON FUNCTION @extschema@.idem_resolve FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_explain(
    key text,
    request jsonb DEFAULT NULL,
    scope text DEFAULT '',
    principal text DEFAULT '',
    fingerprint bytea DEFAULT NULL,
    ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    first_sent timestamptz DEFAULT NULL,
    show_values boolean DEFAULT false,
    method text DEFAULT NULL,
    path text DEFAULT NULL
) RETURNS @extschema@.idem_explanation
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_explain';
COMMENT ON FUNCTION @extschema@.idem_explain
    IS 'the outcome that idem_begin would return now, and the reason; changes nothing, works on a standby';
REVOKE ALL ON FUNCTION @extschema@.idem_explain FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_attempts(
    key text,
    scope text DEFAULT '',
    principal text DEFAULT ''
) RETURNS TABLE (
    attempt        integer,
    holder         text,
    begun          timestamptz,
    ended          timestamptz,
    how            text,
    status_code    integer,
    error          text,
    reference      text,
    resolved_by    text,
    retained_until timestamptz,
    sealed_by      text
)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_attempts';
COMMENT ON FUNCTION @extschema@.idem_attempts
    IS 'how the attempts of a key ended, encrypted values included';
REVOKE ALL ON FUNCTION @extschema@.idem_attempts FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_forget(
    key text,
    scope text DEFAULT '',
    principal text DEFAULT '',
    reason text DEFAULT NULL
) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_forget';
COMMENT ON FUNCTION @extschema@.idem_forget IS 'remove a record; the key can be executed again';
REVOKE ALL ON FUNCTION @extschema@.idem_forget FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_resolve_idle(
    key text,
    action text,
    scope text DEFAULT '',
    principal text DEFAULT '',
    status_code integer DEFAULT NULL,
    body text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    reason text DEFAULT NULL,
    status text DEFAULT NULL,
    claimed_at timestamptz DEFAULT NULL
) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_resolve_idle';
COMMENT ON FUNCTION @extschema@.idem_resolve_idle
    IS 'decide a record that is not running: done, running, passed, closed, or why it could not be decided';
REVOKE ALL ON FUNCTION @extschema@.idem_resolve_idle FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_erase(
    key text,
    scope text DEFAULT '',
    principal text DEFAULT '',
    reason text DEFAULT NULL
) RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_erase';
COMMENT ON FUNCTION @extschema@.idem_erase
    IS 'forget a record that is not running, without its names in the audit: done, running, passed or closed';
REVOKE ALL ON FUNCTION @extschema@.idem_erase FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_await_claims(principal text, at_most interval DEFAULT '10 seconds') RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_await_claims';
COMMENT ON FUNCTION @extschema@.idem_await_claims
    IS 'wait for the transactions that write records, on the node of a principal; returns how many are still open';
REVOKE ALL ON FUNCTION @extschema@.idem_await_claims FROM PUBLIC;

-- Not named "principal": every node has decisions about every principal, so no call is delegated.
CREATE FUNCTION @extschema@.idem_erase_decisions(of_principal text, reason text DEFAULT NULL) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_operator_erase_decisions';
COMMENT ON FUNCTION @extschema@.idem_erase_decisions
    IS 'make this node''s decisions about a principal anonymous; returns how many';
REVOKE ALL ON FUNCTION @extschema@.idem_erase_decisions FROM PUBLIC;

CREATE PROCEDURE @extschema@.idem_resolve_all(
    action text,
    reason text DEFAULT NULL,
    scope text DEFAULT NULL,
    principal text DEFAULT NULL,
    status text DEFAULT NULL,
    older_than interval DEFAULT NULL,
    holder text DEFAULT NULL,
    status_code integer DEFAULT NULL,
    body text DEFAULT NULL,
    headers jsonb DEFAULT NULL,
    error text DEFAULT NULL,
    batch_size integer DEFAULT 500,
    INOUT resolved bigint DEFAULT NULL,
    INOUT running bigint DEFAULT NULL,
    INOUT running_keys jsonb DEFAULT NULL,
    INOUT closed bigint DEFAULT NULL,
    INOUT closed_scopes jsonb DEFAULT NULL,
    INOUT undecided bigint DEFAULT NULL,
    INOUT undecided_scopes jsonb DEFAULT NULL
)
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_operator_resolve_all';
COMMENT ON PROCEDURE @extschema@.idem_resolve_all
    IS 'decide all matching records that are not running; commits after each batch';
REVOKE ALL ON PROCEDURE @extschema@.idem_resolve_all FROM PUBLIC;

CREATE PROCEDURE @extschema@.idem_forget_principal(
    principal text,
    reason text DEFAULT NULL,
    batch_size integer DEFAULT 500,
    INOUT forgotten bigint DEFAULT NULL,
    INOUT running bigint DEFAULT NULL,
    INOUT running_keys jsonb DEFAULT NULL,
    INOUT closed bigint DEFAULT NULL,
    INOUT closed_scopes jsonb DEFAULT NULL,
    INOUT decisions bigint DEFAULT NULL,
    INOUT complete boolean DEFAULT NULL
)
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_operator_forget_principal';
COMMENT ON PROCEDURE @extschema@.idem_forget_principal
    IS 'forget all records of a principal that are not running, and its names in the audit; commits after each batch';
REVOKE ALL ON PROCEDURE @extschema@.idem_forget_principal FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_audit_verify(link text DEFAULT NULL)
    RETURNS TABLE (number bigint, rows bigint, problem text, decided_at timestamptz, detail text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_staff_audit_verify';
COMMENT ON FUNCTION @extschema@.idem_audit_verify
    IS 'decisions of this node that were changed, removed or inserted past the functions; none: the audit is whole';
REVOKE ALL ON FUNCTION @extschema@.idem_audit_verify FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_cleanup(max_rows bigint DEFAULT 10000) RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_administrator_cleanup';
COMMENT ON FUNCTION @extschema@.idem_cleanup
    IS 'remove up to max_rows expired records; returns how many';
REVOKE ALL ON FUNCTION @extschema@.idem_cleanup FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_policy_set(
    scope_pattern text,
    ttl interval DEFAULT NULL,
    retention interval DEFAULT NULL,
    max_ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL,
    max_lease interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    retry_base interval DEFAULT NULL,
    retry_cap interval DEFAULT NULL,
    retry_jitter text DEFAULT NULL,
    on_missing_key text DEFAULT NULL,
    derive_window interval DEFAULT NULL,
    principal_required boolean DEFAULT NULL,
    fingerprint_required boolean DEFAULT NULL,
    store_request boolean DEFAULT NULL,
    on_lease_expiry text DEFAULT NULL,
    unknown_retry_after interval DEFAULT NULL,
    abandon_after interval DEFAULT NULL,
    on_abandon text DEFAULT NULL,
    max_body_bytes integer DEFAULT NULL,
    on_large_body text DEFAULT NULL,
    fingerprint_fields text[] DEFAULT NULL,
    exclude_fields text[] DEFAULT NULL,
    drop_headers text[] DEFAULT NULL,
    final_errors text[] DEFAULT NULL,
    error_statuses jsonb DEFAULT NULL,
    allowed_role regrole DEFAULT NULL,
    keep_history boolean DEFAULT NULL,
    encrypt boolean DEFAULT NULL,
    transactional_only boolean DEFAULT NULL,
    reason_required boolean DEFAULT NULL,
    max_open_claims integer DEFAULT NULL,
    reason text DEFAULT NULL,
    replace boolean DEFAULT false
) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_administrator_policy_set';
COMMENT ON FUNCTION @extschema@.idem_policy_set
    IS 'create the policy of a scope, or of all scopes with the same beginning; replace it if told to';
REVOKE ALL ON FUNCTION @extschema@.idem_policy_set FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_policy_alter(
    scope_pattern text,
    ttl interval DEFAULT NULL,
    retention interval DEFAULT NULL,
    max_ttl interval DEFAULT NULL,
    lease interval DEFAULT NULL,
    max_lease interval DEFAULT NULL,
    wait interval DEFAULT NULL,
    max_attempts integer DEFAULT NULL,
    retry_base interval DEFAULT NULL,
    retry_cap interval DEFAULT NULL,
    retry_jitter text DEFAULT NULL,
    on_missing_key text DEFAULT NULL,
    derive_window interval DEFAULT NULL,
    principal_required boolean DEFAULT NULL,
    fingerprint_required boolean DEFAULT NULL,
    store_request boolean DEFAULT NULL,
    on_lease_expiry text DEFAULT NULL,
    unknown_retry_after interval DEFAULT NULL,
    abandon_after interval DEFAULT NULL,
    on_abandon text DEFAULT NULL,
    max_body_bytes integer DEFAULT NULL,
    on_large_body text DEFAULT NULL,
    fingerprint_fields text[] DEFAULT NULL,
    exclude_fields text[] DEFAULT NULL,
    drop_headers text[] DEFAULT NULL,
    final_errors text[] DEFAULT NULL,
    error_statuses jsonb DEFAULT NULL,
    allowed_role regrole DEFAULT NULL,
    keep_history boolean DEFAULT NULL,
    encrypt boolean DEFAULT NULL,
    transactional_only boolean DEFAULT NULL,
    reason_required boolean DEFAULT NULL,
    max_open_claims integer DEFAULT NULL,
    unset text[] DEFAULT NULL,
    reason text DEFAULT NULL
) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_administrator_policy_alter';
COMMENT ON FUNCTION @extschema@.idem_policy_alter
    IS 'change the named options of a policy';
REVOKE ALL ON FUNCTION @extschema@.idem_policy_alter FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_policy_drop(scope_pattern text, reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_administrator_policy_drop';
COMMENT ON FUNCTION @extschema@.idem_policy_drop IS 'drop a policy; false if there is none';
REVOKE ALL ON FUNCTION @extschema@.idem_policy_drop FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_policy(scope text DEFAULT '')
    RETURNS TABLE (option text, value text, source text, origin text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_staff_policy';
COMMENT ON FUNCTION @extschema@.idem_policy
    IS 'options in force for a scope, and their sources: policy, setting or default';
REVOKE ALL ON FUNCTION @extschema@.idem_policy FROM PUBLIC;

CREATE PROCEDURE @extschema@.idem_reseal(batch bigint DEFAULT 200, INOUT remaining bigint DEFAULT NULL)
    LANGUAGE c AS 'MODULE_PATHNAME', 'idem_administrator_reseal';
COMMENT ON PROCEDURE @extschema@.idem_reseal
    IS 'encrypt again, with the current key, all values of other keys; commits after each batch';
REVOKE ALL ON PROCEDURE @extschema@.idem_reseal FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_verify_sealed()
    RETURNS TABLE (key_id text, records bigint, unopened bigint, scope text, principal text, key text, why text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_administrator_verify_sealed';
COMMENT ON FUNCTION @extschema@.idem_verify_sealed
    IS 'decrypt all encrypted values of this node; for each key, the records that fail';
REVOKE ALL ON FUNCTION @extschema@.idem_verify_sealed FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_stats_reset() RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_administrator_stats_reset';
COMMENT ON FUNCTION @extschema@.idem_stats_reset IS 'set the counters of this database to zero';
REVOKE ALL ON FUNCTION @extschema@.idem_stats_reset FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_grant(
    role regrole,
    operator boolean DEFAULT false,
    reason text DEFAULT NULL,
    administrator boolean DEFAULT false,
    worker boolean DEFAULT false
) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_owner_grant';
COMMENT ON FUNCTION @extschema@.idem_grant
    IS 'let a role call the protocol, and the functions for operators, administrators or workers if wanted';
REVOKE ALL ON FUNCTION @extschema@.idem_grant FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_revoke(role regrole, reason text DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_owner_revoke';
COMMENT ON FUNCTION @extschema@.idem_revoke IS 'take back the grants of idem_grant';
REVOKE ALL ON FUNCTION @extschema@.idem_revoke FROM PUBLIC;

CREATE FUNCTION @extschema@.idem_distribute(colocate_with regclass DEFAULT NULL) RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 10000 AS 'MODULE_PATHNAME', 'idem_owner_distribute';
COMMENT ON FUNCTION @extschema@.idem_distribute
    IS 'distribute the records over the nodes of a Citus cluster, by principal';
REVOKE ALL ON FUNCTION @extschema@.idem_distribute FROM PUBLIC;

----------------------------------------------------------------------------------------------------
-- Pure helpers
----------------------------------------------------------------------------------------------------

CREATE FUNCTION @extschema@.idem_fingerprint(
    request jsonb,
    method text DEFAULT NULL,
    path text DEFAULT NULL,
    exclude text[] DEFAULT NULL,
    fields text[] DEFAULT NULL
) RETURNS bytea
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_fingerprint';
COMMENT ON FUNCTION @extschema@.idem_fingerprint
    IS 'SHA-256 over method, path and the canonical form of a request';

CREATE FUNCTION @extschema@.idem_key(VARIADIC parts text[]) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_key';
COMMENT ON FUNCTION @extschema@.idem_key IS 'join parts into an unambiguous key';

CREATE FUNCTION @extschema@.idem_event_id(event_type text, resource_id text, updated_at timestamptz)
    RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_event_id';
COMMENT ON FUNCTION @extschema@.idem_event_id IS 'the same id for the same event, on every machine';

CREATE FUNCTION @extschema@.idem_parse_key(header text) RETURNS text
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_parse_key';
COMMENT ON FUNCTION @extschema@.idem_parse_key
    IS 'the key in an HTTP Idempotency-Key field; null if there is none';

CREATE FUNCTION @extschema@.idem_http_status(outcome text) RETURNS integer
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_http_status';
COMMENT ON FUNCTION @extschema@.idem_http_status
    IS 'the HTTP status of an outcome; null for execute and replay, which have their own';

CREATE FUNCTION @extschema@.idem_problem(claim @extschema@.idem_claim) RETURNS jsonb
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_problem';
COMMENT ON FUNCTION @extschema@.idem_problem(@extschema@.idem_claim)
    IS 'the RFC 9457 problem document of a claim; null if the stored response is sent';

CREATE FUNCTION @extschema@.idem_problem(outcome text) RETURNS jsonb
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_problem_text';
COMMENT ON FUNCTION @extschema@.idem_problem(text)
    IS 'the RFC 9457 problem document of an outcome; null for execute and replay';

CREATE FUNCTION @extschema@.idem_backoff(attempt integer, base interval, cap interval)
    RETURNS interval
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'idem_backoff';
COMMENT ON FUNCTION @extschema@.idem_backoff
    IS 'the longest pause after an attempt; with jitter the actual one is random below it';

CREATE FUNCTION @extschema@.idem_response(status_code integer, headers jsonb, body text)
    RETURNS @extschema@.idem_response
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(status_code, headers, convert_to(body, getdatabaseencoding()));
COMMENT ON FUNCTION @extschema@.idem_response(integer, jsonb, text) IS 'a response with a text body';

CREATE FUNCTION @extschema@.idem_response(status_code integer, headers jsonb, body bytea)
    RETURNS @extschema@.idem_response
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(status_code, headers, body);
COMMENT ON FUNCTION @extschema@.idem_response(integer, jsonb, bytea) IS 'a response with a binary body';

CREATE FUNCTION @extschema@.idem_response(status_code integer, headers jsonb, body jsonb)
    RETURNS @extschema@.idem_response
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(status_code, headers, convert_to(body::text, getdatabaseencoding()));
COMMENT ON FUNCTION @extschema@.idem_response(integer, jsonb, jsonb) IS 'a response with a JSON body';

CREATE FUNCTION @extschema@.idem_response(status_code integer, headers jsonb, body json)
    RETURNS @extschema@.idem_response
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ROW(status_code, headers, convert_to(body::text, getdatabaseencoding()));
COMMENT ON FUNCTION @extschema@.idem_response(integer, jsonb, json) IS 'a response with a JSON body';

----------------------------------------------------------------------------------------------------
-- Rights in the schema idempotency. Members of pg_monitor see all but requests and answers. Those of
-- pg_read_all_data read every table anyway: the views call these functions.
----------------------------------------------------------------------------------------------------

-- What ALTER DEFAULT PRIVILEGES has given to roles. A role that reads all tables would read requests.
DO $revoke$
DECLARE
    grant_made text;
BEGIN
    FOR grant_made IN
        SELECT format('REVOKE ALL ON %s FROM %s', o.name,
                      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
          FROM (SELECT p.oid, 'ROUTINE ' || p.oid::regprocedure, p.proowner, p.proacl FROM pg_proc p
                 UNION ALL
                SELECT c.oid, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass,
                       c.relowner, c.relacl FROM pg_class c
                 UNION ALL
                SELECT n.oid, format('SCHEMA %I', n.nspname), n.nspowner, n.nspacl FROM pg_namespace n
               ) o(oid, name, owner, acl)
          JOIN pg_depend d ON d.objid = o.oid AND d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
          JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'idempotency',
               aclexplode(o.acl) a
         WHERE a.grantee <> o.owner AND NOT (a.grantee = 0 AND o.name LIKE 'ROUTINE %') LOOP
        EXECUTE grant_made;
    END LOOP;
END
$revoke$;


REVOKE ALL ON ALL ROUTINES IN SCHEMA idempotency FROM PUBLIC;
-- Each role that the tables may belong to writes records.
GRANT EXECUTE ON FUNCTION idempotency.is_record TO PUBLIC;
-- Each role that the audit may belong to links it. These run with the caller's rights on the tables.
GRANT EXECUTE ON FUNCTION idempotency.link_decisions, idempotency.remove_old_decisions, idempotency.faults_of_audit,
    idempotency.digest_of_texts, idempotency.digest_of_names, idempotency.digest_of_decision, idempotency.next_link TO PUBLIC;
GRANT USAGE ON SCHEMA idempotency TO pg_monitor;
GRANT EXECUTE ON FUNCTION @extschema@.idem_audit_verify TO pg_monitor;
GRANT EXECUTE ON FUNCTION idempotency.claim_lives, idempotency.this_node, idempotency.of_nodes,
    idempotency.claims_here, idempotency.backlog, idempotency.due_by_scope, idempotency.scope_stats,
    idempotency.tables_here, idempotency.keys_here TO pg_monitor, pg_read_all_data;
GRANT SELECT ON idempotency.policies, idempotency.in_flight, idempotency.abandoned,
    idempotency.unknown, idempotency.exhausted, idempotency.due, idempotency.sweeper,
    idempotency.stats, idempotency.stores, idempotency.encryption_keys, idempotency.encryption_keys_here,
    idempotency.in_flight_here, idempotency.abandoned_here, idempotency.unknown_here,
    idempotency.exhausted_here, idempotency.due_here, idempotency.sweeper_here, idempotency.stats_here, idempotency.stores_here,
    idempotency.decisions, idempotency.decisions_here TO pg_monitor;
GRANT SELECT (scope, principal, key, status, attempt, status_code, body_omitted, recovery_point, holder,
              held, created_at, claimed_at, finished_at, lease_until, next_attempt_at, expires_at,
              retained_until, operation, resolved_by, sealed_by, node)
    ON idempotency.records TO pg_monitor;
GRANT SELECT (scope, principal, key, attempt, holder, begun, ended, how, status_code, resolved_by,
              retained_until, sealed_by, node)
    ON idempotency.attempts TO pg_monitor;
