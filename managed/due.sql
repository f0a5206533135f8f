-- Records that are due (src/claim/due.cpp, src/store/due.cpp). The lock of a key is tried as FOR UPDATE
-- SKIP LOCKED tries that of a row: workers side by side get different records. The row is locked in the
-- same way, for a session that ignores our lock.

-- The scopes with records that may be due.
CREATE FUNCTION idempotency.active_scopes(pattern text) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    prefix text := left(pattern, -1);
BEGIN
    IF right(pattern, 1) <> '*' THEN RETURN ARRAY[pattern]; END IF;
    RETURN ARRAY(
        WITH RECURSIVE retryable (scope) AS (
            SELECT min(t.scope) FROM idempotency.record t WHERE t.status = 'r' AND t.scope >= prefix
             UNION ALL
            SELECT (SELECT min(t.scope) FROM idempotency.record t WHERE t.status = 'r' AND t.scope > s.scope)
              FROM retryable s WHERE starts_with(s.scope, prefix))
        SELECT s.scope FROM retryable s WHERE starts_with(s.scope, prefix)
         UNION
        SELECT t.scope FROM idempotency.record t
         WHERE t.status = ANY ('{i,u,x}'::"char"[]) AND t.status = 'i' AND starts_with(t.scope, prefix));
END $$;

-- Records that are due since later than a moment, oldest first: so many, and those with the time of the last.
CREATE FUNCTION idempotency.due_records(scopes text[], since_after timestamptz, now timestamptz, most bigint)
    RETURNS TABLE (found_key text, found_scope text, found_principal text, since timestamptz) LANGUAGE sql STABLE AS $$
SELECT d.key, d.scope, d.principal, d.since FROM (
    SELECT r.* FROM (SELECT unnest(scopes) COLLATE "C" AS scope) s CROSS JOIN LATERAL (
        SELECT t.key, t.scope, t.principal, t.next_attempt_at AS since FROM idempotency.record t
         WHERE t.status = 'r' AND t.scope = s.scope AND t.next_attempt_at > since_after
           AND t.next_attempt_at <= now AND t.expires_at > now
         ORDER BY t.next_attempt_at FETCH FIRST (most) ROWS WITH TIES) r
     UNION ALL
    SELECT t.key, t.scope, t.principal, least(t.lease_until, now) FROM idempotency.record t
     WHERE t.status = ANY ('{i,u,x}'::"char"[]) AND t.status = 'i' AND t.if_silent = 't' AND t.scope = ANY (scopes)
       AND (t.lease_until <= now OR t.backend_pid IS NOT NULL) AND least(t.lease_until, now) > since_after
       AND (t.retained_until > now OR NOT idempotency.is_derived(t))) d
 ORDER BY d.since FETCH FIRST (most) ROWS WITH TIES $$;

-- How a worker may claim a record: as a retry or a takeover, or not as yet ("full"); else null.
CREATE FUNCTION idempotency.due_as(r idempotency.record, q idempotency.question, p idempotency.in_force, now timestamptz)
    RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    execution text;
BEGIN
    IF r.token IS NULL OR r.sealed_by IS NOT NULL OR idempotency.is_own_claim(r) THEN RETURN NULL; END IF;
    execution := idempotency.execution_of(idempotency.reason_for(r, q, p, now));
    IF execution IS NULL OR execution NOT IN ('retry', 'takeover') THEN
        RETURN NULL;
    ELSIF p.max_open_claims > 0 AND NOT q.transactional AND NOT idempotency.has_room(q, p.max_open_claims) THEN
        RETURN 'full';
    END IF;
    RETURN execution;
END $$;

-- Claims a record if it is due and free. Locks stay until the end of the transaction: it takes none for a record
-- that a look passes over, and looks once more under the lock.
CREATE FUNCTION idempotency.claim_if_due(key text, scope text, principal text, lease interval, holder text,
    OUT r idempotency.record, OUT execution text) LANGUAGE plpgsql AS $$
DECLARE
    q idempotency.question;
    p idempotency.in_force := idempotency.policy_for(scope);
    lock constant integer := idempotency.lock_of(key, scope, principal);
    now timestamptz := clock_timestamp();
BEGIN
    IF (p.principal_required AND principal = '') OR (p.transactional_only AND lease IS NOT NULL) THEN RETURN; END IF;
    q := idempotency.question_of('idem_claim_due()', key, scope, principal, NULL, lease => lease, holder => holder);
    q.without_request := true;
    q := idempotency.settle(q, p);
    execution := idempotency.due_as(idempotency.record_of(key, scope, principal), q, p, now);
    IF execution IS NULL OR execution = 'full' OR NOT pg_try_advisory_xact_lock(18756, lock) THEN RETURN; END IF;
    SELECT * INTO r FROM idempotency.record t
     WHERE t.key = claim_if_due.key AND t.scope = claim_if_due.scope AND t.principal = claim_if_due.principal FOR UPDATE SKIP LOCKED;
    now := clock_timestamp();
    execution := idempotency.due_as(r, q, p, now);
    IF execution IS NULL OR execution = 'full' THEN
        r := NULL;
        RETURN;
    END IF;
    PERFORM idempotency.require_sight(q, r, lock);
    p.max_open_claims := 0;  -- there is room, whatever another session commits now
    r := idempotency.grant_claim(q, p, r, execution, now);
END $$;

-- Passes a record over that the transaction's snapshot is too old for. Its savepoint gives lock and row back.
CREATE FUNCTION idempotency.claim_if_seen(key text, scope text, principal text, lease interval, holder text,
    OUT r idempotency.record, OUT execution text) LANGUAGE plpgsql AS $$
