-- idem_once_each (src/claim/once_each.cpp). New keys are locked one after the other, in the order of their
-- bytes, and written together. A key that is known, or that another session has, goes the way of idem_once.

-- Writes the records of new keys whose locks the caller has. A key that another session has written goes the way
-- of idem_once.
CREATE FUNCTION idempotency.complete_together(keys text[], scope text, principal text, terms idempotency.terms, ttl interval,
    wait interval, snapshot pg_snapshot) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    written text[];
BEGIN
    IF keys = '{}' THEN RETURN keys; END IF;
    WITH new AS (
        INSERT INTO idempotency.record (scope, principal, key, status, if_silent, attempt, body_limit, omit_large_body,
            token, lease_us, created_at, claimed_at, expires_at, retained_until, finished_at, written_in, open_claim)
        SELECT scope, principal, k.key, 'c', terms.if_silent, 1, terms.body_limit, terms.omit_large_body,
               idempotency.new_token(NULL), terms.lease, now, now, idempotency.after(now, terms.ttl),
               idempotency.after(now, greatest(terms.retention, terms.ttl)), now, pg_current_xact_id(), 'n'
          FROM unnest(keys) WITH ORDINALITY k (key, place) ORDER BY k.place
            ON CONFLICT DO NOTHING RETURNING key)
    SELECT coalesce(array_agg(n.key), '{}') INTO written FROM new n;
    RETURN written || ARRAY(SELECT k FROM unnest(keys) k WHERE k <> ALL (written)
                               AND @extschema@.idem_once(k, scope, principal, ttl, wait, false, snapshot));
END $$;

--: idem_once_each plpgsql definer hidden(statement_snapshot pg_snapshot DEFAULT pg_current_snapshot())
DECLARE
    seed bytea := (SELECT s.value FROM idempotency.seed s);
    p idempotency.policy;
    terms idempotency.terms;
    together boolean;
    one record;
    waiting text[] COLLATE "C" := '{}';
    fresh text[] COLLATE "C" := '{}';
BEGIN
    PERFORM idempotency.check_given('keys', keys IS NOT NULL);
    IF cardinality(keys) > 1000 THEN PERFORM idempotency.refuse('too_many_keys', cardinality(keys)::text); END IF;
    PERFORM idempotency.check_list(keys, 'keys');
    PERFORM idempotency.check_identity(k COLLATE "C", scope, principal) FROM unnest(keys) k UNION ALL
     SELECT idempotency.check_identity('none' COLLATE "C", scope, principal);
    PERFORM idempotency.checked_span(ttl, 'ttl'), idempotency.checked_span(wait, 'wait', 1, true);
    PERFORM idempotency.check_writable('idem_once_each()');
    p := idempotency.policy_row(scope COLLATE "C");
    together := NOT same_statement AND NOT idempotency.snapshot_is_fixed() AND seed IS NOT NULL
        AND idempotency.is_plain(p, principal);
    terms := idempotency.terms_of(p);
    IF ttl IS NOT NULL THEN terms.ttl := least(idempotency.micros(ttl), idempotency.micros(p.max_ttl)); END IF;
    FOR one IN SELECT k.key, t.key IS NOT NULL AS is_known
                 FROM (SELECT DISTINCT u COLLATE "C" AS key FROM unnest(keys) u) k
                 LEFT JOIN idempotency.record t ON t.key = k.key AND t.scope = idem_once_each.scope COLLATE "C"
                                               AND t.principal = idem_once_each.principal COLLATE "C"
                ORDER BY k.key LOOP
        IF together AND NOT one.is_known
           AND pg_try_advisory_xact_lock(18756, idempotency.lock_number(seed, one.key, scope, principal)) THEN
            waiting := waiting || one.key;
            CONTINUE;
        END IF;
        fresh := fresh || idempotency.complete_together(waiting COLLATE "C", scope, principal, terms, ttl, wait, statement_snapshot);
        waiting := '{}';
        IF @extschema@.idem_once(one.key, scope, principal, ttl, wait, same_statement, statement_snapshot) THEN
            fresh := fresh || one.key;
        END IF;
    END LOOP;
    fresh := fresh || idempotency.complete_together(waiting COLLATE "C", scope, principal, terms, ttl, wait, statement_snapshot);
    RETURN QUERY SELECT k.key FROM unnest(keys COLLATE "C") WITH ORDINALITY k (key, place)
                  WHERE k.key = ANY (fresh) GROUP BY k.key ORDER BY min(k.place);
END
