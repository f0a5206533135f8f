-- idem_grant and idem_revoke: plain GRANT and REVOKE by the caller, who must own the functions
-- (src/operate/rights.cpp).

-- The functions that idem_grant grants with a right.
CREATE FUNCTION idempotency.routines(of_right text) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.oid)
  FROM pg_proc p
 WHERE p.proowner = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'idempotency.record'::regclass)
   AND CASE p.pronamespace
       WHEN to_regnamespace('@extschema@') THEN p.proname = ANY (CASE of_right
            WHEN 'protocol' THEN /*PROTOCOL_FUNCTIONS*/::name[]
            WHEN 'operator' THEN /*OPERATOR_FUNCTIONS*/::name[]
            WHEN 'administrator' THEN /*ADMINISTRATOR_FUNCTIONS*/::name[]
            WHEN 'worker' THEN /*WORKER_FUNCTIONS*/::name[] END)
       -- The parts of those that run with the rights of their caller.
       WHEN 'idempotency'::regnamespace THEN p.proname = ANY (CASE of_right
            WHEN 'protocol' THEN '{operation_begins,error_is_final,operation_ends}'::name[]
            WHEN 'operator' THEN '{chosen,tally,check_resolve_all,tell_what_is_left,found_of,forget_history,
                is_erased,check_forget,explain_paths}'::name[] END)
       END $$;

-- What a role may call.
CREATE FUNCTION idempotency.rights_of(role regrole) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object(
    'protocol', coalesce(bool_or(p.proname = 'idem_begin'), false),
    'operator', coalesce(bool_or(p.proname = 'idem_resolve'), false),
    'administrator', coalesce(bool_or(p.proname = 'idem_cleanup'), false),
    'worker', coalesce(bool_or(p.proname = 'idem_claim_due'), false))
  FROM pg_proc p, aclexplode(p.proacl) a
 WHERE p.pronamespace = to_regnamespace('@extschema@') AND a.grantee = role $$;

-- Grants or revokes, and writes it down.
CREATE FUNCTION idempotency.change_rights(function text, action text, role regrole, rights text[], reason text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    before jsonb;
    one text;
BEGIN
    PERFORM idempotency.check_given('role', role IS NOT NULL), idempotency.check_writable(function),
            idempotency.check_reason(reason);
    before := idempotency.rights_of(role);
    IF action = 'grant' THEN EXECUTE format('GRANT USAGE ON SCHEMA idempotency TO %s', role); END IF;
    FOREACH one IN ARRAY array_remove(rights, NULL) LOOP
        EXECUTE format('%s EXECUTE ON ROUTINE %s %s %s', upper(action), idempotency.routines(one),
                       CASE action WHEN 'grant' THEN 'TO' ELSE 'FROM' END, role);
    END LOOP;
    IF action = 'revoke' AND role <> 'pg_monitor'::regrole THEN
        EXECUTE format('REVOKE USAGE ON SCHEMA idempotency FROM %s', role);
    END IF;
    PERFORM idempotency.write_audit(action, role => (SELECT r.rolname FROM pg_roles r WHERE r.oid = role),
                                    before => before, after => idempotency.rights_of(role), reason => reason);
END $$;

--: idem_owner_grant plpgsql
PERFORM idempotency.change_rights('GRANT', 'grant', role, ARRAY['protocol', CASE WHEN operator THEN 'operator' END,
                                                                CASE WHEN administrator THEN 'administrator' END,
                                                                CASE WHEN worker THEN 'worker' END], reason);

--: idem_owner_revoke plpgsql
PERFORM idempotency.change_rights('REVOKE', 'revoke', role, '{protocol,operator,administrator,worker}', reason);
