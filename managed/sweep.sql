-- What goes by age, and claims that no caller takes over (src/store/sweep.cpp, src/claim/abandon.cpp).
--
-- A snapshot older than a removal must not be granted the key. Records that ended an hour ago or longer
-- leave no trace: such old snapshots are refused (trace_kept). Of younger ones the part of their keys in
-- idempotency.removal says so.

-- Removes records that ended long ago. Locked rows are skipped. The conditions stand twice: a row that was
-- just taken over stays.
CREATE FUNCTION idempotency.sweep_old(most bigint, grace interval DEFAULT '0') RETURNS bigint
    LANGUAGE plpgsql AS $$
DECLARE
    now constant timestamptz := clock_timestamp() - grace;
    touched constant timestamptz := clock_timestamp() - idempotency.trace_kept();
    swept bigint;
BEGIN
    DELETE FROM idempotency.record t
     WHERE t.ctid = ANY (ARRAY(
            SELECT d.ctid FROM idempotency.record d
             WHERE d.retained_until <= now AND d.status <> ALL ('{i,u}'::"char"[])
               AND greatest(d.claimed_at, d.finished_at, d.lease_until) <= touched
             ORDER BY d.retained_until LIMIT most FOR UPDATE SKIP LOCKED))
       AND (t.retained_until <= now AND t.status <> ALL ('{i,u}'::"char"[])
            AND greatest(t.claimed_at, t.finished_at, t.lease_until) <= touched) IS TRUE;
    GET DIAGNOSTICS swept = ROW_COUNT;
    RETURN swept;
END $$;

-- Removes some records that have expired long ago. Beside one of 64 grants, where idem_cleanup may never be
-- called. Only of what has expired long ago: its removal needs no trace, and the caller keeps what it locks
-- until its transaction ends.
CREATE FUNCTION idempotency.sweep_beside_call() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    most constant bigint := least(idempotency.setting('idempotency.sweep_beside_calls', 1,
        coalesce(idempotency.read_setting('idempotency.sweep_beside_calls', idempotency.fixed_setting('sweep_beside_calls'), 1), 100)), 10000);
BEGIN
    IF most > 0 AND NOT idempotency.snapshot_is_fixed() THEN
        PERFORM idempotency.sweep_old(most, idempotency.trace_kept());
    END IF;
END $$;

