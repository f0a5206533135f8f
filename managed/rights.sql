-- idem_grant and idem_revoke: plain GRANT and REVOKE by the caller, who must own the functions
-- (src/operate/rights.cpp).

CREATE FUNCTION idempotency.routines(operators boolean) RETURNS text
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT string_agg(p.oid::regprocedure::text, ', ' ORDER BY p.oid)
  FROM pg_proc p
 WHERE p.proowner = (SELECT c.relowner FROM pg_class c WHERE c.oid = 'idempotency.record'::regclass)
   AND CASE WHEN operators THEN
           (p.pronamespace = to_regnamespace('@extschema@') AND p.proname = ANY (/*OPERATOR_FUNCTIONS*/))
           OR (p.pronamespace = 'idempotency'::regnamespace AND p.proname = ANY ('{chosen,tally,check_resolve_all,tell_what_is_left,found_of,forget_history,is_erased,check_forget}'))
       ELSE
           (p.pronamespace = to_regnamespace('@extschema@') AND p.proname = ANY (/*PROTOCOL_FUNCTIONS*/))
           OR (p.pronamespace = 'idempotency'::regnamespace AND p.proname = ANY ('{operation_begins,error_is_final,operation_ends}'))
       END $$;
COMMENT ON FUNCTION idempotency.routines IS 'the functions that idem_grant grants';

CREATE FUNCTION idempotency.rights_of(role regrole) RETURNS jsonb
    LANGUAGE sql STABLE AS $$
SELECT jsonb_build_object(
    'protocol', coalesce(bool_or(p.proname = 'idem_begin'), false),
    'operator', coalesce(bool_or(p.proname = 'idem_resolve'), false))
  FROM pg_proc p, aclexplode(p.proacl) a
 WHERE p.pronamespace = to_regnamespace('@extschema@') AND a.grantee = role $$;
COMMENT ON FUNCTION idempotency.rights_of IS 'what a role may call';

CREATE FUNCTION idempotency.change_rights(function text, action text, role regrole, operators boolean, reason text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    before jsonb;
BEGIN
    IF role IS NULL THEN
        PERFORM idempotency.refuse('role must not be null', NULL, 'Pass a value.', '22004');
    ELSIF current_setting('transaction_read_only') = 'on' THEN
        RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = format('cannot execute %s in a read-only transaction', function);
    END IF;
    PERFORM idempotency.check_reason(reason);
    before := idempotency.rights_of(role);
    IF action = 'grant' THEN
        EXECUTE format('GRANT USAGE ON SCHEMA idempotency TO %s', role);
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', idempotency.routines(false), role);
        IF operators THEN EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO %s', idempotency.routines(true), role); END IF;
    ELSE
        EXECUTE format('REVOKE EXECUTE ON ROUTINE %s, %s FROM %s', idempotency.routines(false), idempotency.routines(true), role);
        IF role <> 'pg_monitor'::regrole THEN
            EXECUTE format('REVOKE USAGE ON SCHEMA idempotency FROM %s', role);
        END IF;
    END IF;
    PERFORM idempotency.write_audit(action, role => (SELECT r.rolname FROM pg_roles r WHERE r.oid = role),
                                    before => before, after => idempotency.rights_of(role), reason => reason);
END $$;
COMMENT ON FUNCTION idempotency.change_rights IS 'grants or revokes, and writes it down';

--: idem_owner_grant plpgsql
BEGIN
    PERFORM idempotency.change_rights('GRANT', 'grant', role, coalesce(operator, false), reason);
END

--: idem_owner_revoke plpgsql
BEGIN
    PERFORM idempotency.change_rights('REVOKE', 'revoke', role, false, reason);
END
