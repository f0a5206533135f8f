-- idem_execute: the operation runs as the caller, so this function has the caller's rights and
-- search_path. What needs those of the owner is in the two functions around it.

-- Idem_execute before its operation.
CREATE FUNCTION idempotency.operation_begins(key text, operation regprocedure, request jsonb, scope text, principal text,
    fingerprint bytea, ttl interval, wait interval, first_sent timestamptz, holder text, method text, path text,
    snapshot pg_snapshot) RETURNS @extschema@.idem_claim
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    claim @extschema@.idem_claim;
    f record;
    q idempotency.question;
    a record;
BEGIN
    PERFORM idempotency.check_given('operation', operation IS NOT NULL);
    SELECT CASE WHEN p.prokind <> 'f' THEN 'It is an aggregate, a window function or a procedure.'
                WHEN p.proretset THEN 'It returns a set.'
                WHEN p.pronargs <> 1 OR p.proargtypes[0] <> 'jsonb'::regtype THEN 'It does not take exactly one argument of type jsonb.'
                WHEN p.prorettype NOT IN ('jsonb'::regtype, '@extschema@.idem_response'::regtype) THEN
                    'It returns neither jsonb nor idem_response.' END AS fault,
           p.proisstrict, idempotency.plain_name(n.nspname) || '.' || idempotency.plain_name(p.proname) || '(jsonb)' AS name
      INTO f FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = operation;
    IF NOT FOUND OR f.fault IS NOT NULL THEN
        PERFORM idempotency.refuse('wrong_operation', coalesce(f.fault, 'There is no such function.'));
    ELSIF first_sent IS NULL AND NOT (f.proisstrict AND request IS NULL) THEN
        claim := idempotency.plain_answer(key COLLATE "C", scope, principal, request, method, path, fingerprint, f.name, ttl, NULL, wait,
                                          holder, false, false);
        IF claim.outcome IS NOT NULL THEN RETURN claim; END IF;
    END IF;
    PERFORM idempotency.check_identity(key, scope, principal, true);
    q := idempotency.question_of('idem_execute()', key, scope, principal, snapshot, ttl, wait, false, NULL, holder,
        request, method, path, fingerprint, first_sent, f.name);
    IF f.proisstrict AND request IS NULL THEN PERFORM idempotency.refuse('no_request'); END IF;
    a := idempotency.answer(q);
    RETURN idempotency.shown(a.reason, a.r, a.q, a.p, a.now);
END $$;

-- A name as an operation is written. Quoted by fixed rules: those of quote_ident depend on a setting and on
-- the server's keywords.
CREATE FUNCTION idempotency.plain_name(name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN name ~ '^[a-z_][a-z0-9_]*$' THEN name ELSE '"' || replace(name, '"', '""') || '"' END $$;

-- Whether another try would meet an error again (src/core/sqlstate.cpp).
CREATE FUNCTION idempotency.is_fault_of_request(state text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT state NOT IN ('23001', '23503')
       AND (left(state, 2) IN ('22', '23', '45') OR state = 'P0001'
            OR (state ~ '^[A-Z689]' AND left(state, 2) NOT IN ('F0', 'HV', 'P0', 'XX', 'ID'))) $$;

-- Whether an error of the operation is the answer, and with which status.
CREATE FUNCTION idempotency.error_is_final(scope text, state text, context text, OUT final boolean, OUT status_code integer)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p idempotency.in_force := idempotency.policy_for(scope);
BEGIN
    -- What our functions raise says nothing about the request.
    IF context LIKE '%function idempotency.%' OR left(state, 2) = 'ID' THEN
        final := false;
        RETURN;
    END IF;
    status_code := coalesce(p.error_statuses ->> state, p.error_statuses ->> left(state, 2))::integer;
    final := status_code IS NOT NULL
        OR CASE WHEN p.final_errors IS NULL THEN idempotency.is_fault_of_request(state)
                ELSE state = ANY (p.final_errors) OR left(state, 2) = ANY (p.final_errors) END;
END $$;

-- Idem_execute after its operation.
CREATE FUNCTION idempotency.operation_ends(claim @extschema@.idem_claim, status_code integer, headers jsonb, body bytea, error text)
    RETURNS @extschema@.idem_claim
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended record;
BEGIN
    IF NOT idempotency.plain_end(claim.key, claim.scope, claim.principal, claim.token, CASE WHEN error IS NULL THEN 'c' ELSE 'f' END,
                                 status_code, body, headers, error, true) THEN
        PERFORM idempotency.check_number(status_code, 'status_code', 200, 599);
        PERFORM idempotency.end_claim('idem_execute()', claim.key, claim.scope, claim.principal, claim.token,
            CASE WHEN error IS NULL THEN 'completed' ELSE 'failed' END, status_code, body,
            idempotency.checked_headers(headers), error, of_operation => true);
    END IF;
    SELECT idempotency.claim_of('execute', t.token, idempotency.status_word(t.status), t) AS claim INTO ended FROM idempotency.record t
     WHERE t.key = operation_ends.claim.key AND t.scope = operation_ends.claim.scope AND t.principal = operation_ends.claim.principal;
    RETURN ended.claim;
END $$;

--: idem_execute plpgsql caller
DECLARE
    claim @extschema@.idem_claim;
    status_code integer;
    headers pg_catalog.jsonb;
    body pg_catalog.bytea;
    answer pg_catalog.jsonb;
    state pg_catalog.text;
    message pg_catalog.text;
    context pg_catalog.text;
    verdict pg_catalog.record;
BEGIN
    claim := idempotency.operation_begins(key, operation, request, scope, principal, fingerprint, ttl, wait, first_sent,
                                          holder, method, path, pg_catalog.pg_current_snapshot());
    IF claim.outcome OPERATOR(pg_catalog.<>) 'execute' THEN RETURN claim; END IF;
    -- An error of the operation leaves nothing of it.
    BEGIN
        IF (SELECT p.prorettype OPERATOR(pg_catalog.=) 'pg_catalog.jsonb'::pg_catalog.regtype
              FROM pg_catalog.pg_proc p WHERE p.oid OPERATOR(pg_catalog.=) operation) THEN
            EXECUTE pg_catalog.format('SELECT %s($1)', operation::pg_catalog.regproc) INTO answer USING request;
            body := pg_catalog.convert_to(answer::pg_catalog.text, pg_catalog.getdatabaseencoding());
        ELSE
            EXECUTE pg_catalog.format('SELECT (a).status_code, (a).headers, (a).body FROM %s($1) a', operation::pg_catalog.regproc)
               INTO status_code, headers, body USING request;
        END IF;
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, context = PG_EXCEPTION_CONTEXT;
        verdict := idempotency.error_is_final(claim.scope, state, context);
        IF NOT verdict.final THEN RAISE; END IF;
        RETURN idempotency.operation_ends(claim, verdict.status_code, NULL, NULL,
                                          pg_catalog.concat(state, ': ', message));
    END;
    RETURN idempotency.operation_ends(claim, status_code, headers, body, NULL);
END