-- Removes records that ended lately, and leaves a trace.
CREATE FUNCTION idempotency.sweep_young(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    swept bigint;
BEGIN
    WITH due AS MATERIALIZED (
        SELECT d.ctid, idempotency.lock_of(d.key, d.scope, d.principal) & 63 AS part FROM idempotency.record d
         WHERE d.retained_until <= now AND d.status <> ALL ('{i,u}'::"char"[])
         ORDER BY d.retained_until LIMIT most FOR UPDATE SKIP LOCKED),
    parts AS MATERIALIZED (
        SELECT m.part FROM idempotency.removal m WHERE m.part IN (SELECT d.part FROM due d)
         ORDER BY m.part FOR UPDATE SKIP LOCKED),
    traced AS (
        UPDATE idempotency.removal m SET removed_in = pg_current_xact_id()
          FROM parts WHERE parts.part = m.part RETURNING m.part)
    DELETE FROM idempotency.record t
     WHERE t.ctid = ANY (ARRAY(SELECT d.ctid FROM due d JOIN traced USING (part)))
       AND (t.retained_until <= now AND t.status <> ALL ('{i,u}'::"char"[])) IS TRUE;
    GET DIAGNOSTICS swept = ROW_COUNT;
    RETURN swept;
END $$;

-- Whether a claim is that of a last attempt, which no session takes over.
CREATE FUNCTION idempotency.is_last(r idempotency.record, p idempotency.in_force) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
SELECT (r).if_silent <> 'u' AND (p).on_lease_expiry <> 'unknown'
       AND ((r).if_silent = 'x' OR (p).max_attempts > 0 AND (r).attempt >= (p).max_attempts) $$;

-- When a claim in progress is given up; null: by this policy never.
CREATE FUNCTION idempotency.given_up_at(r idempotency.record, p idempotency.in_force) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN (r).finished_at IS NOT NULL OR (r).lease_until IS NULL THEN NULL
            WHEN (p).abandon_after = 0 THEN CASE WHEN idempotency.is_last(r, p) THEN (r).lease_until END
            WHEN (p).on_abandon = 'unknown' AND (r).if_silent = 'u' THEN NULL
            ELSE idempotency.after((r).lease_until, (p).abandon_after) END $$;

-- Decides claims by on_abandon.
CREATE FUNCTION idempotency.abandon(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    old idempotency.record;
    r idempotency.record;
    p idempotency.in_force;
    due timestamptz;
    abandoned bigint := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM idempotency.policy x WHERE NOT x.dropped
                      AND (x.abandon_after IS NOT NULL OR x.max_attempts IS NOT NULL)) THEN
        RETURN 0;
    END IF;
    FOR old IN SELECT * FROM idempotency.record t
                WHERE t.status = ANY ('{i,u,x}'::"char"[]) AND t.status = 'i' ORDER BY t.claimed_at LOOP
        EXIT WHEN abandoned >= most;
        CONTINUE WHEN idempotency.unusable_column(idempotency.policy_row(old.scope)) IS NOT NULL;
        p := idempotency.values_of(idempotency.policy_row(old.scope));
        due := idempotency.given_up_at(old, p);
        CONTINUE WHEN due IS NULL OR due > clock_timestamp() OR p.encrypt OR old.sealed_by IS NOT NULL
                   OR (old.backend_pid IS NOT NULL AND NOT idempotency.session_gone(old.backend_pid, old.backend_start))
                   OR (old.open_claim IS NOT NULL AND old.written_in = pg_current_xact_id_if_assigned())
                   OR NOT pg_try_advisory_xact_lock(18756, idempotency.lock_of(old.key, old.scope, old.principal));
        r := old;
        IF idempotency.is_last(old, p) AND NOT (p.abandon_after <> 0 AND p.on_abandon <> 'release') THEN
            r := idempotency.mark_ended(r, 'x');
            r.lease_until := old.lease_until; r.error := old.error;
            r := idempotency.keep_exhausted(r, p);
        ELSIF p.on_abandon = 'unknown' THEN
            r.if_silent := 'u';
        ELSE
            r := idempotency.mark_ended(r, CASE p.on_abandon WHEN 'fail' THEN 'f' ELSE 'r' END::"char");
            r.token := idempotency.next_token(old);
            r.error := 'abandoned: the lease expired and no caller took over';
            IF r.status = 'r' THEN r.next_attempt_at := r.finished_at; END IF;
            r := idempotency.keep_if_half_way(idempotency.keep_as_fresh(r, p));
        END IF;
        r.open_claim := NULL; r.before := NULL;
        CONTINUE WHEN NOT idempotency.replace_record(r, old);
        abandoned := abandoned + 1;
        IF r.status = 'x' THEN
            PERFORM idempotency.keep_attempt(p, r, 'silent');
        ELSIF r.status <> 'i' THEN
            PERFORM idempotency.keep_attempt(p, r);
        END IF;
    END LOOP;
    RETURN abandoned;
END $$;

-- Removes expired attempts and decisions.
CREATE FUNCTION idempotency.sweep_aged(most bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    kept constant bigint := coalesce(idempotency.read_setting('idempotency.audit_retention',
        idempotency.fixed_setting('audit_retention'), 1000000), 31536000000000);
    attempts bigint;
    decisions bigint := 0;
BEGIN
    DELETE FROM idempotency.attempt a WHERE a.ctid = ANY (ARRAY(
        SELECT d.ctid FROM idempotency.attempt d WHERE d.retained_until <= clock_timestamp()
         ORDER BY d.retained_until LIMIT most FOR UPDATE SKIP LOCKED));
    GET DIAGNOSTICS attempts = ROW_COUNT;
    IF kept > 0 THEN
        decisions := idempotency.remove_old_decisions(idempotency.after(clock_timestamp(), -kept), most - attempts);
    END IF;
    RETURN attempts + decisions;
END $$;

-- Links decisions, and logs the newest link. A link is logged by a later transaction than that which made
-- it.
CREATE FUNCTION idempotency.link_and_log() RETURNS void LANGUAGE plpgsql SET jit = off AS $$
DECLARE
    done constant record := idempotency.link_decisions(10000, coalesce(idempotency.fixed_setting('log_audit'), 'on')::boolean);
BEGIN
    -- A crash must not take back a link that is logged.
    IF done.linked > 0 AND current_setting('synchronous_commit') = 'off' THEN PERFORM set_config('synchronous_commit', 'local', true); END IF;
    IF done.log_number IS NOT NULL THEN RAISE LOG 'idempotency: audit=%:%', done.log_number, done.log_link; END IF;
END $$;

--: idem_staff_audit_verify plpgsql definer
IF link COLLATE "C" !~ '^[0-9]{1,18}:[0-9a-f]{64}$' THEN
    PERFORM idempotency.refuse('wrong_link');
END IF;
RETURN QUERY SELECT f.* FROM idempotency.faults_of_audit(link) f;

--: idem_administrator_cleanup plpgsql definer
DECLARE
    most bigint := coalesce(max_rows, 9223372036854775807);
    rows bigint;
BEGIN
    PERFORM idempotency.check_number(max_rows, 'max_rows', 1, 9223372036854775807), idempotency.check_writable('idem_cleanup()');
    rows := idempotency.sweep_old(most);
    IF rows < most THEN rows := rows + idempotency.sweep_young(most - rows); END IF;
    PERFORM idempotency.link_and_log();
    IF rows < most THEN rows := rows + idempotency.sweep_aged(most - rows); END IF;
    PERFORM idempotency.abandon(least(most, 1000));
    RETURN rows;
END

--: idem_backlog plpgsql definer
SELECT count(*), min(c.retained_until) INTO rows, oldest
  FROM (SELECT t.retained_until FROM idempotency.record t
         WHERE t.retained_until <= until AND t.status <> ALL ('{i,u}'::"char"[])
         ORDER BY t.retained_until LIMIT 10000) c;

-- A claim that is open in this transaction is no row of the module yet.
--: idem_claims_here plpgsql definer
DECLARE
    sees_all constant boolean := has_table_privilege(idempotency.caller(), 'idempotency.records', 'SELECT');
BEGIN
    RETURN QUERY SELECT t.scope::text, t.principal::text, t.key::text, t.status, t.if_silent, t.attempt, t.holder, t.recovery_point,
        CASE WHEN sees_all THEN t.error END, CASE WHEN sees_all THEN t.reference END, t.backend_pid, t.backend_start,
        t.claimed_at, t.lease_until, t.finished_at, t.retained_until
      FROM idempotency.record t WHERE t.status = ANY ('{i,u,x}'::"char"[])
       AND (t.open_claim = ANY ('{o,t,q,r}'::"char"[]) AND t.written_in = pg_current_xact_id_if_assigned()) IS NOT TRUE;
END

--: idem_of_nodes plpgsql
RETURN QUERY EXECUTE format('SELECT * FROM %s', pg_typeof(shape));

--: idem_this_node inline
NULL::text

--: idem_owner_fit_principals sql
SELECT

--: idem_owner_granted_here sql
SELECT true

--: idem_owner_revoked_here idem_key_changed idem_seed_changed plpgsql
RETURN NULL;

--: idem_seed_coming plpgsql definer
DELETE FROM idempotency.seed;
RETURN NEW;

--: idem_tables_here plpgsql definer
RETURN QUERY SELECT NULL::bigint, 'idempotency.record'::regclass, 'sql'::text, 'There is no module.'::text;

--: idem_keys_here plpgsql definer
RETURN QUERY SELECT t.sealed_by, false, false, count(*), 'There is no module.'::text FROM idempotency.record t
 WHERE t.sealed_by IS NOT NULL GROUP BY t.sealed_by;

--: idem_scope_stats idem_administrator_stats_reset plpgsql
RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'there are no statistics without the module',
    HINT = 'Count outcomes where the functions are called.';

--: idem_owner_distribute plpgsql
RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'records are not distributed without the module',
    HINT = 'Use the module on the nodes of a Citus cluster.';

--: idem_administrator_verify_sealed idem_administrator_reseal plpgsql
RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'encryption is not possible without the module',
    HINT = 'Use the module.';
