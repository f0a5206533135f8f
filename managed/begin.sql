-- From a question to an answer (src/claim/question.cpp, begin.cpp, grant.cpp, locks.cpp).
--
-- A call looks at the record, and only if that says "execute" tries the lock of the key. The row that it
-- then writes is the truth: an insertion meets the unique index, and an update names the version that was
-- seen. So a session that ignores the lock can't break "once".

-- The record of a key; null: none.
CREATE FUNCTION idempotency.record_of(key text, scope text, principal text) RETURNS idempotency.record
    LANGUAGE plpgsql
    RETURN (SELECT t FROM idempotency.record t
             WHERE t.key = record_of.key AND t.scope = record_of.scope AND t.principal = record_of.principal);

-- Refuses a record that the module has encrypted.
CREATE FUNCTION idempotency.check_readable(r idempotency.record) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF r.sealed_by IS NOT NULL THEN PERFORM idempotency.refuse('sealed', r.sealed_by); END IF;
END $$;

-- Whether this transaction has an open claim on a record.
CREATE FUNCTION idempotency.is_own_claim(r idempotency.record) RETURNS boolean LANGUAGE sql STABLE AS $$
SELECT coalesce((r).open_claim IN ('o', 't', 'q', 'r', 'l')
                AND (r).written_in = pg_current_xact_id_if_assigned(), false) $$;

-- Whether the key of a record was derived from the request.
CREATE FUNCTION idempotency.is_derived(r idempotency.record) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce((r).fingerprint_of & 8 <> 0, false) $$;

-- A setting of the server that is a span, in milliseconds.
CREATE FUNCTION idempotency.server_ms(of_setting text) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT s.setting::bigint FROM pg_settings s WHERE s.name = of_setting $$;

-- The lock of a key. The seed is secret, so that clients can't compute keys that share a lock.
CREATE FUNCTION idempotency.lock_of(key text, scope text, principal text) RETURNS integer
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    secret bytea := (SELECT s.value FROM idempotency.seed s);
BEGIN
    IF secret IS NULL THEN
        -- Where the table is too new for this snapshot, so is its row.
        PERFORM idempotency.refuse(CASE WHEN EXISTS (SELECT FROM pg_class c WHERE c.oid = 'idempotency.seed'::regclass)
                                        THEN 'no_seed' ELSE 'tables_anew' END);
    END IF;
    RETURN idempotency.lock_number(secret, key, scope, principal);
END $$;

-- The first 32 bits of a digest of seed and key.
CREATE FUNCTION idempotency.lock_number(secret bytea, key text, scope text, principal text) RETURNS integer
    LANGUAGE sql STABLE AS $$
SELECT ('x' || left(encode(sha256(secret || convert_to(
    length(key) || ':' || key || length(scope) || ':' || scope || principal, 'UTF8')), 'hex'), 8))::bit(32)::integer $$;

-- A question with all that follows from it. Argument, else policy, else setting. Refuses what the policy
-- forbids, before anything is granted.
CREATE FUNCTION idempotency.settle(INOUT q idempotency.question, p idempotency.in_force)
    LANGUAGE plpgsql AS $$
DECLARE
    f record;
    nothing_counts boolean := false;
    derives boolean := q.derive IS NOT NULL OR p.on_missing_key = 'derive';
BEGIN
    IF q.key IS NULL AND q.derive IS NULL AND p.on_missing_key = 'error' THEN
        PERFORM idempotency.refuse('required', 'key', 'Pass the key that the client sent.');
    ELSIF p.principal_required AND q.principal = '' THEN
        PERFORM idempotency.refuse('required', 'principal', 'Pass the tenant or user of the request.');
    END IF;
    q.transactional := q.transactional OR p.transactional_only;
    IF q.transactional AND (q.hold OR q.lease IS NOT NULL) THEN
        PERFORM idempotency.refuse('not_transactional', CASE WHEN q.hold THEN 'hold' ELSE 'lease' END);
    END IF;
    IF q.fingerprint IS NOT NULL THEN
        IF p.fingerprint_fields IS NOT NULL OR cardinality(p.exclude_fields) > 0 OR p.on_missing_key = 'derive' THEN
            PERFORM idempotency.refuse('digest_in_scope');
        END IF;
        q.fingerprint_of := 4;
    ELSE
        q.excluded := CASE WHEN coalesce(cardinality(q.exclude), 0) = 0 THEN p.exclude_fields
                           WHEN coalesce(cardinality(p.exclude_fields), 0) = 0 THEN q.exclude
                           ELSE p.exclude_fields || idempotency.check_list(q.exclude, 'exclude') END;
        q.fingerprint_of := CASE WHEN q.method IS NULL THEN 0 ELSE 1 END + CASE WHEN q.path IS NULL THEN 0 ELSE 2 END;
        IF q.request IS NOT NULL OR q.fingerprint_of > 0 THEN
            f := idempotency.fingerprint_of(q.request, q.method, q.path, q.excluded, p.fingerprint_fields);
            q.fingerprint := f.fingerprint;
            nothing_counts := f.nothing_counts;
        ELSIF p.fingerprint_required AND NOT q.without_request THEN
            PERFORM idempotency.refuse('required', 'fingerprint', 'Pass request or fingerprint.');
        END IF;
    END IF;
    IF q.key IS NULL AND derives THEN
        IF q.fingerprint IS NULL OR nothing_counts THEN
            PERFORM idempotency.refuse('not_derivable',
                CASE WHEN q.fingerprint IS NULL THEN 'there is none' ELSE 'none of its fields counts' END);
        END IF;
        q.fingerprint_of := q.fingerprint_of + 8;
        q.key := encode(idempotency.digest(q.principal, q.scope, '"' || encode(q.fingerprint, 'hex') || '"'), 'hex');
    ELSIF q.key IS NULL THEN
        -- A UUID of version 7: milliseconds since 1970, the version, and the rest of a random one.
        q.key := encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
            PLACING substr(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 3) FROM 1), 52, 1), 53, 1), 'hex')::uuid::text;
    END IF;
    IF p.store_request AND q.request IS NOT NULL THEN
        PERFORM idempotency.check_size('request', q.request::text, p.max_body_bytes);
    END IF;
    q.own_ttl := q.ttl IS NOT NULL;
    q.ttl := least(coalesce(q.ttl, p.ttl), p.max_ttl);
    q.lease := least(coalesce(q.lease, p.lease), p.max_lease);
    q.wait := coalesce(q.wait, p.wait);
    q.retention := greatest(p.retention, q.ttl);
    IF q.fingerprint_of & 8 <> 0 THEN
        q.retention := CASE WHEN p.on_missing_key <> 'derive' THEN least(q.derive, greatest(p.retention, p.max_ttl))
                            WHEN p.derive_window = 0 THEN q.ttl ELSE p.derive_window END;
        q.ttl := least(q.ttl, q.retention);
    END IF;
    q.memory := q.retention;
    IF q.first_sent IS NOT NULL THEN
        q.memory := least(q.memory, idempotency.memory_since(q.scope, q.first_sent));
    END IF;
