-- The end of a claim, and what its holder does before (src/claim/holder.cpp, result.cpp, history.cpp).

-- Refuses a value over the limit.
CREATE FUNCTION idempotency.check_size(what text, value text, allowed bigint) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF octet_length(value) > allowed THEN
        PERFORM idempotency.refuse('too_large', what, octet_length(value)::text, allowed::text);
    END IF;
END $$;

-- A text cut to a size. An error is read by people, so up to 64 kB of it are kept.
CREATE FUNCTION idempotency.clipped(value text, bytes integer DEFAULT 65536) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    start bytea;
BEGIN
    IF octet_length(value) <= bytes THEN RETURN value; END IF;
    start := convert_to(left(value, bytes + 1), 'UTF8');
    WHILE get_byte(start, bytes) & 192 = 128 LOOP bytes := bytes - 1; END LOOP;  -- inside a character
    RETURN convert_from(substr(start, 1, bytes), 'UTF8');
END $$;

-- Headers without those that are dropped.
CREATE FUNCTION idempotency.kept_headers(headers jsonb, dropped text[]) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE
    RETURN CASE WHEN headers IS NOT NULL THEN
    (SELECT coalesce(jsonb_object_agg(h.key, h.value), '{}') FROM jsonb_each(headers) h
      WHERE lower(h.key COLLATE "C") <> ALL (SELECT lower(d COLLATE "C") FROM unnest(coalesce(dropped,
          /*DROPPED_HEADERS*/)) d)) END;

---- what a record says when an attempt has ended: each function is one of result.cpp ----

-- Puts status and time of an end into a record.
CREATE FUNCTION idempotency.mark_ended(r idempotency.record, status "char") RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
BEGIN
    r.status := status;
    r.finished_at := clock_timestamp();
    r.lease_until := NULL; r.next_attempt_at := NULL; r.backend_pid := NULL; r.backend_start := NULL;
    r.error := NULL; r.resolved_by := NULL;
    IF status IN ('c', 'f') THEN
        r.recovery_point := NULL; r.state := NULL;
    END IF;
    RETURN r;
END $$;

-- Keeps the answer of a derived key for its window.
CREATE FUNCTION idempotency.keep_for_window(r idempotency.record, ended timestamptz) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
BEGIN
    IF ended >= r.retained_until AND r.status <> 'r' THEN
        r.retained_until := idempotency.after(ended, idempotency.since(r.retained_until, r.created_at));
        r.expires_at := r.retained_until;
    END IF;
    RETURN r;
END $$;

-- Keeps an answer long enough after long work.
CREATE FUNCTION idempotency.keep_long_enough(r idempotency.record, ended timestamptz) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
DECLARE
    ttl bigint;
    retention bigint;
BEGIN
    IF idempotency.is_derived(r) THEN RETURN idempotency.keep_for_window(r, ended); END IF;
    IF NOT isfinite(r.expires_at) THEN RETURN r; END IF;
    ttl := idempotency.since(r.expires_at, r.claimed_at);
    retention := idempotency.since(r.retained_until, r.claimed_at);
    IF idempotency.since(r.expires_at, ended) < ttl / 2 THEN
        r.expires_at := idempotency.after(ended, ttl);
        r.retained_until := idempotency.after(ended, retention);
    END IF;
    RETURN r;
END $$;

-- Keeps what has come half of the way.
CREATE FUNCTION idempotency.keep_if_half_way(r idempotency.record) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
BEGIN
    IF r.status = 'r' AND r.recovery_point IS NOT NULL AND NOT idempotency.is_derived(r) THEN
        r.expires_at := 'infinity'; r.retained_until := 'infinity';
    END IF;
    RETURN r;
END $$;

-- Keeps an exhausted record for its retention.
CREATE FUNCTION idempotency.keep_exhausted(r idempotency.record, p idempotency.in_force) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
BEGIN
    IF NOT idempotency.is_derived(r) THEN
        r.retained_until := idempotency.after(r.finished_at, CASE WHEN isfinite(r.retained_until)
            THEN idempotency.since(r.retained_until, r.claimed_at) ELSE greatest(p.retention, p.ttl) END);
    END IF;
    r.expires_at := r.retained_until;
    RETURN r;
