-- Many records at once (src/operate/many.cpp, batches.cpp, tally.cpp). A procedure that commits can
-- neither have its owner's rights nor a search_path of its own: it runs as its caller, who may call
-- the functions below, and names everything with its schema.

-- The records that fit, oldest first. Keys of scopes that are closed to the caller are not told.
CREATE FUNCTION idempotency.chosen(action text, scope text, principal text, status text, older_than interval, holder text)
    RETURNS TABLE (record_scope text, record_principal text, record_key text, record_claimed_at timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stored constant "char"[] := CASE status WHEN 'in_progress' THEN '{i}' WHEN 'unknown' THEN '{i,u}' WHEN 'exhausted' THEN '{i,x}'
        WHEN 'retryable' THEN '{r}' WHEN 'failed' THEN '{f}'
        ELSE CASE action WHEN 'reopen' THEN '{i,x,f}' WHEN 'erase' THEN '{i,u,x,r,c,f}' ELSE '{i,u,x,r}' END END;
    claimed_before constant timestamptz := idempotency.after(clock_timestamp(),
        -idempotency.checked_span(older_than, 'older_than', 36525, true));
BEGIN
    RETURN QUERY SELECT t.scope::text, t.principal::text, CASE WHEN idempotency.closure_of(t.scope) IS NULL THEN t.key::text END,
           t.claimed_at FROM idempotency.record t
     WHERE t.status = ANY (stored)
       -- What is in its pause runs again by itself.
       AND (action <> 'release' OR chosen.status IS NOT NULL OR t.next_attempt_at IS NULL OR t.next_attempt_at <= clock_timestamp())
       AND (chosen.scope IS NULL OR idempotency.rank(chosen.scope, t.scope) > 0)
       AND (chosen.principal IS NULL OR t.principal = chosen.principal)
       AND (claimed_before IS NULL OR t.claimed_at <= claimed_before)
       AND (chosen.holder IS NULL OR t.holder = chosen.holder)
     ORDER BY t.claimed_at;
END $$;

-- Counts by what became of each record: words of idem_resolve_idle and idem_erase.
CREATE FUNCTION idempotency.tally(INOUT t jsonb, word text, scope text, principal text, key text)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    entry jsonb;
    list text := CASE word WHEN 'closed' THEN 'closed_scopes' ELSE 'undecided_scopes' END;
    at integer;
BEGIN
    t := jsonb_set(t, ARRAY[word], to_jsonb(coalesce((t ->> word)::bigint, 0) + 1));
    IF word = 'running' AND jsonb_array_length(t -> 'running_keys') < 100 THEN
        t := jsonb_set(t, '{running_keys}', (t -> 'running_keys')
            || jsonb_build_object('scope', scope, 'principal', principal, 'key', key));
    ELSIF word IN ('closed', 'no_key', 'too_large') THEN
        entry := jsonb_build_object('scope', scope) || idempotency.why_left(word, scope);
        SELECT n - 1 INTO at FROM jsonb_array_elements(t -> list) WITH ORDINALITY e (told, n)
         WHERE told - '{records,attempts}'::text[] = entry;
        IF at IS NOT NULL THEN
            t := jsonb_set(t, ARRAY[list, at::text, 'records'], to_jsonb((t #>> ARRAY[list, at::text, 'records'])::bigint + 1));
        ELSIF jsonb_array_length(t -> list) < 100 THEN
            t := jsonb_set(t, ARRAY[list], (t -> list) || (entry || '{"records": 1}'));
        END IF;
    END IF;
END $$;

-- Why a record is left.
CREATE FUNCTION idempotency.why_left(word text, scope text) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT CASE WHEN word <> 'closed' THEN jsonb_build_object('why', word)
            WHEN idempotency.unusable_column(p) IS NOT NULL THEN jsonb_build_object('invalid', idempotency.unusable_column(p))
            ELSE jsonb_build_object('role', p.allowed_role) END
  FROM idempotency.policy_row(scope) p $$;

-- Checks the arguments of idem_resolve_all.
CREATE FUNCTION idempotency.check_resolve_all(action text, status_code integer, body text, headers jsonb, error text, reason text,
    scope text, principal text, status text, older_than interval, holder text, batch_size integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM idempotency.check_writable('idem_resolve_all()');
    PERFORM idempotency.check_batch_size(batch_size);
    PERFORM idempotency.check_resolution(action, status_code, body, idempotency.checked_headers(headers), error, reason);
    IF num_nonnulls(scope, principal, status, older_than, holder) = 0 THEN
        PERFORM idempotency.refuse('no records are selected', 'All of scope, principal, status, older_than and holder are null.',
                                   'For every record that fits the action, pass scope => ''*''.');
    END IF;
    PERFORM idempotency.checked_span(older_than, 'older_than', 36525, true),
            idempotency.check_word(status, 'status', 'in_progress, unknown, retryable, exhausted, failed');
END $$;

-- Checks the size of a batch.
CREATE FUNCTION idempotency.check_batch_size(batch_size integer) RETURNS void LANGUAGE sql AS $$
SELECT idempotency.check_given('batch_size', batch_size IS NOT NULL),
       idempotency.check_number(batch_size, 'batch_size', 1, 10000) $$;

-- Tells which records of many were left.
CREATE FUNCTION idempotency.tell_what_is_left(t jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    closed bigint := coalesce((t ->> 'closed')::bigint, 0);
    undecided bigint := coalesce((t ->> 'too_large')::bigint, 0) + coalesce((t ->> 'no_key')::bigint, 0);
BEGIN
    IF closed > 0 THEN
        RAISE NOTICE USING MESSAGE = CASE closed
                WHEN 1 THEN 'idem_resolve_all(): 1 record is unchanged because its scope is closed to the current user'
                ELSE format('idem_resolve_all(): %s records are unchanged because their scopes are closed to the current user', closed) END,
            DETAIL = 'Their policies are not valid, or admit only members of roles that do not exist or that the current user is not a member of.',
            HINT = 'Call it again as a member of the roles in closed_scopes, or when the policies are valid again.';
    END IF;
    IF undecided > 0 THEN
        RAISE NOTICE USING MESSAGE = CASE undecided
                WHEN 1 THEN 'idem_resolve_all(): 1 record is left because it could not be decided'
                ELSE format('idem_resolve_all(): %s records are left because they could not be decided', undecided) END,
            DETAIL = format('Without their encryption keys: %s. For which the answer is too large: %s.',
                            coalesce(t ->> 'no_key', '0'), coalesce(t ->> 'too_large', '0')),
            HINT = 'Call it again when the keys are there, and with an answer that the policies of undecided_scopes allow.';
    END IF;
END $$;

--: idem_operator_resolve_all plpgsql caller
DECLARE
    found pg_catalog.record;
    seen pg_catalog.int8 := 0;
    t pg_catalog.jsonb := '{"running_keys": [], "closed_scopes": [], "undecided_scopes": []}';
BEGIN
    COMMIT;  -- an error in a transaction block, before anything is decided
    PERFORM idempotency.check_resolve_all(action, status_code, body, headers, error, reason, scope, principal, status,
                                          older_than, holder, batch_size);
    FOR found IN SELECT * FROM idempotency.chosen(action, scope, principal, status, older_than, holder) LOOP
        t := idempotency.tally(t, CASE WHEN found.record_key IS NULL THEN 'closed' ELSE @extschema@.idem_resolve_idle(found.record_key, action, found.record_scope,
            found.record_principal, status_code, body, headers, error, reason, status, found.record_claimed_at) END,
            found.record_scope, found.record_principal, found.record_key);
        seen := seen OPERATOR(pg_catalog.+) 1::pg_catalog.int8;
        IF seen OPERATOR(pg_catalog.%) batch_size::pg_catalog.int8 OPERATOR(pg_catalog.=) 0::pg_catalog.int8 THEN
            COMMIT;
        END IF;
    END LOOP;
    COMMIT;
    PERFORM idempotency.tell_what_is_left(t);
    SELECT f.* INTO resolved, running, running_keys, closed, closed_scopes, undecided, undecided_scopes
      FROM idempotency.found_of(t) f;
END

-- Counts as a row.
CREATE FUNCTION idempotency.found_of(t jsonb, OUT done bigint, OUT running bigint, OUT running_keys jsonb, OUT closed bigint,
                                     OUT closed_scopes jsonb, OUT undecided bigint, OUT undecided_scopes jsonb)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT coalesce((t ->> 'done')::bigint, 0), coalesce((t ->> 'running')::bigint, 0), t -> 'running_keys',
       coalesce((t ->> 'closed')::bigint, 0), t -> 'closed_scopes',
       coalesce((t ->> 'too_large')::bigint, 0) + coalesce((t ->> 'no_key')::bigint, 0), t -> 'undecided_scopes' $$;

-- What is left of a principal's history: of keys whose records are gone, and of running ones. Not of
-- closed scopes. And a line of the audit without its name.
CREATE FUNCTION idempotency.forget_history(principal text, reason text, INOUT t jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    attempts bigint;
    closed_attempts bigint := 0;
    s record;
    at integer;
    entry jsonb;
BEGIN
    FOR s IN SELECT a.scope, count(*) AS attempts FROM idempotency.attempt a
              WHERE a.principal = forget_history.principal AND idempotency.closure_of(a.scope) IS NOT NULL
              GROUP BY a.scope LOOP
        closed_attempts := closed_attempts + s.attempts;
        entry := jsonb_build_object('scope', s.scope) || idempotency.why_left('closed', s.scope);
        SELECT n - 1 INTO at FROM jsonb_array_elements(t -> 'closed_scopes') WITH ORDINALITY e (told, n)
         WHERE told - '{records,attempts}'::text[] = entry;
        IF at IS NULL THEN
            t := jsonb_set(t, '{closed_scopes}', (t -> 'closed_scopes')
                || (entry || jsonb_build_object('records', 0, 'attempts', s.attempts)));
        ELSE
            t := jsonb_set(t, ARRAY['closed_scopes', at::text, 'attempts'], to_jsonb(s.attempts));
        END IF;
    END LOOP;
    DELETE FROM idempotency.attempt a WHERE a.principal = forget_history.principal AND idempotency.closure_of(a.scope) IS NULL;
    GET DIAGNOSTICS attempts = ROW_COUNT;
    PERFORM idempotency.write_audit('erase', after => jsonb_build_object('forgotten', coalesce((t ->> 'done')::bigint, 0),
        'attempts', attempts, 'running', coalesce((t ->> 'running')::bigint, 0),
        'closed', coalesce((t ->> 'closed')::bigint, 0), 'closed_attempts', closed_attempts), reason => reason, erased => true);
    t := t || jsonb_build_object('closed_attempts', closed_attempts);
END $$;

-- Whether nothing of a principal is left.
CREATE FUNCTION idempotency.is_erased(t jsonb, tell boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint[] := ARRAY[coalesce((t ->> 'running')::bigint, 0), coalesce((t ->> 'open')::bigint, 0),
                        coalesce((t ->> 'closed')::bigint, 0), coalesce((t ->> 'closed_attempts')::bigint, 0)];
BEGIN
    IF tell AND n[2] > 0 THEN
        RAISE NOTICE USING MESSAGE = CASE n[2]
                WHEN 1 THEN 'idem_forget_principal(): 1 transaction is open that may write such records'
                ELSE format('idem_forget_principal(): %s transactions are open that may write such records', n[2]) END,
            DETAIL = 'The call has waited for 10 seconds.',
            HINT = 'Call it again when the transactions that are open now have ended.';
    END IF;
    IF tell AND n <> '{0,0,0,0}' THEN
        RAISE WARNING USING MESSAGE = 'idem_forget_principal(): the principal is not completely erased',
            DETAIL = format('%s records are being executed. %s records and %s attempts are in scopes that are closed to the current user, or closed because their policy is not valid.', n[1], n[3], n[4]),
            HINT = 'Call it again when the executions have ended, as a member of the roles in closed_scopes, or when the policies are valid again.';
    END IF;
    RETURN n = '{0,0,0,0}';
END $$;

-- Checks the arguments of idem_forget_principal.
CREATE FUNCTION idempotency.check_forget(principal text, reason text, batch_size integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM idempotency.check_writable('idem_forget_principal()');
    PERFORM idempotency.check_name(principal, 'principal'), idempotency.check_reason(reason);
    PERFORM idempotency.check_batch_size(batch_size);
END $$;

-- A look shows a claim only when it is committed. So transactions that may have one are waited for, and
-- then there is a second look.
--: idem_operator_forget_principal plpgsql caller
DECLARE
    found pg_catalog.record;
    seen pg_catalog.int8 := 0;
    t pg_catalog.jsonb := '{"running_keys": [], "closed_scopes": [], "undecided_scopes": []}';
    open pg_catalog.int8;

BEGIN
    COMMIT;  -- an error in a transaction block, before anything is forgotten
    PERFORM idempotency.check_forget(principal, reason, batch_size);
    open := @extschema@.idem_await_claims(principal, '0');
    FOR look IN 1..2 LOOP
        FOR found IN SELECT * FROM idempotency.chosen('erase', NULL, principal, NULL, NULL, NULL) LOOP
            t := idempotency.tally(t, CASE WHEN found.record_key IS NULL THEN 'closed'
                    ELSE @extschema@.idem_erase(found.record_key, found.record_scope, found.record_principal, reason) END,
                                   found.record_scope, found.record_principal, found.record_key);
            seen := seen OPERATOR(pg_catalog.+) 1::pg_catalog.int8;
            IF seen OPERATOR(pg_catalog.%) batch_size::pg_catalog.int8 OPERATOR(pg_catalog.=) 0::pg_catalog.int8 THEN
                COMMIT;
            END IF;
        END LOOP;
        COMMIT;
        EXIT WHEN look OPERATOR(pg_catalog.=) 2 OR open OPERATOR(pg_catalog.=) 0::pg_catalog.int8 OR NOT idempotency.is_erased(t);
        open := @extschema@.idem_await_claims(principal);
        COMMIT;
        t := t OPERATOR(pg_catalog.||) pg_catalog.jsonb_build_object('open', open);
    END LOOP;
    t := idempotency.forget_history(principal, reason, t);
    COMMIT;
    decisions := @extschema@.idem_erase_decisions(principal, reason);
    complete := idempotency.is_erased(t, tell => true);
    SELECT f.done, f.running, f.running_keys, f.closed, f.closed_scopes INTO forgotten, running, running_keys, closed, closed_scopes
      FROM idempotency.found_of(t) f;
END