END $$;

-- False if record and question are known to be of different operations or requests. The policy may count
-- other fields than it did: then the request is asked once more, by the rule of then.
CREATE FUNCTION idempotency.same_request(r idempotency.record, q idempotency.question, p idempotency.in_force)
    RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE
    of_caller boolean := coalesce(r.fingerprint_of & 4 <> 0, false);
    fields text[] := CASE WHEN NOT of_caller THEN r.counted END;
    exclude text[] := CASE WHEN of_caller THEN q.exclude ELSE r.excluded END;
BEGIN
    IF r.operation <> q.operation THEN
        RETURN false;
    ELSIF q.fingerprint IS NULL OR r.fingerprint IS NULL OR r.fingerprint = q.fingerprint THEN
        RETURN true;
    ELSIF q.fingerprint_of & 4 <> 0 OR q.request IS NULL
          OR (fields IS NOT DISTINCT FROM p.fingerprint_fields AND exclude IS NOT DISTINCT FROM q.excluded) THEN
        RETURN false;
    END IF;
    RETURN r.fingerprint = (idempotency.fingerprint_of(q.request, q.method, q.path, exclude, fields)).fingerprint;
END $$;

-- Refuses work whose snapshot may be too old.
CREATE FUNCTION idempotency.raise_unseen(decided_here boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    -- With a number of its own this transaction ends visibly: a retry has a newer snapshot.
    PERFORM pg_current_xact_id();
    PERFORM idempotency.refuse(CASE WHEN decided_here THEN 'unseen_own' ELSE 'unseen' END);
END $$;

-- The transaction of a row's last version.
CREATE FUNCTION idempotency.writer_of(written_in xid8, xmin xid) RETURNS xid8 LANGUAGE sql STABLE AS $$
SELECT coalesce(written_in, CASE WHEN xmin::text::bigint < 3 THEN '3'::xid8
    ELSE (greatest(3, n - ((n - xmin::text::bigint) & 4294967295)))::text::xid8 END)
  FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS n) now $$;

-- Whether a transaction has committed since a snapshot. Rows that come from a dump may name a transaction
-- that this server has yet to begin.
CREATE FUNCTION idempotency.is_news(writer xid8, snapshot pg_snapshot) RETURNS boolean LANGUAGE plpgsql
    RETURN NOT pg_visible_in_snapshot(writer, snapshot) AND writer < pg_snapshot_xmax(pg_current_snapshot());

-- How long removals of records are traced. Records that ended longer ago than this are swept without a
-- trace. So a snapshot of that age is too old to be granted a key that has no record.
CREATE FUNCTION idempotency.trace_kept() RETURNS interval
    LANGUAGE sql IMMUTABLE AS $$ SELECT interval '1 hour' $$;

-- The last removals in a part of the keys. PostgreSQL raises 40001 itself if a fixed snapshot does not see the
-- last one. The savepoint of the block gives the row back: a removal of another key does not wait for a claim.
CREATE FUNCTION idempotency.removals_of(lock integer, fixed boolean) RETURNS idempotency.removal LANGUAGE plpgsql AS $$
DECLARE
    removed idempotency.removal;
BEGIN
    SELECT * INTO removed FROM idempotency.removal m WHERE m.part = lock & 63;
    IF fixed THEN
        PERFORM FROM idempotency.removal m WHERE m.part = lock & 63 FOR SHARE;
        RAISE EXCEPTION USING ERRCODE = 'ID000', MESSAGE = 'the row is given back';
    END IF;
    RETURN removed;
EXCEPTION WHEN SQLSTATE 'ID000' THEN
    RETURN removed;
END $$;

-- An error unless the work will see every effect of the attempts before. In READ COMMITTED it takes its
-- snapshot after the grant, unless it is part of the calling statement.
CREATE FUNCTION idempotency.require_sight(q idempotency.question, r idempotency.record, lock integer)
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    fixed boolean := idempotency.snapshot_is_fixed();
    since timestamptz := CASE WHEN fixed THEN transaction_timestamp() ELSE statement_timestamp() END;
    own xid8 := pg_current_xact_id_if_assigned();
    removed idempotency.removal;
    writer xid8;