END $$;

-- Keeps a decision as a fresh answer.
CREATE FUNCTION idempotency.keep_as_fresh(r idempotency.record, p idempotency.in_force) RETURNS idempotency.record
    LANGUAGE plpgsql AS $$
BEGIN
    IF idempotency.is_derived(r) THEN RETURN idempotency.keep_for_window(r, r.finished_at); END IF;
    IF r.expires_at = 'infinity' THEN
        r.expires_at := r.finished_at; r.retained_until := r.finished_at;
    END IF;
    r.expires_at := greatest(r.expires_at, idempotency.after(r.finished_at, p.ttl));
    r.retained_until := greatest(r.retained_until, idempotency.after(r.finished_at, greatest(p.retention, p.ttl)));
    RETURN r;
END $$;

-- Puts a response into a record.
CREATE FUNCTION idempotency.keep_response(r idempotency.record, p idempotency.in_force, status_code integer, body bytea,
                                          headers jsonb) RETURNS idempotency.record LANGUAGE plpgsql AS $$
DECLARE
    -- What the policy at the claim allowed stays allowed: the effect has happened.
    allowed bigint := greatest(p.max_body_bytes, r.body_limit);
    kept jsonb := CASE WHEN headers IS NOT NULL THEN idempotency.kept_headers(headers, p.drop_headers) END;
BEGIN
    IF kept <> '{}' THEN PERFORM idempotency.check_size('headers', kept::text, allowed); END IF;
    r.body_omitted := coalesce(octet_length(body), 0) > allowed;
    IF r.body_omitted AND p.on_large_body <> 'omit' AND NOT r.omit_large_body THEN
        PERFORM idempotency.refuse('body_too_large', octet_length(body)::text, allowed::text);
    END IF;
    r.status_code := status_code;
    r.headers := kept;
    r.body := CASE WHEN NOT r.body_omitted THEN body END;
    RETURN r;
END $$;

