-- What operators decide (src/claim/operator.cpp, src/operate).

-- Writes a decision.
CREATE FUNCTION idempotency.write_audit(action text, scope text DEFAULT NULL, principal text DEFAULT NULL,
    key text DEFAULT NULL, before jsonb DEFAULT NULL, after jsonb DEFAULT NULL, reason text DEFAULT NULL, role text DEFAULT NULL,
    erased boolean DEFAULT false) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    log_keys boolean := coalesce(nullif(current_setting('idempotency.log_keys', true), ''), 'off')::boolean;
BEGIN
    INSERT INTO idempotency.audit VALUES (clock_timestamp(), action, scope,
        CASE WHEN NOT erased THEN principal END, CASE WHEN NOT erased AND log_keys THEN key END,
        CASE WHEN NOT erased AND NOT log_keys THEN sha256(convert_to(key, 'UTF8')) END,
        role, before, after, reason, session_user, idempotency.caller(), current_setting('application_name'),
        inet_client_addr(), erased);
    IF NOT FOUND THEN PERFORM idempotency.refuse('decision_dropped'); END IF;
END $$;

-- What the audit says of a record.
CREATE FUNCTION idempotency.state_of(r idempotency.record) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
SELECT jsonb_strip_nulls(jsonb_build_object('status', idempotency.status_word(s.status), 'attempt', (r).attempt,
    'status_code', (r).status_code,
    'alive', CASE WHEN (r).status = 'i' THEN idempotency.lives(r, clock_timestamp()) END))
  FROM (SELECT idempotency.status_now(r) AS status) s $$;

-- Refuses a decision about a claim of this transaction.
CREATE FUNCTION idempotency.check_not_own(key text, scope text, principal text) RETURNS void LANGUAGE sql AS $$
SELECT idempotency.refuse('own_claim') WHERE idempotency.is_own_claim(idempotency.record_of(key, scope, principal)) $$;