BEGIN
    IF NOT fixed AND NOT q.same_statement THEN RETURN; END IF;
    removed := idempotency.removals_of(lock, fixed);
    IF removed.forgotten_in = own THEN
        PERFORM idempotency.raise_unseen(true);
    ELSIF r.token IS NULL AND (since < clock_timestamp() - idempotency.trace_kept()
                               OR (NOT fixed AND idempotency.is_news(removed.removed_in, q.snapshot))) THEN
        PERFORM idempotency.raise_unseen();
    ELSIF r.token IS NULL THEN
        RETURN;
    END IF;
    writer := (SELECT idempotency.writer_of(t.written_in, t.xmin) FROM idempotency.record t
                WHERE t.key = r.key AND t.scope = r.scope AND t.principal = r.principal);
    IF writer = own AND coalesce(r.open_claim, 'd') = 'd' THEN
        PERFORM idempotency.raise_unseen(true);
    ELSIF writer IS DISTINCT FROM own AND NOT fixed AND idempotency.is_news(writer, q.snapshot)
          -- Until its lease ended the holder may have committed effects in transactions of its own.
          OR r.status = 'i' AND since <= r.lease_until AND (fixed OR q.snapshot::text <> pg_current_snapshot()::text) THEN
        PERFORM idempotency.raise_unseen();
    END IF;
END $$;

