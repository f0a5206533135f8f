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
    list constant text := CASE word WHEN 'closed' THEN 'closed_scopes' ELSE 'undecided_scopes' END;
BEGIN
    t := jsonb_set(t, ARRAY[word], to_jsonb(idempotency.count_of(t, word) + 1));
    IF word = 'running' AND jsonb_array_length(t -> 'running_keys') < 100 THEN
        t := jsonb_set(t, '{running_keys}', (t -> 'running_keys')
            || jsonb_build_object('scope', scope, 'principal', principal, 'key', key));
    ELSIF word IN ('closed', 'no_key', 'too_large') THEN
        t := jsonb_set(t, ARRAY[list], idempotency.with_scope(t -> list, word, scope, 1));
    END IF;
END $$;

-- What was counted by a word.
CREATE FUNCTION idempotency.count_of(t jsonb, word text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
SELECT coalesce((t ->> word)::bigint, 0) $$;

-- A list of scopes with more records of one, or with its attempts. It names 100 scopes with records.
CREATE FUNCTION idempotency.with_scope(list jsonb, word text, scope text, records bigint, attempts bigint DEFAULT NULL)
    RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    entry jsonb := jsonb_build_object('scope', scope) || idempotency.why_left(word, scope);
    place constant bigint := (SELECT n - 1 FROM jsonb_array_elements(list) WITH ORDINALITY l (e, n)
                               WHERE e - '{records,attempts}'::text[] = entry);
BEGIN
    entry := entry || jsonb_build_object('records', idempotency.count_of(list -> place::integer, 'records') + records)
             || CASE WHEN attempts IS NULL THEN '{}' ELSE jsonb_build_object('attempts', attempts) END;
    RETURN CASE WHEN place IS NOT NULL THEN jsonb_set(list, ARRAY[place::text], entry)
                WHEN jsonb_array_length(list) < 100 OR attempts IS NOT NULL THEN list || entry ELSE list END;
END $$;

-- Why a record is left.
CREATE FUNCTION idempotency.why_left(word text, scope text) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT CASE WHEN word <> 'closed' THEN jsonb_build_object('why', word)
            WHEN invalid IS NOT NULL THEN jsonb_build_object('invalid', invalid) ELSE jsonb_build_object('role', p.allowed_role) END
  FROM idempotency.policy_row(scope) p, idempotency.unusable_column(p) invalid $$;

-- Checks the arguments of idem_resolve_all.
CREATE FUNCTION idempotency.check_resolve_all(action text, status_code integer, body text, headers jsonb, error text, reason text,
    scope text, principal text, status text, older_than interval, holder text, batch_size integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM idempotency.check_writable('idem_resolve_all()'), idempotency.check_batch_size(batch_size);
    PERFORM idempotency.check_resolution(action, status_code, body, idempotency.checked_headers(headers), error, reason);
    IF num_nonnulls(scope, principal, status, older_than, holder) = 0 THEN
        PERFORM idempotency.refuse('nothing_selected');
    END IF;
    PERFORM idempotency.checked_span(older_than, 'older_than', 36525, true),
            idempotency.check_word(status, 'status', 'in_progress, unknown, retryable, exhausted, failed');
END $$;

-- Checks the size of a batch.
CREATE FUNCTION idempotency.check_batch_size(batch_size integer) RETURNS void LANGUAGE sql AS $$
SELECT idempotency.check_given('batch_size', batch_size IS NOT NULL),
       idempotency.check_number(batch_size, 'batch_size', 1, 10000) $$;

-- Counts as a row.
CREATE FUNCTION idempotency.found_of(t jsonb, OUT done bigint, OUT running bigint, OUT running_keys jsonb, OUT closed bigint,
                                     OUT closed_scopes jsonb, OUT undecided bigint, OUT undecided_scopes jsonb)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT idempotency.count_of(t, 'done'), idempotency.count_of(t, 'running'), t -> 'running_keys',
       idempotency.count_of(t, 'closed'), t -> 'closed_scopes',
       idempotency.count_of(t, 'too_large') + idempotency.count_of(t, 'no_key'), t -> 'undecided_scopes' $$;

-- Tells which records of many were left.
CREATE FUNCTION idempotency.tell_what_is_left(t jsonb) RETURNS void
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
SELECT idempotency.tell(CASE f.closed WHEN 1 THEN 'one_closed' ELSE 'some_closed' END, f.closed::text)
  FROM idempotency.found_of(t) f WHERE f.closed > 0;
SELECT idempotency.tell(CASE f.undecided WHEN 1 THEN 'one_undecided' ELSE 'some_undecided' END, f.undecided::text,
                        idempotency.count_of(t, 'no_key')::text, idempotency.count_of(t, 'too_large')::text)
  FROM idempotency.found_of(t) f WHERE f.undecided > 0 $$;

--: idem_operator_resolve_all plpgsql caller
DECLARE
    found pg_catalog.record;
    seen pg_catalog.int8 := 0;
    t pg_catalog.jsonb := '{"running_keys": [], "closed_scopes": [], "undecided_scopes": []}';
BEGIN
    COMMIT;  -- an error in a transaction block, before anything is decided
    PERFORM idempotency.check_resolve_all(action, status_code, body, headers, error, reason, scope, principal, status,
                                          older_than, holder, batch_size);
    FOR found IN SELECT * FROM idempotency.chosen(action COLLATE pg_catalog."C", scope, principal, status, older_than, holder) LOOP
        t := idempotency.tally(t, CASE WHEN found.record_key IS NULL THEN 'closed' ELSE @extschema@.idem_resolve_idle(found.record_key COLLATE pg_catalog."C", action, found.record_scope,
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

-- What is left of a principal's history: of keys whose records are gone, and of running ones. Not of
-- closed scopes. And a line of the audit without its name.
CREATE FUNCTION idempotency.forget_history(principal text, reason text, INOUT t jsonb)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    attempts bigint;
    closed_attempts bigint := 0;
    s record;
BEGIN
    FOR s IN SELECT a.scope, count(*) AS attempts FROM idempotency.attempt a
              WHERE a.principal = forget_history.principal AND idempotency.closure_of(a.scope) IS NOT NULL
              GROUP BY a.scope LOOP
        closed_attempts := closed_attempts + s.attempts;
        t := jsonb_set(t, '{closed_scopes}', idempotency.with_scope(t -> 'closed_scopes', 'closed', s.scope, 0, s.attempts));
    END LOOP;
    DELETE FROM idempotency.attempt a WHERE a.principal = forget_history.principal AND idempotency.closure_of(a.scope) IS NULL;
    GET DIAGNOSTICS attempts = ROW_COUNT;
    PERFORM idempotency.write_audit('erase', after => jsonb_build_object('forgotten', idempotency.count_of(t, 'done'),
        'attempts', attempts, 'running', idempotency.count_of(t, 'running'), 'closed', idempotency.count_of(t, 'closed'),
        'closed_attempts', closed_attempts), reason => reason, erased => true);
    t := t || jsonb_build_object('closed_attempts', closed_attempts);
END $$;

-- Whether nothing of a principal is left.
CREATE FUNCTION idempotency.is_erased(t jsonb, tell boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint[] := ARRAY(SELECT idempotency.count_of(t, w) FROM unnest('{running,open,closed,closed_attempts}'::text[]) w);
BEGIN
    IF tell AND n[2] > 0 THEN
        PERFORM idempotency.tell(CASE n[2] WHEN 1 THEN 'one_open' ELSE 'some_open' END, n[2]::text);
    END IF;
    IF tell AND n <> '{0,0,0,0}' THEN PERFORM idempotency.tell('not_erased', n[1]::text, n[3]::text, n[4]::text); END IF;
    RETURN n = '{0,0,0,0}';
END $$;

-- Checks the arguments of idem_forget_principal.
CREATE FUNCTION idempotency.check_forget(principal text, reason text, batch_size integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM idempotency.check_writable('idem_forget_principal()'), idempotency.check_name(principal, 'principal'),
            idempotency.check_reason(reason), idempotency.check_batch_size(batch_size);
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
        FOR found IN SELECT * FROM idempotency.chosen('erase', NULL, principal COLLATE pg_catalog."C", NULL, NULL, NULL) LOOP
            t := idempotency.tally(t, CASE WHEN found.record_key IS NULL THEN 'closed'
                    ELSE @extschema@.idem_erase(found.record_key COLLATE pg_catalog."C", found.record_scope, found.record_principal, reason) END,
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
    t := idempotency.forget_history(principal COLLATE pg_catalog."C", reason, t);
    COMMIT;
    decisions := @extschema@.idem_erase_decisions(principal, reason);
    complete := idempotency.is_erased(t, tell => true);
    SELECT f.done, f.running, f.running_keys, f.closed, f.closed_scopes INTO forgotten, running, running_keys, closed, closed_scopes
      FROM idempotency.found_of(t) f;
END