-- Refuses values that do not go with the action: the caller would believe that they are stored.
CREATE FUNCTION idempotency.check_resolution(action text, status_code integer, body text, headers jsonb,
                                             error text, reason text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    unused text;
BEGIN
    PERFORM idempotency.check_given('action', action IS NOT NULL),
            idempotency.check_word(action, 'action', 'release, complete, fail, reopen'),
            idempotency.check_number(status_code, 'status_code', 200, 599), idempotency.check_reason(reason);
    IF action = 'complete' AND error IS NOT NULL THEN PERFORM idempotency.refuse('error_of_complete'); END IF;
    unused := CASE WHEN action IN ('complete', 'fail') THEN NULL WHEN status_code IS NOT NULL THEN 'status_code'
                   WHEN body IS NOT NULL THEN 'body' WHEN headers IS NOT NULL THEN 'headers' END;
    IF unused IS NOT NULL THEN
        PERFORM idempotency.refuse('unused', unused);
    ELSIF action = 'reopen' AND coalesce(trim(reason), '') = '' THEN
        PERFORM idempotency.refuse('reopen_reason');
    END IF;
END $$;

-- Refuses a decision without the reason that a policy requires.
CREATE FUNCTION idempotency.require_reason(p idempotency.in_force, reason text) RETURNS void LANGUAGE sql AS $$
SELECT idempotency.refuse('policy_reason') WHERE (p).reason_required AND coalesce(trim(reason), '') = '' $$;

-- Whether a decision is one for records of a status.
CREATE FUNCTION idempotency.is_for(action text, status "char") RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT CASE action WHEN 'reopen' THEN status IN ('f', 'x') ELSE status NOT IN ('c', 'f') END $$;

-- Writes an operator's decision. Under the lock. The old holder's token dies, and the record says who
-- decided.
CREATE FUNCTION idempotency.rule(r idempotency.record, p idempotency.in_force, action text, status_code integer, body bytea,
                                 headers jsonb, error text, reason text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    old constant idempotency.record := r;
    before constant jsonb := idempotency.state_of(r);
    again constant boolean := action IN ('release', 'reopen');
    -- What ran is run again, beside a holder that may live.
    cut_off constant boolean := again AND idempotency.lives(r, clock_timestamp());
BEGIN
    r := idempotency.mark_ended(r, CASE action WHEN 'complete' THEN 'c' WHEN 'fail' THEN 'f' ELSE 'r' END::"char");
    r.token := idempotency.next_token(old);
    r.error := CASE WHEN again AND error IS NULL THEN old.error ELSE idempotency.clipped(error) END;
    r.resolved_by := session_user;
    IF again THEN r.next_attempt_at := r.finished_at; END IF;
    r := idempotency.keep_if_half_way(idempotency.keep_as_fresh(r, p));
    r := idempotency.keep_response(r, p, status_code, body, headers);
    r.open_claim := NULL; r.before := NULL;
    IF NOT idempotency.replace_record(r, old) THEN PERFORM idempotency.refuse('overtaken'); END IF;
    IF cut_off THEN
        PERFORM idempotency.keep_attempt(p, r, 'cut_off');
    ELSIF old.status IN ('i', 'u') THEN
        PERFORM idempotency.keep_attempt(p, r);
    END IF;
    PERFORM idempotency.write_audit(action, r.scope, r.principal, r.key, before, idempotency.state_of(r), reason);
END $$;

--: idem_operator_resolve plpgsql definer
DECLARE
    p idempotency.in_force;
    r idempotency.record;
    status "char";
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
    headers := idempotency.checked_headers(headers);
    PERFORM idempotency.check_resolution(action, status_code, body, headers, error, reason);
    IF even_if_running AND action <> 'release' THEN PERFORM idempotency.refuse('not_a_release'); END IF;
    PERFORM idempotency.check_not_own(key COLLATE "C", scope, principal), idempotency.check_writable('idem_resolve()');
    p := idempotency.policy_for(scope COLLATE "C");
    PERFORM idempotency.require_reason(p, reason);
    r := idempotency.locked_record(key COLLATE "C", scope, principal);
    IF r.token IS NULL THEN PERFORM idempotency.refuse('no_claim'); END IF;
    PERFORM idempotency.check_readable(r);
    IF action = 'release' AND even_if_running IS NOT TRUE AND idempotency.lives(r, clock_timestamp()) THEN
        PERFORM idempotency.refuse('executing',
            coalesce('"' || r.holder || '"', 'the backend ' || r.backend_pid, 'not named'), r.lease_until::text);
    END IF;
    status := idempotency.status_now(r);
    IF NOT idempotency.is_for(action, status) THEN
        PERFORM idempotency.refuse(CASE action WHEN 'reopen' THEN 'not_failed' ELSE 'is_final' END,
                                   idempotency.status_word(status));
    END IF;
    PERFORM idempotency.rule(r, p, action, status_code, convert_to(body, 'UTF8'), headers, error, reason);
    RETURN true;
END

--: idem_operator_forget plpgsql definer
DECLARE
    r idempotency.record;
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal), idempotency.check_reason(reason);
    PERFORM idempotency.check_not_own(key COLLATE "C", scope, principal), idempotency.check_writable('idem_forget()'),
            idempotency.require_reason(idempotency.policy_for(scope COLLATE "C"), reason);
    r := idempotency.locked_record(key COLLATE "C", scope, principal);
    IF r.token IS NULL THEN RETURN false; END IF;
    IF idempotency.lives(r, clock_timestamp()) THEN PERFORM idempotency.refuse('leased'); END IF;
    PERFORM idempotency.remove_for_good(r, reason, false);
    RETURN true;
END

-- Forgets a record and all that is kept beside it.
CREATE FUNCTION idempotency.remove_for_good(r idempotency.record, reason text, erase boolean) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    before constant jsonb := idempotency.state_of(r);
BEGIN
    PERFORM idempotency.remove_record(r);
    DELETE FROM idempotency.attempt a WHERE a.key = r.key AND a.scope = r.scope AND a.principal = r.principal;
    PERFORM idempotency.write_audit('forget', r.scope, r.principal, r.key, before => before, reason => reason, erased => erase);
END $$;

-- Looks at one of many records, and locks it if that is to be had. Of one of many. No record is waited for:
-- running, passed, closed, or null if it may be decided.
CREATE FUNCTION idempotency.look_at_idle(key text, scope text, principal text, OUT verdict text, OUT r idempotency.record)
    LANGUAGE plpgsql AS $$
BEGIN
    IF idempotency.closure_of(scope) IS NOT NULL THEN
        verdict := 'closed';
    ELSIF idempotency.is_own_claim(idempotency.record_of(key, scope, principal))
          OR NOT pg_try_advisory_xact_lock(18756, idempotency.lock_of(key, scope, principal)) THEN
        verdict := 'running';
    ELSE
        r := idempotency.newest_record(key, scope, principal);
        verdict := CASE WHEN r.token IS NULL THEN 'passed'
                        WHEN idempotency.lives(r, clock_timestamp()) THEN 'running' END;
    END IF;
END $$;

--: idem_operator_resolve_idle plpgsql definer
DECLARE
    seen record;
    r idempotency.record;
    now_is "char";
    p idempotency.in_force;
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
    headers := idempotency.checked_headers(headers);
    PERFORM idempotency.check_resolution(action, status_code, body, headers, error, reason);
    PERFORM idempotency.check_word(status, 'status', 'in_progress, unknown, retryable, exhausted, failed'),
            idempotency.check_moment(claimed_at, 'claimed_at'), idempotency.check_writable('idem_resolve_idle()');
    seen := idempotency.look_at_idle(key COLLATE "C", scope, principal);
    r := seen.r;
    IF r.token IS NOT NULL THEN
        now_is := idempotency.status_now(r);
        IF NOT idempotency.is_for(action, now_is) OR claimed_at <> r.claimed_at OR status <> idempotency.status_word(now_is)
           OR (action IN ('release', 'reopen') AND r.resolved_by IS NOT NULL AND r.status = 'r') THEN
            RETURN 'passed';
        END IF;
    END IF;
    IF seen.verdict IS NOT NULL THEN RETURN seen.verdict; END IF;
    IF r.sealed_by IS NOT NULL THEN RETURN 'no_key'; END IF;
    p := idempotency.policy_for(scope COLLATE "C");
    PERFORM idempotency.require_reason(p, reason);
    BEGIN
        PERFORM idempotency.keep_response(r, p, status_code, convert_to(body, 'UTF8'), headers);
    EXCEPTION WHEN program_limit_exceeded THEN
        RETURN 'too_large';
    END;
    PERFORM idempotency.rule(r, p, action, status_code, convert_to(body, 'UTF8'), headers, error, reason);
    RETURN 'done';
END

--: idem_operator_erase plpgsql definer
DECLARE
    seen record;
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal), idempotency.check_reason(reason),
            idempotency.check_writable('idem_erase()');
    seen := idempotency.look_at_idle(key COLLATE "C", scope, principal);
    IF seen.verdict IS NOT NULL THEN RETURN seen.verdict; END IF;
    PERFORM idempotency.require_reason(idempotency.policy_for(scope COLLATE "C"), reason),
            idempotency.remove_for_good(seen.r, reason, true);
    RETURN 'done';