-- The token of a moment: microseconds since 2000.
CREATE FUNCTION idempotency.token_at(moment timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT (date_part('epoch', moment) * 1000000)::bigint - 946684800000000 $$;

-- A token larger than the previous one. Not in SQL: a function in SQL that is not inlined is planned at each call.
CREATE FUNCTION idempotency.new_token(previous bigint) RETURNS bigint LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    now constant bigint := idempotency.token_at(clock_timestamp());
BEGIN
    RETURN CASE WHEN now > coalesce(previous, 0) THEN now ELSE previous + 1 + floor(random() * 65536)::bigint END;
END $$;

-- A token for the next claim of a record. Larger than that of a claim that was released before, too: the row
-- that came back keeps it.
CREATE FUNCTION idempotency.next_token(r idempotency.record) RETURNS bigint LANGUAGE sql VOLATILE AS $$
SELECT idempotency.new_token(greatest((r).token, CASE WHEN (r).open_claim = 'g' THEN (r).before::bigint END)) $$;

-- A row as text, the same in sessions with other styles of dates.
CREATE FUNCTION idempotency.packed(r idempotency.record) RETURNS text
    LANGUAGE sql STABLE SET datestyle = 'ISO' AS $$ SELECT r::text $$;

-- A record from its text.
CREATE FUNCTION idempotency.unpacked(packed text) RETURNS idempotency.record
    LANGUAGE sql STABLE SET datestyle = 'ISO' AS $$ SELECT packed::idempotency.record $$;

-- Whether the principal may have one more claim. Other transactions' claims count from their commit on.
CREATE FUNCTION idempotency.has_room(q idempotency.question, most integer) RETURNS boolean
    LANGUAGE sql VOLATILE AS $$
SELECT most > (SELECT count(*) FROM (
    SELECT FROM idempotency.record t
     WHERE t.status = ANY ('{i,u,x}'::"char"[]) AND t.status = 'i' AND t.scope = (q).scope AND t.principal = (q).principal
       AND idempotency.lives(t, clock_timestamp())
       AND (t.open_claim IN ('t', 'q', 'r') AND t.written_in = pg_current_xact_id_if_assigned()) IS NOT TRUE
     LIMIT most) live) $$;

-- Writes the row of a granted claim, and the end of one that it takes over. Null if another transaction got in.
CREATE FUNCTION idempotency.grant_claim(q idempotency.question, p idempotency.in_force, r idempotency.record,
                                        execution text, now timestamptz) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
DECLARE
    n idempotency.record;
    old idempotency.record := r;
    derived boolean;
BEGIN
    IF p.max_open_claims > 0 AND NOT (q.transactional OR q.once OR q.operation IS NOT NULL)
       AND NOT idempotency.has_room(q, p.max_open_claims) THEN
        PERFORM idempotency.refuse('too_many_claims');
    END IF;
    IF execution IN ('takeover', 'retry') THEN
        n := r;
        n.status_code := NULL; n.headers := NULL; n.body := NULL; n.body_omitted := false; n.reference := NULL;
    ELSE
        n.scope := q.scope; n.principal := q.principal; n.key := q.key; n.attempt := 0; n.created_at := now;
        n.body_omitted := false;
    END IF;
    -- The window of a derived key begins with its first attempt.
    derived := coalesce(n.fingerprint_of & 8 <> 0, false);
    IF q.fingerprint IS NOT NULL THEN
        n.fingerprint := q.fingerprint;
        n.fingerprint_of := nullif(q.fingerprint_of | coalesce(n.fingerprint_of & 8, 0), 0);
        n.counted := p.fingerprint_fields;
        n.excluded := q.excluded;
    END IF;
    n.operation := coalesce(q.operation, n.operation);
    IF p.store_request THEN
        n.request := coalesce(q.request, n.request); n.method := coalesce(q.method, n.method); n.path := coalesce(q.path, n.path);
    END IF;
    n.status := 'i'; n.attempt := n.attempt + 1;
    n.token := idempotency.next_token(old);
    n.claimed_at := now;
    -- A later attempt never lets a key be forgotten sooner. Without a ttl of its own it has that of the one before.
    IF NOT derived THEN
        IF n.retained_until = 'infinity' THEN
            n.retained_until := NULL;
        ELSIF NOT q.own_ttl AND n.expires_at > old.claimed_at THEN
            q.ttl := least(idempotency.since(n.expires_at, old.claimed_at), p.max_ttl);
        END IF;
        n.expires_at := idempotency.after(now, q.ttl);
        n.retained_until := greatest(n.retained_until, idempotency.after(now, greatest(q.retention, q.ttl)));
    END IF;
    n.lease_us := q.lease; n.lease_until := idempotency.after(now, q.lease);
    n.next_attempt_at := NULL; n.finished_at := NULL;
    n.holder := q.holder; n.backend_pid := NULL; n.backend_start := NULL;
    IF q.hold THEN
        n.backend_pid := pg_backend_pid();
        n.backend_start := (SELECT a.backend_start FROM pg_stat_activity a WHERE a.pid = pg_backend_pid());
    END IF;
    n.body_limit := p.max_body_bytes;
    n.omit_large_body := p.on_large_body = 'omit';
    n.if_silent := CASE WHEN p.on_lease_expiry = 'unknown' THEN 'u'
                        WHEN p.max_attempts > 0 AND n.attempt >= p.max_attempts THEN 'x' ELSE 't' END;
    n.written_in := pg_current_xact_id();
    n.open_claim := CASE WHEN q.operation IS NOT NULL THEN 'r' WHEN q.transactional THEN 't' ELSE 'o' END;
    n.before := NULL;
    IF q.once THEN
        n.status := 'c'; n.finished_at := clock_timestamp(); n.lease_until := NULL; n.backend_pid := NULL;
        n.error := NULL; n.resolved_by := NULL; n.recovery_point := NULL; n.state := NULL; n.open_claim := 'n';
    END IF;
    IF old.token IS NULL THEN
        INSERT INTO idempotency.record SELECT n.* ON CONFLICT DO NOTHING;
        RETURN CASE WHEN FOUND THEN n END;
    ELSIF NOT q.once THEN
        old.before := NULL;
        n.before := idempotency.packed(old);
    END IF;
    IF NOT idempotency.replace_record(n, old) THEN RETURN NULL; END IF;
    IF old.status = 'i' THEN PERFORM idempotency.keep_attempt(p, old, 'taken_over'); END IF;
    RETURN n;
END $$;

-- Whether a row still is the version of a record that was seen.
CREATE FUNCTION idempotency.is_version(t idempotency.record, seen idempotency.record, any_lease boolean)
    RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT (t).token = (seen).token AND (t).status = (seen).status
       AND (any_lease OR (t).lease_until IS NOT DISTINCT FROM (seen).lease_until
                         AND (t).if_silent = (seen).if_silent) $$;

-- Replaces a record if it still is the version that was seen; else false.
CREATE FUNCTION idempotency.replace_record(n idempotency.record, old idempotency.record,
                                           any_lease boolean DEFAULT false) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    n.written_in := pg_current_xact_id();
    UPDATE idempotency.record t SET (/*CHANGED_COLUMNS*/) = ROW(/*NEW_VALUES*/)
     WHERE t.key = old.key AND t.scope = old.scope AND t.principal = old.principal
       AND idempotency.is_version(t, old, any_lease);
    IF FOUND THEN
        RETURN true;
    ELSIF idempotency.is_version(idempotency.record_of(old.key, old.scope, old.principal), old, any_lease) THEN
        PERFORM idempotency.refuse('record_dropped');
    END IF;
    RETURN false;
END $$;

---- waiting ----

-- Whether another session waits for a lock of this transaction, but for keys: repeats hold no lease.
CREATE FUNCTION idempotency.is_waited_for() RETURNS boolean LANGUAGE sql VOLATILE AS $$
SELECT EXISTS (SELECT FROM pg_locks l
                WHERE NOT l.granted AND l.pid <> pg_backend_pid()
                  AND (l.locktype <> 'advisory' OR l.objsubid <> 2 OR l.classid <> 18756)
                  AND pg_backend_pid() = ANY (pg_blocking_pids(l.pid))) $$;

-- Waits for the lock of a key. True if it is had, and the key may be free. What the block's savepoint
-- has locked is given back when the record says otherwise, or when no time is left.
CREATE FUNCTION idempotency.wait_for_lock(q idempotency.question, p idempotency.in_force, lock integer, micros bigint)
    RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    before constant text := current_setting('lock_timeout');
    of_user constant bigint := idempotency.server_ms('lock_timeout');
    ours constant bigint := greatest(1, micros / 1000);
    is_ours constant boolean := ours <= 86400000 AND (of_user = 0 OR of_user > ours);
    r idempotency.record;
BEGIN
    IF is_ours THEN PERFORM set_config('lock_timeout', ours || 'ms', true); END IF;
    PERFORM pg_advisory_xact_lock(18756, lock);
    PERFORM set_config('lock_timeout', before, true);
    r := idempotency.record_of(q.key, q.scope, q.principal);
    IF idempotency.execution_of(idempotency.reason_for(r, q, p, clock_timestamp())) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'ID000', MESSAGE = 'the lock is given back';
    END IF;
    RETURN true;
EXCEPTION
    WHEN SQLSTATE 'ID000' THEN
        RETURN false;
    WHEN lock_not_available THEN
        IF NOT is_ours THEN RAISE; END IF;
        RETURN false;
END $$;

-- Whether the transaction has one snapshot for all statements.
CREATE FUNCTION idempotency.snapshot_is_fixed() RETURNS boolean
    LANGUAGE sql STABLE AS $$ SELECT current_setting('transaction_isolation') IN ('repeatable read', 'serializable') $$;

-- The newest version of a record, after its lock.
CREATE FUNCTION idempotency.locked_record(key text, scope text, principal text) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(18756, idempotency.lock_of(key, scope, principal));
    RETURN idempotency.newest_record(key, scope, principal);
END $$;

-- The newest version of a record; an error if there may be a newer one. A fixed snapshot may see an old version,
-- or none. PostgreSQL raises 40001 for a lock on a version that is not the last, and for a row with the key of
-- one that the snapshot does not see. The savepoint of the block gives lock and row back.
CREATE FUNCTION idempotency.newest_record(key text, scope text, principal text) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
DECLARE
    r constant idempotency.record := idempotency.record_of(key, scope, principal);
BEGIN
    IF NOT idempotency.snapshot_is_fixed() THEN
        RETURN r;
    ELSIF r.token IS NULL THEN
        INSERT INTO idempotency.record (key, scope, principal, status, attempt, token, lease_us, created_at, claimed_at,
                                        expires_at, retained_until)
        VALUES (key, scope, principal, 'c', 1, 1, 1, now(), now(), now(), now()) ON CONFLICT DO NOTHING;
    ELSE
        PERFORM FROM idempotency.record t
          WHERE (t.key, t.scope, t.principal) = (r.key, r.scope, r.principal) FOR SHARE SKIP LOCKED;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'ID000', MESSAGE = 'lock and row are given back';
EXCEPTION WHEN SQLSTATE 'ID000' THEN
    RETURN r;
END $$;

---- the answer ----

-- Decides about a key, and claims it if it is free.
CREATE FUNCTION idempotency.answer(INOUT q idempotency.question, OUT p idempotency.in_force, OUT r idempotency.record,
                                   OUT reason text, OUT now timestamptz, OUT gave_way boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    started constant timestamptz := clock_timestamp();
    lock integer;
    locked boolean := false;
    seen_locked boolean := false;
    waited_for text;
    left_us bigint;
    execution text;
    granted idempotency.record;
    lease_wait timestamptz;
    next_check timestamptz;
    pause double precision := 0.005;
    lock_timeout bigint;
    deadlock_timeout bigint;
BEGIN
    p := idempotency.policy_for(q.scope);
    q := idempotency.settle(q, p);
    gave_way := false;
    LOOP
        r := idempotency.record_of(q.key, q.scope, q.principal);
        PERFORM idempotency.check_readable(r);
        now := clock_timestamp();
        left_us := CASE WHEN q.wait IS NOT NULL THEN q.wait - idempotency.since(now, started) END;
        reason := idempotency.reason_for(r, q, p, now);
        execution := idempotency.execution_of(reason);
        -- What an absent row says is certain under the lock alone: its writer may not have committed.
        IF execution IS NOT NULL OR r.token IS NULL THEN
            lock := coalesce(lock, idempotency.lock_of(q.key, q.scope, q.principal));
            IF NOT locked THEN
                locked := pg_try_advisory_xact_lock(18756, lock);
                -- Who had the lock may have committed since the look.
                IF NOT locked AND waited_for IS DISTINCT FROM 'look' THEN
                    waited_for := 'look';
                    CONTINUE;
                END IF;
            END IF;
            IF locked AND execution IS NULL THEN
                IF seen_locked THEN RETURN; END IF;
                seen_locked := true;
                CONTINUE;
            ELSIF locked THEN
                PERFORM idempotency.require_sight(q, r, lock);
                granted := idempotency.grant_claim(q, p, r, execution, now);
                CONTINUE WHEN granted.token IS NULL;  -- another session got in: look again
                r := granted;
                IF random() < 1.0 / 64 THEN PERFORM idempotency.sweep_beside_call(); END IF;
                RETURN;
            END IF;
            reason := 'held';
            r := NULL;
        ELSE
            IF idempotency.snapshot_is_fixed() THEN PERFORM idempotency.newest_record(q.key, q.scope, q.principal); END IF;
            IF reason <> 'leased' THEN RETURN; END IF;
        END IF;
        IF left_us <= 0 OR gave_way THEN RETURN; END IF;
        IF reason = 'held' THEN
            locked := idempotency.wait_for_lock(q, p, lock, left_us);
            lease_wait := NULL;
            CONTINUE;
        END IF;
        -- A lease ends without a signal, so this looks again and again. It honours lock_timeout.
        IF lease_wait IS NULL THEN
            lease_wait := clock_timestamp();
            lock_timeout := idempotency.server_ms('lock_timeout') * 1000;
            deadlock_timeout := idempotency.server_ms('deadlock_timeout') * 1000;
            next_check := idempotency.after(lease_wait, deadlock_timeout);
        END IF;
        IF lock_timeout > 0 AND idempotency.since(clock_timestamp(), lease_wait) >= lock_timeout THEN
            PERFORM idempotency.refuse('lock_timeout');
        END IF;
        PERFORM pg_sleep(least(pause, left_us / 1e6, extract(epoch FROM next_check - clock_timestamp()),
            CASE WHEN lock_timeout > 0 THEN (lock_timeout - idempotency.since(clock_timestamp(), lease_wait)) / 1e6 END));
        pause := least(pause * 2, 0.5);
        IF clock_timestamp() >= next_check THEN
            next_check := idempotency.after(clock_timestamp(), deadlock_timeout);
            gave_way := idempotency.is_waited_for();
            IF gave_way THEN RETURN; END IF;
        END IF;
    END LOOP;
END $$;

-- The reason of the answer that a look at the record gives: it may be a claim of this transaction.
CREATE FUNCTION idempotency.reason_for(r idempotency.record, q idempotency.question, p idempotency.in_force,
                                       now timestamptz) RETURNS text LANGUAGE plpgsql
    RETURN CASE WHEN idempotency.is_own_claim(r)
        THEN CASE WHEN idempotency.same_request(r, q, p) THEN 'own_claim' ELSE 'other_request' END
        ELSE idempotency.decide(r.status, r.attempt, r.lease_until, r.next_attempt_at, r.expires_at, r.retained_until,
            r.claimed_at,
            -- To a fixed snapshot the end of a session says nothing: there only the lease counts.
            r.status = 'i' AND r.backend_pid IS NOT NULL AND now < r.lease_until
                AND NOT q.same_statement AND NOT idempotency.snapshot_is_fixed()
                AND idempotency.session_gone(r.backend_pid, r.backend_start),
            r.resolved_by IS NOT NULL, r.if_silent, idempotency.is_derived(r),
            r.status IS NULL OR idempotency.same_request(r, q, p),
            now, q.memory, q.first_sent, p.max_attempts, p.on_lease_expiry = 'unknown') END;

-- The answer as its caller sees it. Only who executes sees the token.
CREATE FUNCTION idempotency.shown(reason text, r idempotency.record, q idempotency.question,
                                  p idempotency.in_force, now timestamptz) RETURNS @extschema@.idem_claim
    LANGUAGE plpgsql AS $$
DECLARE
    outcome constant text := idempotency.outcome_of(reason);
    executes constant boolean := outcome = 'execute';
    claim @extschema@.idem_claim;
BEGIN
    IF r.token IS NULL THEN
        claim.outcome := outcome; claim.key := q.key; claim.scope := q.scope; claim.principal := q.principal;
        claim.retry_after := CASE WHEN reason = 'held' THEN 1 END;
        RETURN claim;
    END IF;
    claim := idempotency.claim_of(outcome, CASE WHEN executes THEN r.token END, idempotency.status_word(
        CASE WHEN executes OR idempotency.is_own_claim(r) THEN r.status ELSE idempotency.status_by(r, p, now) END), r);
    claim.body_omitted := r.body_omitted;
    claim.expires_at := nullif(r.expires_at, 'infinity');  -- with a recovery point, until it is decided
    IF NOT (outcome = 'replay' OR executes AND r.status <> 'i') THEN
        claim.status_code := NULL; claim.headers := NULL; claim.body := NULL; claim.body_omitted := NULL;
    END IF;
    IF outcome NOT IN ('execute', 'replay', 'retry_later', 'exhausted') THEN claim.error := NULL; END IF;
    IF NOT executes THEN
        claim.recovery_point := NULL; claim.state := NULL;
        claim.retry_after := idempotency.retry_after(reason, r.lease_until, r.next_attempt_at, now,
                                                     p.unknown_retry_after) / 1e6;
    END IF;
    RETURN claim;
END $$;

-- Whether the claim of a record lives.
CREATE FUNCTION idempotency.lives(r idempotency.record, now timestamptz) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    RETURN coalesce((r).status = 'i' AND now < (r).lease_until, false)
       AND NOT idempotency.session_gone((r).backend_pid, (r).backend_start);

-- The status of a record now, by the policy of its claim.
CREATE FUNCTION idempotency.status_now(r idempotency.record) RETURNS "char" LANGUAGE plpgsql VOLATILE
    RETURN idempotency.status_by(r, NULL, clock_timestamp());

-- The status of a record by a policy.
CREATE FUNCTION idempotency.status_by(r idempotency.record, p idempotency.in_force, now timestamptz) RETURNS "char"
    LANGUAGE plpgsql VOLATILE
    RETURN idempotency.status_at(r.status, r.attempt, idempotency.lives(r, now), r.retained_until, r.if_silent,
        idempotency.is_derived(r), now, coalesce(p.max_attempts, 0), coalesce(p.on_lease_expiry = 'unknown', false));

---- the short way ----

-- A record with an answer, as the holder of its claim sees it.
CREATE FUNCTION idempotency.claim_of(outcome text, token bigint, status text, r idempotency.record)
    RETURNS @extschema@.idem_claim LANGUAGE sql IMMUTABLE AS $$
SELECT ROW(outcome, (r).key, (r).scope, (r).principal, token, (r).attempt, status, (r).status_code, (r).headers,
           (r).body, CASE WHEN (r).finished_at IS NOT NULL THEN (r).body_omitted END, (r).error, NULL,
           (r).recovery_point, (r).state, (r).holder, NULL, (r).created_at, (r).finished_at, (r).lease_until,
           (r).expires_at)::@extschema@.idem_claim $$;

-- A replay, or the grant of a new key, in a plain case. A call for a key that is answered or new, where the
-- policy is plain. Null: the call goes the long way, which would answer the same. A statement is initialized
-- with each operator and function in it, whether they are needed or not: that is what a call costs. So what
-- is rare stands in statements of its own.
CREATE FUNCTION idempotency.plain_answer(key text, scope text, principal text, request jsonb, method text, path text,
    fingerprint bytea, operation text, ttl interval, lease interval, wait interval, holder text, transactional boolean,
    once boolean) RETURNS @extschema@.idem_claim LANGUAGE plpgsql AS $$
DECLARE
    seen record;
    r idempotency.record;
    p idempotency.policy;
    terms idempotency.terms;
    now timestamptz;
    digest_of integer;
BEGIN
    IF current_setting('transaction_read_only') = 'on' OR idempotency.snapshot_is_fixed() THEN
        RETURN NULL;
    ELSIF num_nonnulls(request, method, path, fingerprint, ttl, lease, wait, holder) > 0 THEN
        IF num_nonnulls(fingerprint, ttl, lease, wait, holder) > 0
           AND NOT idempotency.are_plain_options(fingerprint, ttl, lease, wait, holder, transactional) THEN
            RETURN NULL;
        ELSIF fingerprint IS NOT NULL THEN
            digest_of := 4;
        ELSIF num_nonnulls(request, method, path) > 0 THEN
            fingerprint := idempotency.plain_fingerprint(request, method, path);
            digest_of := CASE WHEN method IS NOT NULL THEN CASE WHEN path IS NULL THEN 1 ELSE 3 END WHEN path IS NOT NULL THEN 2 END;
        END IF;
    END IF;
    SELECT CASE WHEN t.status IN ('c', 'f') AND clock_timestamp() < t.expires_at AND t.sealed_by IS NULL
                 AND (t.operation <> plain_answer.operation) IS NOT TRUE
                 AND (t.fingerprint <> plain_answer.fingerprint) IS NOT TRUE
                 AND NOT (EXISTS (SELECT FROM idempotency.policies_with_more()) AND idempotency.asks_more(t.scope, t.principal))
                THEN idempotency.claim_of('replay', NULL, CASE t.status WHEN 'c' THEN 'completed' ELSE 'failed' END, t) END AS claim
      INTO seen FROM idempotency.record t
     WHERE t.key = plain_answer.key AND t.scope = plain_answer.scope AND t.principal = plain_answer.principal;
    IF FOUND THEN
        RETURN seen.claim;
    ELSIF NOT idempotency.is_plain_identity(key, scope, principal) THEN
        RETURN NULL;
    END IF;
    SELECT s.value AS seed, EXISTS (SELECT FROM idempotency.policy) AS by_policy INTO seen FROM idempotency.seed s;
    IF seen.by_policy THEN
        p := idempotency.policy_row(scope);
        IF NOT idempotency.is_plain(p, principal) THEN RETURN NULL; END IF;
    END IF;
    IF pg_try_advisory_xact_lock(18756, idempotency.lock_number(seen.seed, key, scope, principal)) THEN
        IF seen.by_policy OR coalesce(/*SETTINGS_OF_TERMS*/) IS NOT NULL THEN
            terms := idempotency.terms_of(p);
        ELSE
            terms := ROW(/*TERMS_BY_DEFAULT*/, false, 't')::idempotency.terms;
        END IF;
        IF ttl IS NOT NULL THEN terms.ttl := least(idempotency.micros(ttl), idempotency.micros(p.max_ttl)); END IF;
        IF lease IS NOT NULL THEN terms.lease := least(idempotency.micros(lease), idempotency.micros(p.max_lease)); END IF;
        now := clock_timestamp();
        INSERT INTO idempotency.record AS t (scope, principal, key, status, if_silent, attempt, body_limit, omit_large_body,
            token, lease_us, fingerprint_of, created_at, claimed_at, expires_at, retained_until, lease_until, finished_at,
            fingerprint, operation, holder, written_in, open_claim)
        VALUES (plain_answer.scope, plain_answer.principal, plain_answer.key, CASE WHEN once THEN 'c' ELSE 'i' END,
            terms.if_silent, 1, terms.body_limit, terms.omit_large_body, idempotency.token_at(now), terms.lease,
            digest_of, now, now, idempotency.after(now, terms.ttl), idempotency.after(now, greatest(terms.retention, terms.ttl)),
            CASE WHEN NOT once THEN idempotency.after(now, terms.lease) END,
            CASE WHEN once THEN now END, plain_answer.fingerprint, plain_answer.operation, plain_answer.holder, pg_current_xact_id(),
            CASE WHEN once THEN 'n' WHEN plain_answer.operation IS NOT NULL THEN 'r' WHEN transactional THEN 't' ELSE 'o' END)
        ON CONFLICT DO NOTHING
        RETURNING idempotency.claim_of('execute', t.token, CASE WHEN once THEN 'completed' ELSE 'in_progress' END, t) AS claim
        INTO seen;
        IF FOUND THEN
            IF random() < 1.0 / 64 THEN PERFORM idempotency.sweep_beside_call(); END IF;
            RETURN seen.claim;
        END IF;
    END IF;
    RETURN NULL;
END $$;

-- Whether options are right for sure. The long way says what is wrong with others.
CREATE FUNCTION idempotency.are_plain_options(fingerprint bytea, ttl interval, lease interval, wait interval, holder text,
                                              transactional boolean) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    RETURN coalesce(octet_length(fingerprint), 1) BETWEEN 1 AND 64
        AND coalesce(ttl, '1 s') BETWEEN '1 us' AND '36525 days' AND coalesce(lease, '1 s') BETWEEN '1 us' AND '36525 days'
        AND coalesce(wait, '1 s') BETWEEN '0' AND '1 day' AND (lease IS NULL OR NOT transactional)
        AND idempotency.is_plain_identity(coalesce(holder, 'none'), '', '');

-- The fingerprint of all of a request.
CREATE FUNCTION idempotency.plain_fingerprint(request jsonb, method text, path text) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE
    RETURN (idempotency.fingerprint_of(request, method, path, NULL, NULL)).fingerprint;

--: idem_begin plpgsql definer hidden(statement_snapshot pg_snapshot DEFAULT pg_current_snapshot())
DECLARE
    claim @extschema@.idem_claim;
    a record;
BEGIN
    IF num_nonnulls(exclude, first_sent, derive) = 0 AND NOT (hold OR same_statement) THEN
        claim := idempotency.plain_answer(key COLLATE "C", scope, principal, request, method, path, fingerprint, NULL, ttl, lease, wait,
                                          holder, transactional, false);
        IF claim.outcome IS NOT NULL THEN RETURN claim; END IF;
    END IF;
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal, true);
    a := idempotency.answer(idempotency.question_of('idem_begin()', key COLLATE "C", scope, principal, statement_snapshot, ttl, wait,
        same_statement, lease, holder, request, method, path, fingerprint, first_sent, NULL, exclude, derive, hold,
        transactional));
    RETURN idempotency.shown(a.reason, a.r, a.q, a.p, a.now);
END

-- Arguments, checked.
CREATE FUNCTION idempotency.question_of(function text, key text, scope text, principal text, snapshot pg_snapshot,
    ttl interval DEFAULT NULL, wait interval DEFAULT NULL, same_statement boolean DEFAULT false, lease interval DEFAULT NULL,
    holder text DEFAULT NULL, request jsonb DEFAULT NULL, method text DEFAULT NULL, path text DEFAULT NULL,
    fingerprint bytea DEFAULT NULL, first_sent timestamptz DEFAULT NULL, operation text DEFAULT NULL,
    exclude text[] DEFAULT NULL, derive interval DEFAULT NULL, hold boolean DEFAULT false,
    transactional boolean DEFAULT false) RETURNS idempotency.question LANGUAGE plpgsql AS $$
DECLARE
    q idempotency.question;
BEGIN
    IF octet_length(fingerprint) NOT BETWEEN 1 AND 64 THEN
        PERFORM idempotency.refuse('wrong_digest', octet_length(fingerprint)::text);
    END IF;
    q := ROW(function, key, scope, principal, request, method, path, exclude, fingerprint, operation,
        idempotency.checked_span(ttl, 'ttl'), idempotency.checked_span(lease, 'lease'),
        idempotency.checked_span(wait, 'wait', 1, true), first_sent, idempotency.checked_span(derive, 'derive'),
        false, coalesce(hold, false), coalesce(same_statement, false), coalesce(transactional, false), holder, snapshot,
        false, NULL, NULL, NULL, NULL, NULL)::idempotency.question;
    PERFORM idempotency.check_moment(first_sent, 'first_sent');
    IF holder IS NOT NULL THEN PERFORM idempotency.check_name(holder, 'holder'); END IF;
    IF function <> 'idem_explain()' THEN PERFORM idempotency.check_writable(function); END IF;
    RETURN q;
END $$;

-- Without a limit it waits until the answer is final.
--: idem_once plpgsql definer hidden(statement_snapshot pg_snapshot DEFAULT pg_current_snapshot())
DECLARE
    claim @extschema@.idem_claim;
    q idempotency.question;
    a record;
    outcome text;
BEGIN
    IF NOT same_statement THEN
        claim := idempotency.plain_answer(key COLLATE "C", scope, principal, NULL, NULL, NULL, NULL, NULL, ttl, NULL, wait, NULL,
                                          false, true);
        IF claim.outcome IS NOT NULL THEN RETURN claim.outcome = 'execute'; END IF;
    END IF;
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
    q := idempotency.question_of('idem_once()', key COLLATE "C", scope, principal, statement_snapshot, ttl, wait, same_statement);
    q.without_request := true; q.once := true;
    q.wait := coalesce(q.wait, 9000000000000000000);
    a := idempotency.answer(q);
    outcome := idempotency.outcome_of(a.reason);
    IF outcome = 'execute' THEN
        IF (a.p).keep_history THEN PERFORM idempotency.keep_attempt(a.p, a.r, 'completed'); END IF;
        RETURN true;
    ELSIF outcome IN ('replay', 'expired', 'mismatch') THEN
        RETURN false;
    END IF;
    PERFORM idempotency.refuse(CASE
        WHEN outcome IN ('exhausted', 'unknown') THEN 'not_repeated' WHEN outcome = 'retry_later' THEN 'in_pause'
        WHEN a.reason = 'own_claim' THEN 'own_claim' WHEN a.gave_way THEN 'may_deadlock' ELSE 'not_ended' END, outcome);
END

--: idem_get plpgsql definer
DECLARE
    r idempotency.record;
    claim @extschema@.idem_claim;
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal), idempotency.policy_for(scope COLLATE "C");
    r := idempotency.record_of(key COLLATE "C", scope, principal);
    IF r.token IS NULL THEN RETURN NULL; END IF;
    PERFORM idempotency.check_readable(r);
    claim := idempotency.claim_of(NULL, NULL, idempotency.status_word(idempotency.status_now(r)), r);
    claim.reference := r.reference; claim.body_omitted := r.body_omitted; claim.expires_at := nullif(r.expires_at, 'infinity');
    RETURN claim;
