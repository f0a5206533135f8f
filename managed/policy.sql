-- Which policy counts for a scope, and how policies are changed (src/config, src/operate/policy.cpp).

-- How well a pattern fits a scope, or all scopes of another pattern: 0 not at all, exactly is best.
CREATE FUNCTION idempotency.rank(pattern text, scope text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN pattern = scope THEN 100000
            WHEN strpos(pattern COLLATE "C", '*') > 0 AND starts_with(scope COLLATE "C", split_part(pattern COLLATE "C", '*', 1))
            THEN strpos(pattern COLLATE "C", '*') ELSE 0 END $$;

-- A setting in microseconds, or bytes with unit 1. Settings are those of the module. Without it they are set
-- by ALTER DATABASE or ALTER ROLE.
CREATE FUNCTION idempotency.setting(name text, unit bigint, value bigint) RETURNS bigint
    LANGUAGE sql STABLE AS $$
SELECT coalesce(idempotency.read_setting(name, current_setting(name, true), unit), value) $$;

-- A setting of the owner; null: there is none.
CREATE FUNCTION idempotency.fixed_setting(name text) RETURNS text LANGUAGE plpgsql STABLE
    RETURN (SELECT s.value FROM idempotency.setting s WHERE s.name = fixed_setting.name);

-- The value of a setting. The server does not know the ranges of these settings.
CREATE FUNCTION idempotency.read_setting(name text, given text, unit bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
    value bigint;
    least constant bigint := CASE WHEN name IN ('idempotency.default_ttl', 'idempotency.default_lease') THEN unit ELSE 0 END;
    most constant bigint := CASE name WHEN 'idempotency.default_wait' THEN 86400000000
                                      WHEN 'idempotency.max_body_bytes' THEN 268435456 ELSE 2147483647 * unit END;
BEGIN
    IF given = '' THEN RETURN NULL; END IF;
    value := CASE WHEN given ~ '^[0-9]+$' THEN given::numeric * unit WHEN unit = 1 THEN pg_size_bytes(given)
                  ELSE idempotency.micros(given::interval) END;
    IF value NOT BETWEEN least AND most THEN
        PERFORM idempotency.refuse('wrong_setting', given, name, (least / unit)::text, (most / unit)::text);
    END IF;
    RETURN value;
END $$;

-- Whether a policy may name an SQLSTATE as final.
CREATE FUNCTION idempotency.may_be_final(entry text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT entry ~ '^([0-9A-Z]{2}|[0-9A-Z]{5})$' AND left(entry, 2) <> ALL ('{40,53,57,58,XX}') $$;

-- Whether a map from errors to statuses is valid.
CREATE FUNCTION idempotency.are_error_statuses(map jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
SELECT jsonb_typeof(map) = 'object' AND NOT EXISTS (
    SELECT FROM jsonb_each(CASE jsonb_typeof(map) WHEN 'object' THEN map END) e
     WHERE NOT idempotency.may_be_final(e.key)
        OR jsonb_typeof(e.value) <> 'number' OR e.value::text !~ '^[45][0-9]{2}$') $$;

-- The column of a policy that idem_policy_set would not accept; null: none.
CREATE FUNCTION idempotency.unusable_column(p idempotency.policy) RETURNS text LANGUAGE sql STABLE AS $$
SELECT CASE
    WHEN (p).fingerprint_fields IS NOT NULL AND (cardinality((p).fingerprint_fields) = 0
         OR EXISTS (SELECT FROM unnest((p).fingerprint_fields) f WHERE idempotency.is_field(f) IS NOT TRUE))
    THEN 'fingerprint_fields'
    WHEN EXISTS (SELECT FROM unnest((p).exclude_fields) f WHERE idempotency.is_field(f) IS NOT TRUE) THEN 'exclude_fields'
    WHEN EXISTS (SELECT FROM unnest((p).drop_headers) h
                  WHERE (h ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$') IS NOT TRUE) THEN 'drop_headers'
    WHEN EXISTS (SELECT FROM unnest((p).final_errors) e WHERE idempotency.may_be_final(e) IS NOT TRUE) THEN 'final_errors'
    WHEN NOT idempotency.are_error_statuses((p).error_statuses) THEN 'error_statuses' END $$;

-- Refuses a policy with a value that idem_policy_set would not accept.
CREATE FUNCTION idempotency.check_usable(p idempotency.policy) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM idempotency.refuse('unusable_policy', fault) FROM idempotency.unusable_column(p) fault WHERE fault IS NOT NULL;
END $$;

-- A policy with the values that count: an option left open is that of the setting, or the default.
CREATE FUNCTION idempotency.values_of(p idempotency.policy) RETURNS idempotency.in_force LANGUAGE sql STABLE AS $$
SELECT ROW(
    /*VALUES_IN_FORCE*/)::idempotency.in_force $$;

-- Whether a policy has spans and numbers alone. Nothing of the policy needs more than one statement: no
-- role, no check, no history.
CREATE FUNCTION idempotency.is_plain(p idempotency.policy, principal text) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
SELECT ((p).principal_required AND principal = '' OR (p).fingerprint_required OR (p).store_request OR (p).keep_history
        OR (p).encrypt OR (p).transactional_only OR (p).max_open_claims IS NOT NULL OR (p).on_missing_key = 'derive') IS NOT TRUE
       AND num_nonnulls((p).fingerprint_fields, (p).exclude_fields, (p).drop_headers, (p).final_errors,
                        (p).error_statuses, (p).allowed_role) = 0 $$;

-- A row for each policy, of any scope, that has more than spans and numbers. Short, and inlined: each call initializes it.
CREATE FUNCTION idempotency.policies_with_more() RETURNS SETOF integer LANGUAGE sql STABLE AS $$
SELECT 1 FROM idempotency.policy p
 WHERE num_nonnulls(p.principal_required, p.fingerprint_required, p.store_request, p.keep_history, p.encrypt, p.transactional_only,
                    p.max_open_claims, p.on_missing_key, p.fingerprint_fields, p.exclude_fields, p.drop_headers, p.final_errors,
                    p.error_statuses, p.allowed_role) > 0 $$;

-- Whether a policy that fits a scope is not plain. A call asks only where there are policies with more.
CREATE FUNCTION idempotency.asks_more(scope text, principal text) RETURNS boolean LANGUAGE plpgsql STABLE
    RETURN EXISTS (SELECT FROM idempotency.policy p WHERE NOT p.dropped
                      AND idempotency.rank(p.scope_pattern, scope) > 0 AND NOT idempotency.is_plain(p, principal));

-- The terms of a first attempt.
CREATE FUNCTION idempotency.terms_of(p idempotency.policy) RETURNS idempotency.terms LANGUAGE sql STABLE AS $$
SELECT ROW(
    /*TERMS_IN_FORCE*/,
    coalesce((p).on_large_body = 'omit', false),
    CASE WHEN (p).on_lease_expiry = 'unknown' THEN 'u' WHEN (p).max_attempts = 1 THEN 'x' ELSE 't' END)::idempotency.terms $$;

-- The policy of a scope; null: none. Volatile: it reads what is committed now, also after a wait for the
-- table.
CREATE FUNCTION idempotency.policy_row(scope text, but text DEFAULT NULL) RETURNS idempotency.policy
    LANGUAGE plpgsql AS $$
DECLARE
    found idempotency.policy;
BEGIN
    SELECT * INTO found FROM idempotency.policy p
     WHERE NOT p.dropped AND idempotency.rank(p.scope_pattern, policy_row.scope) > 0
       AND p.scope_pattern IS DISTINCT FROM but
     ORDER BY idempotency.rank(p.scope_pattern, policy_row.scope) DESC LIMIT 1;
    RETURN found;
END $$;

-- Whether the caller has the rights of a role. A role that does not exist admits no user.
CREATE FUNCTION idempotency.is_member(role name) RETURNS boolean LANGUAGE plpgsql STABLE
    RETURN coalesce((SELECT pg_has_role(idempotency.caller(), r.oid, 'USAGE') FROM pg_roles r WHERE r.rolname = role), false);

-- An error if the scope is closed to the caller, or its policy is not valid.
CREATE FUNCTION idempotency.policy_for(scope text) RETURNS idempotency.in_force LANGUAGE plpgsql AS $$
DECLARE
    p idempotency.policy := idempotency.policy_row(scope);
BEGIN
    IF p.scope_pattern IS NULL THEN
        RETURN idempotency.values_of(NULL);
    ELSIF num_nonnulls(p.fingerprint_fields, p.exclude_fields, p.drop_headers, p.final_errors,
                       p.error_statuses) > 0 THEN
        PERFORM idempotency.check_usable(p);
    END IF;
    IF p.allowed_role IS NOT NULL AND NOT idempotency.is_member(p.allowed_role) THEN
        PERFORM idempotency.refuse(CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = p.allowed_role)
                                        THEN 'not_admitted' ELSE 'role_missing' END, p.allowed_role);
    END IF;
    IF p.encrypt THEN PERFORM idempotency.refuse('encryption'); END IF;
    RETURN idempotency.values_of(p);
END $$;

-- Null if the scope is open to the caller; else the role that it admits, or that the policy is not valid.
CREATE FUNCTION idempotency.closure_of(scope text) RETURNS text LANGUAGE sql STABLE AS $$
SELECT CASE WHEN idempotency.unusable_column(p) IS NOT NULL THEN 'invalid'
            WHEN p.allowed_role IS NOT NULL AND NOT idempotency.is_member(p.allowed_role) THEN p.allowed_role::text END
  FROM idempotency.policy_row(scope) p $$;

---- memory: how long keys are remembered, and have been (core/policy.cpp) ----

-- The memory of one policy: the span, and since when, and the shortest span before that.
CREATE FUNCTION idempotency.memory_of_row(p idempotency.policy, OUT span bigint, OUT since timestamptz, OUT before bigint)
    LANGUAGE sql STABLE AS $$
SELECT CASE WHEN u.fault THEN 1 ELSE greatest((v).ttl, (v).retention) END,
       CASE WHEN u.fault THEN 'infinity'::timestamptz ELSE (p).since END,
       CASE WHEN u.fault THEN 1 ELSE coalesce(idempotency.micros((p).memory_before), greatest((v).ttl, (v).retention)) END
  FROM idempotency.values_of(p) v, LATERAL (SELECT idempotency.unusable_column(p) IS NOT NULL AS fault) u $$;

-- How long keys of scopes are remembered, and have been.
CREATE FUNCTION idempotency.memory_of(scopes text, without text DEFAULT NULL,
                                      OUT span bigint, OUT since timestamptz, OUT before bigint)
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    best integer := 0;
    p idempotency.policy;
    m record;
BEGIN
    SELECT greatest(v.ttl, v.retention) INTO span FROM idempotency.values_of(NULL) v;
    before := span;
    FOR p IN SELECT * FROM idempotency.policy t WHERE t.scope_pattern IS DISTINCT FROM without
              AND idempotency.rank(t.scope_pattern, scopes) > 0
              ORDER BY t.dropped, idempotency.rank(t.scope_pattern, scopes) DESC LOOP
        CONTINUE WHEN idempotency.rank(p.scope_pattern, scopes) <= best;
        m := idempotency.memory_of_row(p);
        IF NOT p.dropped THEN
            best := idempotency.rank(p.scope_pattern, scopes);
            span := m.span; since := m.since; before := m.before;
        ELSIF m.since IS NOT NULL THEN
            before := CASE WHEN since IS NULL THEN m.before ELSE least(before, m.before) END;
            since := greatest(since, m.since);
        END IF;
    END LOOP;
END $$;

-- Whether requests sent before a change may still come.
CREATE FUNCTION idempotency.past_matters(span bigint, since timestamptz, now timestamptz) RETURNS boolean
    LANGUAGE sql STABLE AS $$ SELECT since IS NOT NULL AND idempotency.after(since, span) > now $$;

-- The shortest memory of a key since a request was first sent.
CREATE FUNCTION idempotency.memory_since(scope text, first_sent timestamptz) RETURNS bigint
    LANGUAGE sql STABLE AS $$
SELECT CASE WHEN first_sent < m.since THEN least(m.span, m.before) ELSE m.span END FROM idempotency.memory_of(scope) m $$;

-- The past of a policy after a change of its memory to new_span.
CREATE FUNCTION idempotency.changed_memory(pattern text, new_span bigint, now timestamptz,
                                           OUT since timestamptz, OUT before interval)
    LANGUAGE plpgsql STABLE AS $$
DECLARE
    old record := idempotency.memory_of(pattern);
    matters boolean := idempotency.past_matters(old.span, old.since, now);
BEGIN
    IF new_span > old.span THEN
        since := now + interval '1 minute';
        before := idempotency.days(CASE WHEN matters THEN least(old.span, old.before) ELSE old.span END);
    ELSIF matters THEN
        since := old.since;
        before := idempotency.days(old.before);
    END IF;
END $$;

-- Microseconds as an interval of days and time.
CREATE FUNCTION idempotency.days(micros bigint) RETURNS interval LANGUAGE sql IMMUTABLE AS $$
SELECT make_interval(days => (micros / 86400000000)::integer) + (micros % 86400000000) * interval '1 microsecond' $$;

---- changes ----

-- The options of a policy, with the limits of each: of a span in days, which may be zero if lowest is.
CREATE FUNCTION idempotency.policy_options(OUT option text, OUT type text, OUT lowest bigint, OUT highest bigint,
                                           OUT words text, OUT detail text, OUT hint text)
    RETURNS SETOF record LANGUAGE sql IMMUTABLE AS $$
VALUES /*OPTION_ROWS*/ $$;

-- The name of a role.
CREATE FUNCTION idempotency.name_of_role(role regrole) RETURNS name LANGUAGE plpgsql STABLE AS $$
DECLARE
    name name := (SELECT r.rolname FROM pg_roles r WHERE r.oid = role);
BEGIN
    IF name IS NULL AND role IS NOT NULL THEN PERFORM idempotency.refuse('wrong_role', role::oid::text); END IF;
    RETURN name;
END $$;

-- Refuses entries that are no fields of a request.
CREATE FUNCTION idempotency.check_fields(fields text[], what text, purpose text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM idempotency.check_list(fields, what);
    PERFORM idempotency.refuse('wrong_field', purpose, n::text) FROM unnest(fields) WITH ORDINALITY f (field, n)
      WHERE NOT idempotency.is_field(field);
END $$;

-- Refuses an unknown word.
CREATE FUNCTION idempotency.check_word(word text, what text, words text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF word <> ALL (string_to_array(words COLLATE "C", ', ')) THEN
        PERFORM idempotency.refuse('wrong_word', what, word, words);
    END IF;
END $$;

-- Refuses what is no pattern of scopes.
CREATE FUNCTION idempotency.check_pattern(pattern text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM idempotency.refuse('wrong_pattern', fault) FROM coalesce(idempotency.text_fault(pattern, 255),
        CASE WHEN pattern COLLATE "C" LIKE '%*_%' THEN 'It has a "*" before its end.' END) fault WHERE fault IS NOT NULL;
END $$;

-- Refuses two spans that are in the wrong order, as a policy gives them or by its defaults.
CREATE FUNCTION idempotency.check_order_of_spans(p idempotency.policy) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    given constant jsonb := idempotency.options_of(p);
    in_force constant jsonb := to_jsonb(idempotency.values_of(p));
    pair record;
BEGIN
    SELECT * INTO pair FROM (VALUES /*SPANS_IN_ORDER*/) s (shorter, longer, follows, blamed, detail, hint)
     WHERE CASE follows
           WHEN 'either' THEN (given ->> shorter)::bigint > (given ->> longer)::bigint
           WHEN 'longer' THEN given ? longer AND (in_force ->> shorter)::bigint > (in_force ->> longer)::bigint
           ELSE (in_force ->> shorter)::bigint > (in_force ->> longer)::bigint END LIMIT 1;
    IF FOUND THEN PERFORM idempotency.refuse('wrong_option', pair.blamed, pair.detail, pair.hint); END IF;
END $$;

-- Refuses what is no policy.
CREATE FUNCTION idempotency.check_policy(p idempotency.policy) RETURNS void
    LANGUAGE plpgsql STABLE SET intervalstyle = 'postgres' AS $$
DECLARE
    o record;
BEGIN
    PERFORM idempotency.check_pattern(p.scope_pattern);
    FOR o IN SELECT x.*, to_jsonb(p) ->> x.option AS value FROM idempotency.policy_options() x LOOP
        IF o.type = 'span' THEN
            PERFORM idempotency.checked_span(o.value::interval, o.option, o.highest, o.lowest = 0);
        ELSIF o.type = 'number' THEN
            PERFORM idempotency.check_number(o.value::bigint, o.option, o.lowest, o.highest);
        ELSIF o.type = 'word' THEN
            PERFORM idempotency.check_word(o.value, o.option, o.words);
        END IF;
    END LOOP;
    PERFORM idempotency.check_order_of_spans(p),
            idempotency.check_fields(p.fingerprint_fields, 'fingerprint_fields', 'count'),
            idempotency.check_fields(p.exclude_fields, 'exclude_fields', 'exclude'),
            idempotency.check_list(p.drop_headers, 'drop_headers'),
            idempotency.check_list(p.final_errors, 'final_errors');
    PERFORM idempotency.refuse('wrong_option', x.option, x.detail, x.hint) FROM idempotency.policy_options() x
      WHERE x.option = idempotency.unusable_column(p);
    IF p.encrypt THEN PERFORM idempotency.refuse('encryption'); END IF;
END $$;

-- Refuses a change that loosens what binds the caller (src/config/policy_guard.cpp).
CREATE FUNCTION idempotency.check_may_change(pattern text) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    role constant name := (idempotency.policy_row(pattern)).allowed_role;
BEGIN
    IF role IS NOT NULL AND NOT idempotency.is_member(role)
       AND NOT pg_has_role(idempotency.caller(), (SELECT c.relowner FROM pg_class c
                                                   WHERE c.oid = 'idempotency.policy'::regclass), 'USAGE') THEN
        PERFORM idempotency.refuse('may_not_change', role,
            CASE WHEN to_regrole(quote_ident(role)) IS NULL THEN ', which does not exist' END);
    END IF;
END $$;

-- The options of a policy.
CREATE FUNCTION idempotency.policy_as_json(pattern text) RETURNS jsonb
    LANGUAGE sql STABLE SET intervalstyle = 'postgres' AS $$
SELECT jsonb_strip_nulls(to_jsonb(p)) - '{scope_pattern,since,memory_before,dropped}'::text[]
  FROM idempotency.policy p WHERE p.scope_pattern = pattern AND NOT p.dropped $$;

-- Removes traces of dropped policies that no longer matter.
CREATE FUNCTION idempotency.remove_past_policies(but text, now timestamptz) RETURNS void LANGUAGE sql AS $$
DELETE FROM idempotency.policy p
 WHERE p.dropped AND p.scope_pattern <> but
   AND NOT (SELECT idempotency.past_matters(m.span, m.since, now)
              FROM idempotency.memory_of(p.scope_pattern) m) $$;

-- The options that a policy gives. Spans are compared by their length, all other values as they are.
CREATE FUNCTION idempotency.options_of(p idempotency.policy) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT coalesce(jsonb_object_agg(o.option,
           CASE o.type WHEN 'span' THEN to_jsonb(idempotency.micros((given ->> o.option)::interval))
                       ELSE given -> o.option END), '{}')
  FROM to_jsonb(p) given, idempotency.policy_options() o
 WHERE given -> o.option <> 'null' $$;

-- The options that a change of a policy resets, or gives another value.
CREATE FUNCTION idempotency.differing(old jsonb, next jsonb, reset boolean) RETURNS text LANGUAGE sql STABLE AS $$
SELECT string_agg(o.option, ', ') FROM idempotency.policy_options() o
 WHERE old -> o.option IS DISTINCT FROM next -> o.option AND (next ? o.option) <> reset $$;

-- How much an option of a policy protects: more protects more (core/policy.hpp,
-- src/config/policy_weakening.cpp). Of a role any other value protects less.
CREATE FUNCTION idempotency.strength(option text, p idempotency.policy) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT CASE option
       WHEN 'retention' THEN greatest((v).ttl, (v).retention)
       WHEN 'on_lease_expiry' THEN ((v).on_lease_expiry = 'unknown')::integer
       WHEN 'allowed_role' THEN NULL
       ELSE (to_jsonb(v) ->> option)::boolean::integer END
  FROM idempotency.values_of(p) v $$;

-- The value of an option as a warning has it.
CREATE FUNCTION idempotency.said_of(option text, p idempotency.policy) RETURNS text LANGUAGE sql STABLE AS $$
SELECT CASE option
       WHEN 'retention' THEN idempotency.days(idempotency.strength(option, p))::text
       WHEN 'allowed_role' THEN coalesce((p).allowed_role, 'none')
       ELSE to_jsonb(v) ->> option END
  FROM idempotency.values_of(p) v $$;

-- Warns of what a change weakens, and refuses it without a reason. Before the policy with a pattern becomes
-- another one, or is dropped: then the next one that fits counts.
CREATE FUNCTION idempotency.check_weakening(pattern text, next idempotency.policy, reason text) RETURNS void
    LANGUAGE plpgsql AS $$
DECLARE
    old constant idempotency.policy := idempotency.policy_row(pattern);
    told text := '';
    w record;
BEGIN
    FOR w IN SELECT s, idempotency.said_of(s, old) AS old_value, idempotency.said_of(s, next) AS next_value
               FROM unnest(/*SAFEGUARDS*/) WITH ORDINALITY g (s, place)
              WHERE to_jsonb(old) -> s <> 'null'
                AND CASE s WHEN 'allowed_role' THEN next.allowed_role IS DISTINCT FROM old.allowed_role
                    ELSE idempotency.strength(s, next) < idempotency.strength(s, old) END
              ORDER BY place LOOP
        told := told || format(', %s of "%s" from %s to %s', w.s, old.scope_pattern, w.old_value, w.next_value);
        CONTINUE WHEN coalesce(trim(reason), '') = '';
        RAISE WARNING 'the change of policy "%" weakens % from % to %', pattern, w.s, w.old_value, w.next_value
            USING DETAIL = format('Policy "%s" had the stronger value.', old.scope_pattern);
    END LOOP;
    IF told <> '' AND coalesce(trim(reason), '') = '' THEN
        PERFORM idempotency.refuse('weakens', substr(told, 3));
    END IF;
END $$;

-- What each change of a policy begins with: the options before it, and the table locked. Changes wait for
-- each other, readers do not wait.
CREATE FUNCTION idempotency.begin_change(function text, pattern text, reason text) RETURNS jsonb
    LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idempotency.check_writable(function), idempotency.check_given('scope_pattern', pattern IS NOT NULL),
            idempotency.check_reason(reason);
    LOCK TABLE idempotency.policy IN SHARE ROW EXCLUSIVE MODE;
    RETURN idempotency.policy_as_json(pattern);
END $$;

-- Writes the row of a policy, if it differs from the one that is there.
CREATE FUNCTION idempotency.write_policy(p idempotency.policy, action text, may_replace boolean, before jsonb,
                                         reason text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    next jsonb;
    old jsonb;
    v idempotency.in_force;
    past record;
BEGIN
    PERFORM idempotency.check_policy(p), idempotency.check_may_change(p.scope_pattern);
    next := idempotency.options_of(p);
    old := (SELECT idempotency.options_of(t) FROM idempotency.policy t
             WHERE t.scope_pattern = p.scope_pattern AND NOT t.dropped);
    IF old = next THEN
        RETURN;
    ELSIF old IS NOT NULL AND may_replace IS NOT TRUE THEN
        PERFORM idempotency.refuse('policy_exists',
            concat_ws(', and ', 'reset ' || idempotency.differing(old, next, true),
                      'change ' || idempotency.differing(old, next, false)));
    END IF;
    PERFORM idempotency.check_weakening(p.scope_pattern, p, reason);
    v := idempotency.values_of(p);
    past := idempotency.changed_memory(p.scope_pattern, greatest(v.ttl, v.retention), now);
    p.since := past.since;
    p.memory_before := past.before;
    p.dropped := false;
    DELETE FROM idempotency.policy t WHERE t.scope_pattern = p.scope_pattern;
    -- The table is locked. So a conflict is with a row that a fixed snapshot does not see: 40001.
    INSERT INTO idempotency.policy SELECT p.* ON CONFLICT DO NOTHING;
    PERFORM idempotency.remove_past_policies(p.scope_pattern, now);
    PERFORM idempotency.write_audit(action, p.scope_pattern, before => before,
                                    after => idempotency.policy_as_json(p.scope_pattern), reason => reason);
END $$;

--: idem_administrator_policy_set plpgsql definer
DECLARE
    before constant jsonb := idempotency.begin_change('idem_policy_set()', scope_pattern COLLATE "C", reason);
    p constant idempotency.policy := ROW(scope_pattern, /*OPTIONS_AS_GIVEN*/, NULL, NULL, false);
BEGIN
    PERFORM idempotency.write_policy(p, 'policy_set', replace, before, reason);
END

--: idem_administrator_policy_alter plpgsql definer
DECLARE
    before constant jsonb := idempotency.begin_change('idem_policy_alter()', scope_pattern COLLATE "C", reason);
    p idempotency.policy;
    given jsonb;
    name text;
BEGIN
    IF before IS NULL THEN PERFORM idempotency.refuse('no_policy'); END IF;
    SELECT * INTO p FROM idempotency.policy t WHERE t.scope_pattern = idem_policy_alter.scope_pattern COLLATE "C";
    -- As JSON each option has its name: intervals go through text, which keeps all of their fields.
    given := jsonb_strip_nulls(to_jsonb(
        ROW(NULL, /*OPTIONS_AS_GIVEN*/, NULL, NULL, NULL)::idempotency.policy));
    FOREACH name IN ARRAY coalesce(idempotency.check_list(unset, 'unset'), '{}') LOOP
        IF given ? name OR NOT EXISTS (SELECT FROM idempotency.policy_options() o WHERE o.option = name) THEN
            PERFORM idempotency.refuse(CASE WHEN given ? name THEN 'option_has_value' ELSE 'no_option' END, name);
        END IF;
    END LOOP;
    p := jsonb_populate_record(p,
        coalesce((SELECT jsonb_object_agg(u, NULL) FROM unnest(unset) u), '{}') || given);
    PERFORM idempotency.write_policy(p, 'policy_alter', true, before, reason);
END

--: idem_administrator_policy_drop plpgsql definer
DECLARE
    now constant timestamptz := clock_timestamp();
    pattern constant text COLLATE "C" := scope_pattern;
    before constant jsonb := idempotency.begin_change('idem_policy_drop()', pattern, reason);
    left_over record;
    past record;
BEGIN
    IF before IS NULL THEN RETURN false; END IF;
    PERFORM idempotency.check_may_change(pattern);
    PERFORM idempotency.check_weakening(pattern, idempotency.policy_row(pattern, but => pattern), reason);
    left_over := idempotency.memory_of(pattern, pattern);
    past := idempotency.changed_memory(pattern, left_over.span, now);
    DELETE FROM idempotency.policy p WHERE p.scope_pattern = pattern;
    IF past.since IS NOT NULL THEN
        INSERT INTO idempotency.policy (scope_pattern, since, memory_before, dropped)
        VALUES (pattern, past.since, past.before, true);
    END IF;
    PERFORM idempotency.remove_past_policies(pattern, now);
    PERFORM idempotency.write_audit('policy_drop', pattern, before => before, reason => reason);
    RETURN true;
END

--: idem_policy_changed plpgsql
RETURN NULL;