END

--: idem_operator_erase_decisions plpgsql definer
DECLARE
    decisions bigint;
BEGIN
    PERFORM idempotency.check_writable('idem_erase_decisions()');
    PERFORM idempotency.check_name(of_principal COLLATE "C", 'of_principal'), idempotency.check_reason(reason);
    UPDATE idempotency.audit SET principal = NULL, key = NULL, key_digest = NULL, salt = NULL, erased = true
     WHERE principal = of_principal COLLATE "C";
    GET DIAGNOSTICS decisions = ROW_COUNT;
    PERFORM idempotency.write_audit('erase', after => jsonb_build_object('decisions', decisions),
                                    reason => reason, erased => true);
    RETURN decisions;
END

-- Every claim locks the table for writing from its grant on.
--: idem_operator_await_claims plpgsql definer
DECLARE
    until timestamptz;
    open bigint;
BEGIN
    PERFORM idempotency.check_writable('idem_await_claims()'), idempotency.check_name(principal COLLATE "C", 'principal');
    until := idempotency.after(clock_timestamp(), coalesce(idempotency.checked_span(at_most, 'at_most', 1, true), 0));
    LOOP
        SELECT count(DISTINCT coalesce(l.pid::text, l.virtualtransaction)) INTO open FROM pg_locks l
         WHERE l.locktype = 'relation' AND l.relation = 'idempotency.record'::regclass AND l.granted
           AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
           AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareRowExclusiveLock',
                          'ExclusiveLock', 'AccessExclusiveLock')
           AND l.pid IS DISTINCT FROM pg_backend_pid();
        IF open = 0 OR clock_timestamp() >= until THEN RETURN open; END IF;
        PERFORM pg_sleep(0.02);
    END LOOP;
END

--: idem_operator_attempts plpgsql definer
PERFORM idempotency.check_identity(key COLLATE "C", scope, principal), idempotency.policy_for(scope COLLATE "C");
PERFORM idempotency.refuse('sealed', a.sealed_by) FROM idempotency.attempt a
  WHERE a.key = idem_attempts.key COLLATE "C" AND a.scope = idem_attempts.scope COLLATE "C"
    AND a.principal = idem_attempts.principal COLLATE "C" AND a.sealed_by IS NOT NULL;
RETURN QUERY SELECT a.attempt, a.holder, a.begun, a.ended, a.how, a.status_code, a.error, a.reference, a.resolved_by,
                    a.retained_until, a.sealed_by
  FROM idempotency.attempt a
 WHERE a.key = idem_attempts.key COLLATE "C" AND a.scope = idem_attempts.scope COLLATE "C"
   AND a.principal = idem_attempts.principal COLLATE "C"
 ORDER BY a.ended, a.token;

-- A decision that only the owner of a table writes down.
--: idem_owner_writes plpgsql
IF NOT pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), 'USAGE') THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('permission denied for table %s', TG_TABLE_NAME),
        DETAIL = 'Only its owner may write to it, regardless of grants.';
END IF;
RETURN coalesce(NEW, OLD);