DECLARE
    claim record;
BEGIN
    claim := idempotency.claim_if_due(key, scope, principal, lease, holder);
    r := claim.r;
    execution := claim.execution;
EXCEPTION WHEN serialization_failure THEN
    RETURN;
END $$;

--: idem_worker_claim_due plpgsql definer
DECLARE
    now constant timestamptz := clock_timestamp();
    batch constant integer := greatest(2 * least(max_claims, 1000), 100);
    scopes text[] COLLATE "C";
    passed_over text[] COLLATE "C";
    since_after timestamptz := '-infinity';
    found record;
    looked integer := batch;
    granted integer := 0;
    full_up text[] COLLATE "C" := '{}';
    claim record;
    r idempotency.record;
BEGIN
    PERFORM idempotency.check_name(scope, 'scope', true);
    PERFORM idempotency.check_given('max_claims', max_claims IS NOT NULL),
            idempotency.check_number(max_claims, 'max_claims', 1, 1000), idempotency.checked_span(lease, 'lease');
    IF holder IS NOT NULL THEN PERFORM idempotency.check_name(holder, 'holder'); END IF;
    PERFORM idempotency.check_writable('idem_claim_due()');
    scopes := ARRAY(SELECT s FROM unnest(idempotency.active_scopes(scope COLLATE "C")) s
                     WHERE idempotency.closure_of(s) IS NULL AND (idempotency.policy_row(s)).encrypt IS NOT TRUE);
    IF lease IS NOT NULL THEN
        passed_over := ARRAY(SELECT s FROM unnest(scopes) s WHERE (idempotency.policy_row(s)).transactional_only);
        IF passed_over <> '{}' AND EXISTS (SELECT FROM idempotency.due_records(passed_over, '-infinity', now, 1)) THEN
            PERFORM idempotency.tell('no_leases');
        END IF;
        scopes := ARRAY(SELECT s FROM unnest(scopes) s WHERE s <> ALL (passed_over));
    END IF;
    WHILE looked >= batch AND granted < max_claims AND cardinality(scopes) > 0 LOOP
        looked := 0;
        FOR found IN SELECT * FROM idempotency.due_records(scopes, since_after, now, batch) LOOP
            looked := looked + 1;
            since_after := found.since;
            CONTINUE WHEN found.found_scope || E'\n' || found.found_principal = ANY (full_up);
            claim := CASE WHEN idempotency.snapshot_is_fixed()
                          THEN idempotency.claim_if_seen(found.found_key, found.found_scope, found.found_principal, lease, holder)
                          ELSE idempotency.claim_if_due(found.found_key, found.found_scope, found.found_principal, lease, holder) END;
            -- The principal has as many claims as it may have: its other records need no look.
            IF claim.execution = 'full' AND cardinality(full_up) < 1000 THEN
                full_up := full_up || (found.found_scope || E'\n' || found.found_principal);
            END IF;
            r := claim.r;
            CONTINUE WHEN r.token IS NULL;
            RETURN NEXT ROW(r.key, r.scope, r.principal, r.token, r.attempt, r.operation, r.method, r.path, r.request,
                r.recovery_point, r.state, r.error, r.created_at, r.lease_until)::@extschema@.idem_due;
            granted := granted + 1;
            EXIT WHEN granted >= max_claims;
        END LOOP;
    END LOOP;
END

--: idem_due_by_scope sql definer
SELECT d.scope::text, sum(d.records)::bigint, min(d.since) FROM (
    SELECT t.scope, t.attempt, t.resolved_by IS NOT NULL AS resolved, false AS leased, count(*) AS records, min(t.next_attempt_at) AS since
      FROM idempotency.record t
     WHERE t.status = 'r' AND t.next_attempt_at <= clock_timestamp() AND t.expires_at > clock_timestamp() GROUP BY 1, 2, 3
     UNION ALL
    SELECT t.scope, t.attempt, false, true, count(*), min(t.lease_until) FROM idempotency.record t
     WHERE t.status = ANY ('{i,u,x}'::"char"[]) AND t.status = 'i' AND t.if_silent = 't' AND t.lease_until <= clock_timestamp()
       AND (t.retained_until > clock_timestamp() OR NOT idempotency.is_derived(t))
     GROUP BY 1, 2) d LEFT JOIN LATERAL idempotency.policy_row(d.scope) p ON true
 WHERE (d.resolved OR (d.attempt >= p.max_attempts) IS NOT TRUE) AND NOT (d.leased AND p.on_lease_expiry IS NOT DISTINCT FROM 'unknown')
 GROUP BY d.scope

-- When a worker may take the record, if nothing changes; null: never, or no longer.
CREATE FUNCTION idempotency.due_at(r idempotency.record, p idempotency.in_force, now timestamptz) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN (r).status = 'r' THEN CASE WHEN ((r).resolved_by IS NOT NULL OR NOT used_up)
                                                  AND greatest((r).next_attempt_at, now) < (r).expires_at THEN (r).next_attempt_at END
            WHEN (r).status = 'i' AND (r).if_silent = 't' AND NOT used_up AND (p).on_lease_expiry <> 'unknown'
                 AND (greatest((r).lease_until, now) < (r).retained_until OR NOT idempotency.is_derived(r)) THEN (r).lease_until END
  FROM (SELECT (p).max_attempts > 0 AND (r).attempt >= (p).max_attempts AS used_up) x $$;