-- The longest pause after an attempt, in microseconds.
CREATE FUNCTION idempotency.backoff(base bigint, cap bigint, attempt integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN base <= 0 OR cap <= 0 THEN 0
            WHEN greatest(attempt, 1) - 1 >= 63 OR base > cap >> (greatest(attempt, 1) - 1) THEN cap
            ELSE base << (greatest(attempt, 1) - 1) END $$;

---- the history ----

-- Writes how an attempt ended, where the policy keeps history; by default as its record says.
CREATE FUNCTION idempotency.keep_attempt(p idempotency.in_force, r idempotency.record, how text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    IF NOT p.keep_history THEN RETURN; END IF;
    how := coalesce(how, CASE r.status WHEN 'i' THEN 'retryable' ELSE idempotency.status_word(r.status) END);
    -- Until an attempt brings a result, its record shows that of the one before.
    IF how IN ('released', 'taken_over', 'silent') THEN
        r.error := NULL; r.status_code := NULL; r.resolved_by := NULL;
    END IF;
    INSERT INTO idempotency.attempt (scope, principal, key, attempt, token, holder, begun, ended, how, status_code, error,
                                     reference, resolved_by, retained_until)
    VALUES (r.scope, r.principal, r.key, r.attempt, r.token, r.holder, r.claimed_at, clock_timestamp(), how,
            r.status_code, r.error, r.reference, r.resolved_by,
            idempotency.after(clock_timestamp(), greatest(p.retention, p.ttl)));
END $$;

-- Removes the end of an attempt that was undone.
CREATE FUNCTION idempotency.take_back_attempt(r idempotency.record) RETURNS void LANGUAGE sql AS $$
DELETE FROM idempotency.attempt a WHERE (a.key, a.scope, a.principal, a.token) = ((r).key, (r).scope, (r).principal, (r).token) $$;

---- whose claim it is ----

-- The claim that a caller speaks of: open in this transaction, ended already, or committed and proven by
-- its token. Then it takes the lock, waiting for a transaction that is deciding about the key.
CREATE FUNCTION idempotency.find_claim(function text, key text, scope text, principal text, token bigint,
    OUT p idempotency.in_force, OUT r idempotency.record, OUT open boolean, OUT ended boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    own boolean;
BEGIN
    PERFORM idempotency.check_writable(function);
    p := idempotency.policy_for(scope);
    r := idempotency.record_of(key, scope, principal);
    own := coalesce(r.open_claim IS NOT NULL AND r.written_in = pg_current_xact_id_if_assigned(), false);
    open := idempotency.is_own_claim(r);
    ended := false;
    IF open AND token <> r.token THEN
        PERFORM idempotency.refuse('claim_lost');
    ELSIF open THEN
        RETURN;
    ELSIF own AND r.open_claim = 'g' AND token IS NULL THEN
        PERFORM idempotency.refuse('no_claim');
    ELSIF own AND r.open_claim = 'e' AND token IS NULL THEN
        token := r.token;
    END IF;
    IF token IS NOT NULL THEN r := idempotency.locked_record(key, scope, principal); END IF;
    IF r.token IS NULL OR token IS DISTINCT FROM r.token THEN
        PERFORM idempotency.refuse(CASE WHEN r.token IS NULL THEN 'no_claim' WHEN token IS NULL THEN 'no_token' ELSE 'claim_lost' END);
    END IF;
    PERFORM idempotency.check_readable(r);
    ended := r.status NOT IN ('i', 'u') AND NOT (r.status = 'x' AND r.lease_until IS NOT NULL);
END $$;

-- Writes a changed record of a claim.
CREATE FUNCTION idempotency.save(n idempotency.record, old idempotency.record, open boolean, ends boolean) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    n.open_claim := CASE WHEN NOT ends THEN CASE WHEN open THEN old.open_claim END
                         WHEN open OR old.open_claim = 'e' AND old.written_in = pg_current_xact_id_if_assigned() THEN 'e' ELSE 'd' END;
    n.before := CASE WHEN open AND NOT ends THEN old.before END;
    IF NOT idempotency.replace_record(n, old, any_lease => true) THEN PERFORM idempotency.refuse('overtaken'); END IF;
END $$;

-- Ends a claim: as completed, failed for good or for now, or unknown.
CREATE FUNCTION idempotency.end_claim(function text, key text, scope text, principal text, token bigint, how text,
    status_code integer DEFAULT NULL, body bytea DEFAULT NULL, headers jsonb DEFAULT NULL, error text DEFAULT NULL,
    reference text DEFAULT NULL, ttl bigint DEFAULT NULL, retry_after bigint DEFAULT NULL, uncertain boolean DEFAULT false,
    of_operation boolean DEFAULT false) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    claim constant record := idempotency.find_claim(function, key, scope, principal, token);
    p constant idempotency.in_force := claim.p;
    r idempotency.record := claim.r;
    ends_as "char";
    longest bigint;
BEGIN
    IF claim.open AND r.open_claim = 'r' AND NOT of_operation THEN
        PERFORM idempotency.refuse('own_operation');
    ELSIF claim.ended OR (r.status = 'u' AND (how = 'unknown' OR uncertain)) THEN
        RETURN false;
    ELSIF r.status = 'u' AND how = 'retryable' THEN
        PERFORM idempotency.refuse('ended_unknown');
    END IF;
    -- The ttl of a silent claim that was stored as exhausted is forgotten.
    IF r.status = 'x' AND NOT idempotency.is_derived(r) THEN
        r.expires_at := idempotency.after(r.claimed_at, p.ttl);
        r.retained_until := idempotency.after(r.claimed_at, greatest(p.retention, p.ttl));
    END IF;
    ends_as := CASE
        WHEN how = 'completed' THEN 'c'
        WHEN how = 'failed' THEN 'f'
        WHEN how = 'unknown' OR (uncertain AND (r.if_silent = 'u' OR p.on_lease_expiry = 'unknown')) THEN 'u'
        WHEN r.status = 'x' OR (p.max_attempts > 0 AND r.attempt >= p.max_attempts) THEN 'x' ELSE 'r' END;
    r := idempotency.mark_ended(r, ends_as);
    r.error := idempotency.clipped(error);
    IF ends_as = 'u' THEN
        r.reference := idempotency.clipped(reference);
        status_code := NULL; body := NULL; headers := NULL;
    ELSIF ends_as = 'x' THEN
        r := idempotency.keep_exhausted(r, p);
    ELSE
        IF ends_as = 'c' AND ttl IS NOT NULL THEN
            r.expires_at := idempotency.after(r.claimed_at, least(ttl, p.max_ttl));
            IF idempotency.is_derived(r) THEN
                r.expires_at := least(r.expires_at, r.retained_until);
            ELSE
                r.retained_until := greatest(r.retained_until, r.expires_at);
            END IF;
        ELSIF ends_as = 'r' THEN
            longest := idempotency.backoff(p.retry_base, p.retry_cap, r.attempt);
            r.next_attempt_at := idempotency.after(r.finished_at, coalesce(retry_after,
                CASE p.retry_jitter WHEN 'none' THEN longest ELSE floor(longest * random())::bigint END));
        END IF;
        r := idempotency.keep_long_enough(r, greatest(r.finished_at, r.next_attempt_at));
        r := idempotency.keep_if_half_way(r);
    END IF;
    r := idempotency.keep_response(r, p, status_code, body, headers);
    PERFORM idempotency.save(r, claim.r, claim.open, true);
    IF (claim.r).status <> 'i' THEN PERFORM idempotency.take_back_attempt(r); END IF;
    PERFORM idempotency.keep_attempt(p, r);
    RETURN true;
END $$;

-- Ends a claim in a plain case. The short way of idem_complete and of a final idem_fail, in one statement:
-- for a claim of this transaction, where the policy is plain. False: the call goes the long way.
CREATE FUNCTION idempotency.plain_end(key text, scope text, principal text, token bigint, ended_as text, status_code integer,
                                      body bytea, headers jsonb, error text, of_operation boolean) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    size bigint := coalesce(octet_length(body), 0);
BEGIN
    IF status_code NOT BETWEEN 200 AND 599 OR current_setting('transaction_read_only') = 'on' THEN RETURN false; END IF;
    IF headers IS NOT NULL THEN
        headers := idempotency.kept_headers(idempotency.checked_headers(headers), NULL);
        size := greatest(size, octet_length(headers::text));
    END IF;
    IF error IS NOT NULL THEN error := idempotency.clipped(error); END IF;
    UPDATE idempotency.record t
       SET status = ended_as, status_code = plain_end.status_code, body = plain_end.body, body_omitted = false,
           headers = plain_end.headers, error = plain_end.error, finished_at = now, lease_until = NULL, next_attempt_at = NULL,
           backend_pid = NULL, backend_start = NULL, resolved_by = NULL, recovery_point = NULL, state = NULL,
           open_claim = 'e', before = NULL
     WHERE t.key = plain_end.key AND t.scope = plain_end.scope AND t.principal = plain_end.principal
       AND t.written_in = pg_current_xact_id_if_assigned()
       AND t.status <> ALL ('{c,f,r,x,u}')  -- In progress. With "=" the index of all claims in progress would be walked.
       AND (t.open_claim IN ('o', 't', 'q', 'l') OR t.open_claim = 'r' AND of_operation)
       AND coalesce(t.token = plain_end.token, true)
       AND NOT (EXISTS (SELECT FROM idempotency.policies_with_more()) AND idempotency.asks_more(t.scope, t.principal))
       AND size <= t.body_limit
       -- What keep_long_enough would leave as it is.
       AND now + (now - t.claimed_at) <= t.expires_at AND (t.fingerprint_of & 8 = 8) IS NOT TRUE;
    RETURN FOUND;
END $$;

-- Idem_complete with a body of bytes, the long way.
CREATE FUNCTION idempotency.complete(key text, status_code integer, body bytea, headers jsonb, scope text, principal text,
                                     token bigint, ttl interval) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idempotency.check_identity(key, scope, principal), idempotency.check_number(status_code, 'status_code', 200, 599);
    RETURN idempotency.end_claim('idem_complete()', key, scope, principal, token, 'completed', status_code, body,
                                 idempotency.checked_headers(headers), ttl => idempotency.checked_span(ttl, 'ttl'));
END $$;

-- Idem_fail with a body of bytes.
CREATE FUNCTION idempotency.fail(key text, error text, retryable boolean, status_code integer, body bytea, headers jsonb,
                                 scope text, principal text, token bigint, retry_after interval, uncertain boolean)
    RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    pause bigint;
BEGIN
    IF NOT coalesce(retryable OR uncertain, false) AND retry_after IS NULL AND idempotency.plain_end(key, scope, principal,
           token, 'f', status_code, body, headers, error, false) THEN
        RETURN true;
    END IF;
    PERFORM idempotency.check_identity(key, scope, principal);
    pause := idempotency.checked_span(retry_after, 'retry_after', 36525, true);
    IF retryable IS NOT TRUE AND (retry_after IS NOT NULL OR uncertain) THEN
        PERFORM idempotency.refuse(CASE WHEN retry_after IS NOT NULL THEN 'final_retry_after' ELSE 'final_uncertain' END);
    END IF;
    PERFORM idempotency.check_number(status_code, 'status_code', 200, 599);
    RETURN idempotency.end_claim('idem_fail()', key, scope, principal, token,
        CASE WHEN retryable THEN 'retryable' ELSE 'failed' END, status_code, body, idempotency.checked_headers(headers),
        error, retry_after => pause, uncertain => coalesce(uncertain, false));
END $$;

--: idem_complete_text idem_complete_jsonb plpgsql definer
IF ttl IS NULL AND idempotency.plain_end(key COLLATE "C", scope, principal, token, 'c', status_code, convert_to(body::text, 'UTF8'),
                                         headers, NULL, false) THEN
    RETURN true;
END IF;
RETURN idempotency.complete(key COLLATE "C", status_code, convert_to(body::text, 'UTF8'), headers,
                            scope, principal, token, ttl);
--: idem_complete_bytea plpgsql definer
IF ttl IS NULL AND idempotency.plain_end(key COLLATE "C", scope, principal, token, 'c', status_code, body, headers, NULL, false) THEN
    RETURN true;
END IF;
RETURN idempotency.complete(key COLLATE "C", status_code, body, headers, scope, principal, token, ttl);
--: idem_fail_text idem_fail_jsonb plpgsql definer
RETURN idempotency.fail(key COLLATE "C", error, retryable, status_code, convert_to(body::text, 'UTF8'),
                        headers, scope, principal, token, retry_after, uncertain);
--: idem_fail_bytea plpgsql definer
RETURN idempotency.fail(key COLLATE "C", error, retryable, status_code, body, headers, scope, principal, token,
                        retry_after, uncertain);
--: idem_unknown plpgsql definer
PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
RETURN idempotency.end_claim('idem_unknown()', key COLLATE "C", scope, principal, token, 'unknown',
                             error => error, reference => reference);

-- Gives a claim back. In its own transaction the row is what it was before; later the record of a first
-- attempt is removed, and an earlier attempt's may be run again.
--: idem_release plpgsql definer
DECLARE
    claim record;
    r idempotency.record;
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
    claim := idempotency.find_claim('idem_release()', key COLLATE "C", scope, principal, token);
    r := claim.r;
    IF claim.open AND r.open_claim = 'r' THEN
        PERFORM idempotency.refuse('own_operation');
    ELSIF claim.ended THEN
        RETURN false;
    ELSIF r.status <> 'i' THEN
        PERFORM idempotency.refuse(CASE r.status WHEN 'u' THEN 'ended_unknown' ELSE 'used_up' END);
    END IF;
    IF claim.open AND r.before IS NOT NULL THEN
        r := idempotency.unpacked((claim.r).before);
        r.before := (claim.r).token;
        IF r.status = 'i' THEN PERFORM idempotency.take_back_attempt(r); END IF;
        r.open_claim := 'g';
        IF NOT idempotency.replace_record(r, claim.r, any_lease => true) THEN
            PERFORM idempotency.refuse('overtaken');
        END IF;
    ELSIF claim.open OR r.attempt = 1 THEN
        IF NOT claim.open THEN PERFORM idempotency.keep_attempt(claim.p, r, 'released'); END IF;
        PERFORM idempotency.remove_record(r);
    ELSE
        PERFORM idempotency.keep_attempt(claim.p, r, 'released');
        r.status := 'r';
        r.attempt := r.attempt - 1;
        r.backend_pid := NULL; r.backend_start := NULL; r.lease_until := NULL;
        r.next_attempt_at := clock_timestamp();
        r := idempotency.keep_if_half_way(idempotency.keep_long_enough(r, r.next_attempt_at));
        -- The token that is given back dies: nothing is recorded under it.
        r.token := idempotency.next_token(r);
        PERFORM idempotency.save(r, claim.r, false, false);
    END IF;
    RETURN true;
END

-- Removes a record, and leaves a trace for snapshots that may not know of it.
CREATE FUNCTION idempotency.remove_record(r idempotency.record) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM idempotency.record t WHERE t.key = r.key AND t.scope = r.scope AND t.principal = r.principal
                                       AND t.token = r.token AND t.status = r.status;
    IF NOT FOUND THEN PERFORM idempotency.refuse('overtaken'); END IF;
    -- Also of a claim that this transaction began: its other work is not undone.
    UPDATE idempotency.removal m SET removed_in = pg_current_xact_id(),
           forgotten_in = CASE WHEN idempotency.is_own_claim(r) AND r.before IS NULL THEN m.forgotten_in
                               ELSE pg_current_xact_id() END
     WHERE m.part = idempotency.lock_of(r.key, r.scope, r.principal) & 63;
END $$;

-- Refuses a claim without a lease.
CREATE FUNCTION idempotency.require_lease(claim record) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF claim.ended OR (claim.r).status <> 'i' THEN
        PERFORM idempotency.refuse(CASE WHEN claim.ended THEN 'claim_ended' WHEN (claim.r).status = 'u' THEN 'ended_unknown'
                                        ELSE 'used_up' END);
    END IF;
END $$;

-- Prolongs a lease, and writes down a recovery point if there is one. A lease that was given becomes the claim's own.
CREATE FUNCTION idempotency.prolong(function text, key text, scope text, principal text, token bigint, lease interval,
                                    point text DEFAULT NULL, state jsonb DEFAULT NULL) RETURNS timestamptz
    LANGUAGE plpgsql AS $$
DECLARE
    span constant bigint := idempotency.checked_span(lease, 'lease');
    claim constant record := idempotency.find_claim(function, key, scope, principal, token);
    r idempotency.record := claim.r;
BEGIN
    PERFORM idempotency.require_lease(claim);
    IF point IS NOT NULL THEN
        PERFORM idempotency.check_size('state', state::text, greatest((claim.p).max_body_bytes, r.body_limit));
        r.recovery_point := point; r.state := state;
    END IF;
    r.lease_us := least(coalesce(span, r.lease_us), (claim.p).max_lease);
    r.lease_until := idempotency.after(clock_timestamp(), r.lease_us);
    PERFORM idempotency.save(r, claim.r, claim.open, false);
    RETURN r.lease_until;
END $$;

--: idem_extend plpgsql definer
PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
RETURN idempotency.prolong('idem_extend()', key COLLATE "C", scope, principal, token, lease);

--: idem_checkpoint plpgsql definer
PERFORM idempotency.check_identity(key COLLATE "C", scope, principal), idempotency.check_name(recovery_point, 'recovery_point');
RETURN idempotency.prolong('idem_checkpoint()', key COLLATE "C", scope, principal, token, lease, recovery_point, state);