END

---- at the end of the transaction ----

-- Gives a claim its lease at COMMIT, or refuses to leave it open. A claim that is still open at COMMIT has a
-- lease from there on, or is an error if it had to end. Deferred triggers run before the commit. In a
-- transaction that has become read only the lease of the grant stays.
CREATE FUNCTION idempotency.claim_left_open() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen record;
    r idempotency.record;
BEGIN
    SELECT t AS claim INTO seen FROM idempotency.record t
     WHERE t.key = NEW.key AND t.scope = NEW.scope AND t.principal = NEW.principal AND t.lease_until IS NOT NULL;
    IF NOT FOUND THEN RETURN NULL; END IF;
    r := seen.claim;
    IF (r.status = 'i' AND r.token = NEW.token AND r.open_claim IN ('o', 't', 'q', 'r') AND r.written_in = NEW.written_in) IS NOT TRUE THEN
        RETURN NULL;
    ELSIF r.open_claim = 't' THEN
        -- Another deferred trigger may yet end it, so this one runs once more, after those.
        UPDATE idempotency.record t SET open_claim = 'q', claimed_at = r.claimed_at
         WHERE t.key = NEW.key AND t.scope = NEW.scope AND t.principal = NEW.principal AND t.token = NEW.token;
    ELSIF r.open_claim = 'q' THEN
        PERFORM idempotency.refuse('still_open', NEW.scope);
    ELSIF r.open_claim = 'r' AND EXISTS (SELECT FROM idempotency.policy_row(NEW.scope) p
                                          WHERE p.transactional_only OR p.max_open_claims IS NOT NULL) THEN
        -- Not by idem_execute, which ends it: a caller has called the first part of it alone.
        PERFORM idempotency.refuse('operation_open');
    ELSIF current_setting('transaction_read_only') = 'off' THEN
        UPDATE idempotency.record t
           SET lease_until = greatest(r.lease_until, idempotency.after(clock_timestamp(), r.lease_us)),
               open_claim = 'l'
         WHERE t.key = NEW.key AND t.scope = NEW.scope AND t.principal = NEW.principal AND t.token = NEW.token;
    END IF;
    RETURN NULL;
END $$;
-- Only what grants a claim sets claimed_at. A record in progress has lease_until; the condition is short, because each
-- write initializes it.
CREATE CONSTRAINT TRIGGER claim_left_open AFTER INSERT OR UPDATE OF claimed_at ON idempotency.record
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.lease_until IS NOT NULL)
    EXECUTE FUNCTION idempotency.claim_left_open();
