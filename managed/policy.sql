-- Which policy counts for a scope, and how policies are changed (src/config, src/operate/policy.cpp).

-- How well a pattern fits a scope, or all scopes of another pattern: 0 not at all, exactly is best.
CREATE FUNCTION idempotency.rank(pattern text, scope text) RETURNS integer LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN pattern = scope THEN 100000
            WHEN strpos(pattern, '*') > 0 AND starts_with(scope, split_part(pattern, '*', 1))
            THEN strpos(pattern, '*') ELSE 0 END $$;

-- A setting in microseconds, or bytes with unit 1. Settings are those of the module. Without it they are set
-- by ALTER DATABASE or ALTER ROLE.
CREATE FUNCTION idempotency.setting(name text, unit bigint, value bigint) RETURNS bigint
    LANGUAGE sql STABLE AS $$
SELECT coalesce(idempotency.read_setting(name, current_setting(name, true), unit), value) $$;

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
        PERFORM idempotency.refuse(format('%s is outside the valid range for parameter "%s"', given, name), NULL,
            format('Values are from %s to %s.', least / unit, most / unit));
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
         OR EXISTS (SELECT FROM unnest((p).fingerprint_fields) f WHERE idempotency.is_field(f) IS NOT TRUE)) THEN 'fingerprint_fields'
    WHEN EXISTS (SELECT FROM unnest((p).exclude_fields) f WHERE idempotency.is_field(f) IS NOT TRUE) THEN 'exclude_fields'
    WHEN EXISTS (SELECT FROM unnest((p).drop_headers) h
                  WHERE (h ~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$') IS NOT TRUE) THEN 'drop_headers'
    WHEN EXISTS (SELECT FROM unnest((p).final_errors) e WHERE idempotency.may_be_final(e) IS NOT TRUE) THEN 'final_errors'
    WHEN NOT idempotency.are_error_statuses((p).error_statuses) THEN 'error_statuses' END $$;

-- The ttl of a policy.
CREATE FUNCTION idempotency.ttl_of(p idempotency.policy) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT least(coalesce(idempotency.micros((p).ttl), idempotency.setting('idempotency.default_ttl', 1000000, 86400000000)),
             idempotency.micros((p).max_ttl)) $$;

-- The retention of a policy.
CREATE FUNCTION idempotency.retention_of(p idempotency.policy) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT coalesce(idempotency.micros((p).retention), idempotency.setting('idempotency.default_retention', 1000000, 0)) $$;

-- The lease of a policy.
CREATE FUNCTION idempotency.lease_of(p idempotency.policy) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT least(coalesce(idempotency.micros((p).lease), idempotency.setting('idempotency.default_lease', 1000, 60000000)),
             idempotency.micros((p).max_lease)) $$;

-- The largest body of a policy.
CREATE FUNCTION idempotency.body_limit_of(p idempotency.policy) RETURNS bigint LANGUAGE sql STABLE AS $$
SELECT coalesce((p).max_body_bytes, idempotency.setting('idempotency.max_body_bytes', 1, 4194304)) $$;

-- A policy with the values that count: an option left open is that of the setting, or the default.
CREATE FUNCTION idempotency.values_of(p idempotency.policy) RETURNS idempotency.in_force
    LANGUAGE sql STABLE AS $$
SELECT ROW(
    idempotency.ttl_of(p), idempotency.retention_of(p),
    coalesce(idempotency.micros((p).max_ttl), 9223372036854775807), idempotency.lease_of(p),
    coalesce(idempotency.micros((p).max_lease), 9223372036854775807),
    coalesce(idempotency.micros((p).wait), idempotency.setting('idempotency.default_wait', 1000, 0)),
    coalesce((p).max_attempts, 0),
    coalesce(idempotency.micros((p).retry_base), 1000000),
    coalesce(idempotency.micros((p).retry_cap), 300000000),
    coalesce((p).retry_jitter, 'full'),
    coalesce((p).on_missing_key, 'generate'),
    coalesce(idempotency.micros((p).derive_window), 0),
    coalesce((p).principal_required, false),
    coalesce((p).fingerprint_required, false),
    coalesce((p).store_request, false),
    coalesce((p).on_lease_expiry, 'takeover'),
    coalesce(idempotency.micros((p).unknown_retry_after), 60000000),
    coalesce(idempotency.micros((p).abandon_after), 0),
    coalesce((p).on_abandon, 'unknown'),
    idempotency.body_limit_of(p),
    coalesce((p).on_large_body, 'error'),
    (p).fingerprint_fields, (p).exclude_fields, (p).drop_headers, (p).final_errors, (p).error_statuses,
    (p).allowed_role,
    coalesce((p).keep_history, false), coalesce((p).encrypt, false), coalesce((p).transactional_only, false),
    coalesce((p).reason_required, false), coalesce((p).max_open_claims, 0)
)::idempotency.in_force $$;

-- Whether a policy has spans and numbers alone. Nothing of the policy needs more than one statement: no
-- role, no check, no history.
CREATE FUNCTION idempotency.is_plain(p idempotency.policy, principal text) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
SELECT ((p).principal_required AND principal = '' OR (p).fingerprint_required OR (p).store_request OR (p).keep_history
        OR (p).encrypt OR (p).transactional_only OR (p).max_open_claims IS NOT NULL OR (p).on_missing_key = 'derive') IS NOT TRUE
       AND num_nonnulls((p).fingerprint_fields, (p).exclude_fields, (p).drop_headers, (p).final_errors,
                        (p).error_statuses, (p).allowed_role) = 0 $$;

-- A row for each policy that fits a scope and is not plain.
CREATE FUNCTION idempotency.policies_with_more(scope text, principal text) RETURNS SETOF integer
    LANGUAGE sql STABLE AS $$
SELECT 1 FROM idempotency.policy p
 WHERE NOT p.dropped AND idempotency.rank(p.scope_pattern, scope) > 0 AND NOT idempotency.is_plain(p, principal) $$;

-- The terms of a first attempt.
CREATE FUNCTION idempotency.terms_of(p idempotency.policy) RETURNS idempotency.terms LANGUAGE sql STABLE AS $$
SELECT ROW(idempotency.ttl_of(p), idempotency.retention_of(p), idempotency.lease_of(p), idempotency.body_limit_of(p),
           coalesce((p).on_large_body = 'omit', false),
           CASE WHEN (p).on_lease_expiry = 'unknown' THEN 'u' WHEN (p).max_attempts = 1 THEN 'x' ELSE 't' END
       )::idempotency.terms $$;

-- The policy of a scope; null: none. Volatile: it reads what is committed now, also after a wait for the
-- table.
CREATE FUNCTION idempotency.policy_row(scope text) RETURNS idempotency.policy LANGUAGE plpgsql AS $$
DECLARE
    found idempotency.policy;
BEGIN
    SELECT * INTO found FROM idempotency.policy p
     WHERE NOT p.dropped AND idempotency.rank(p.scope_pattern, policy_row.scope) > 0
     ORDER BY idempotency.rank(p.scope_pattern, policy_row.scope) DESC LIMIT 1;
    RETURN found;
END $$;

-- Whether the caller has the rights of a role. A role that does not exist admits no user.
CREATE FUNCTION idempotency.is_member(role name) RETURNS boolean LANGUAGE plpgsql STABLE
    RETURN coalesce((SELECT pg_has_role(idempotency.caller(), r.oid, 'USAGE') FROM pg_roles r WHERE r.rolname = role), false);

-- Refuses a scope with encrypt.
CREATE FUNCTION idempotency.refuse_encryption() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'encryption is not possible without the module',
        DETAIL = 'The policy of this scope has encrypt.',
        HINT = 'Use the module, or set the policy without encrypt.';
END $$;

-- An error if the scope is closed to the caller, or its policy is not valid.
CREATE FUNCTION idempotency.policy_for(scope text) RETURNS idempotency.in_force LANGUAGE plpgsql AS $$
DECLARE
    p idempotency.policy := idempotency.policy_row(scope);
    fault text;
BEGIN
    IF p.scope_pattern IS NULL THEN
        RETURN idempotency.values_of(NULL);
    END IF;
    IF num_nonnulls(p.fingerprint_fields, p.exclude_fields, p.drop_headers, p.final_errors, p.error_statuses) > 0 THEN
        fault := idempotency.unusable_column(p);
        IF fault IS NOT NULL THEN
            PERFORM idempotency.refuse('the policy of this scope is not valid',
                format('idem_policy_set does not accept the value of its %s.', fault),
                'Change it with idem_policy_alter, or drop it with idem_policy_drop.', '55000');
        END IF;
    END IF;
    IF p.allowed_role IS NOT NULL AND NOT idempotency.is_member(p.allowed_role) THEN
        IF EXISTS (SELECT FROM pg_roles WHERE rolname = p.allowed_role) THEN
            RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'permission denied for this scope',
                DETAIL = format('Its policy admits only members of role "%s".', p.allowed_role);
        END IF;
        PERFORM idempotency.refuse('permission denied for this scope',
            format('Its policy admits only members of role "%s", which does not exist.', p.allowed_role),
            'Create the role, or name another one with idem_policy_alter.', '42501');
    END IF;
    IF p.encrypt THEN
        PERFORM idempotency.refuse_encryption();
    END IF;
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

-- The name of a role.
CREATE FUNCTION idempotency.name_of_role(role regrole) RETURNS name LANGUAGE plpgsql STABLE AS $$
DECLARE
    name name := (SELECT r.rolname FROM pg_roles r WHERE r.oid = role);
BEGIN
    IF name IS NULL AND role IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('invalid role OID: %s', role::oid);
    END IF;
    RETURN name;
END $$;

-- Refuses entries that are no fields of a request.
CREATE FUNCTION idempotency.check_fields(fields text[], what text, purpose text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    wrong bigint;
BEGIN
    PERFORM idempotency.check_list(fields, what);
    SELECT n INTO wrong FROM unnest(fields) WITH ORDINALITY f (field, n)
     WHERE NOT idempotency.is_field(field) ORDER BY n LIMIT 1;
    IF wrong IS NOT NULL THEN
        PERFORM idempotency.refuse('invalid field to ' || purpose, format('Entry %s cannot be read.', wrong),
            'Write a plain field name, a path such as $.a.b or $.a[*].b, or, in double quotes, a name that has ".", "[", "]", "*" or outer blanks.');
    END IF;
END $$;

-- Refuses an unknown word.
CREATE FUNCTION idempotency.check_word(word text, what text, words text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF word <> ALL (string_to_array(words, ', ')) THEN
        PERFORM idempotency.refuse(format('invalid %s: "%s"', what, word), NULL, format('Use one of %s.', words));
    END IF;
END $$;

-- Refuses what is no policy.
CREATE FUNCTION idempotency.check_policy(p idempotency.policy) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    pattern constant text := 'A pattern is a scope, or the beginning of scopes followed by "*".';
    d idempotency.in_force := idempotency.values_of(p);
BEGIN
    IF length(p.scope_pattern) > 255 THEN
        PERFORM idempotency.refuse('invalid scope_pattern',
            format('It has %s characters; 255 are allowed.', length(p.scope_pattern)), pattern);
    ELSIF p.scope_pattern ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN
        PERFORM idempotency.refuse('invalid scope_pattern', 'It contains a control character.', pattern);
    ELSIF p.scope_pattern LIKE '%*_%' THEN
        PERFORM idempotency.refuse('invalid scope_pattern', 'It has a "*" before its end.', pattern);
    END IF;
    PERFORM idempotency.checked_span(p.ttl, 'ttl'), idempotency.checked_span(p.retention, 'retention');
    IF idempotency.micros(p.retention) < d.ttl THEN
        PERFORM idempotency.refuse('invalid retention', 'It is shorter than the ttl.',
                                   'A key must be remembered at least as long as its answer is replayed.');
    END IF;
    PERFORM idempotency.checked_span(p.max_ttl, 'max_ttl');
    IF idempotency.micros(p.ttl) > idempotency.micros(p.max_ttl) THEN
        PERFORM idempotency.refuse('invalid ttl', 'It is longer than max_ttl.', 'max_ttl is the longest ttl.');
    END IF;
    PERFORM idempotency.checked_span(p.lease, 'lease'), idempotency.checked_span(p.max_lease, 'max_lease');
    IF idempotency.micros(p.lease) > idempotency.micros(p.max_lease) THEN
        PERFORM idempotency.refuse('invalid lease', 'It is longer than max_lease.', 'max_lease is the longest lease.');
    END IF;
    PERFORM idempotency.checked_span(p.wait, 'wait', 1, true);
    PERFORM idempotency.checked_span(p.retry_base, 'retry_base', 36525, true);
    PERFORM idempotency.checked_span(p.retry_cap, 'retry_cap', 36525, true);
    IF d.retry_base > d.retry_cap THEN
        PERFORM idempotency.refuse('invalid retry_base', 'It is longer than retry_cap.',
                                   'The pause after the first attempt is the shortest one.');
    END IF;
    PERFORM idempotency.checked_span(p.derive_window, 'derive_window'),
            idempotency.checked_span(p.unknown_retry_after, 'unknown_retry_after'),
            idempotency.checked_span(p.abandon_after, 'abandon_after');
    PERFORM idempotency.check_number(p.max_attempts, 'max_attempts', 1, 2147483647),
            idempotency.check_number(p.max_open_claims, 'max_open_claims', 1, 2147483647),
            idempotency.check_number(p.max_body_bytes, 'max_body_bytes', 0, 268435456);
    PERFORM idempotency.check_word(p.retry_jitter, 'retry_jitter', 'full, none'),
            idempotency.check_word(p.on_missing_key, 'on_missing_key', 'generate, derive, error'),
            idempotency.check_word(p.on_lease_expiry, 'on_lease_expiry', 'takeover, unknown'),
            idempotency.check_word(p.on_abandon, 'on_abandon', 'fail, release, unknown'),
            idempotency.check_word(p.on_large_body, 'on_large_body', 'error, omit');
    IF p.fingerprint_fields IS NOT NULL THEN
        PERFORM idempotency.check_fields(p.fingerprint_fields, 'fingerprint_fields', 'count');
        IF cardinality(p.fingerprint_fields) = 0 THEN
            PERFORM idempotency.refuse('invalid fingerprint_fields', 'It is empty, so all requests would be the same.',
                                       'Unset it to let every field count.');
        END IF;
    END IF;
    PERFORM idempotency.check_fields(p.exclude_fields, 'exclude_fields', 'exclude');
    PERFORM idempotency.check_list(p.drop_headers, 'drop_headers');
    IF EXISTS (SELECT FROM unnest(p.drop_headers) h WHERE h !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$') THEN
        PERFORM idempotency.refuse('invalid drop_headers',
            'A header''s name is empty or has characters that HTTP does not allow.', 'List names such as "Set-Cookie".');
    END IF;
    PERFORM idempotency.check_list(p.final_errors, 'final_errors');
    IF EXISTS (SELECT FROM unnest(p.final_errors) e WHERE NOT idempotency.may_be_final(e)) THEN
        PERFORM idempotency.refuse('invalid final_errors',
            'An entry is not a SQLSTATE or a class of SQLSTATEs, or is in class 40, 53, 57, 58 or XX, which requests do not cause.',
            'List entries such as "22" or "P0002".');
    END IF;
    IF NOT idempotency.are_error_statuses(p.error_statuses) THEN
        PERFORM idempotency.refuse('invalid error_statuses',
            'It is not an object, or a member is not a SQLSTATE or a class of SQLSTATEs, or is in class 40, 53, 57, 58 or XX, or its value is not a status from 400 to 599.',
            'Write members such as "P0001": 402.');
    END IF;
    IF p.encrypt THEN
        PERFORM idempotency.refuse_encryption();
    END IF;
END $$;

-- Refuses a change that loosens what binds the caller (src/config/policy_guard.cpp).
CREATE FUNCTION idempotency.check_may_change(pattern text) RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    role name;
BEGIN
    IF pg_has_role(idempotency.caller(), (SELECT c.relowner FROM pg_class c
                                           WHERE c.oid = 'idempotency.policy'::regclass), 'USAGE') THEN
        RETURN;
    END IF;
    SELECT p.allowed_role INTO role FROM idempotency.policy_row(pattern) p
     WHERE p.allowed_role IS NOT NULL AND NOT idempotency.is_member(p.allowed_role);
    IF FOUND THEN
        PERFORM idempotency.refuse('permission denied to change the policy of this scope',
            format('The policy in force admits only members of role "%s"%s.', role,
                   CASE WHEN NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN ', which does not exist' ELSE '' END),
            'Ask a member of that role, or the owner of table idempotency.policy.', '42501');
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
   AND NOT (SELECT idempotency.past_matters(m.span, m.since, now) FROM idempotency.memory_of(p.scope_pattern) m) $$;

-- The options that a policy gives. Spans are compared by their length, all other values as they are.
CREATE FUNCTION idempotency.options_of(p idempotency.policy) RETURNS jsonb LANGUAGE sql STABLE AS $$
SELECT coalesce(jsonb_object_agg(e.key, CASE WHEN a.atttypid = 'interval'::regtype
                                             THEN to_jsonb(idempotency.micros((e.value #>> '{}')::interval)) ELSE e.value END), '{}')
  FROM jsonb_each(to_jsonb(p) - '{scope_pattern,since,memory_before,dropped}'::text[]) e
  JOIN pg_attribute a ON a.attrelid = 'idempotency.policy'::regclass AND a.attname = e.key
 WHERE e.value <> 'null' $$;

-- The options that a change of a policy resets, or gives another value.
CREATE FUNCTION idempotency.differing(old jsonb, next jsonb, reset boolean) RETURNS text
    LANGUAGE sql STABLE AS $$
SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute a
 WHERE a.attrelid = 'idempotency.policy'::regclass AND old -> a.attname IS DISTINCT FROM next -> a.attname
   AND (next ? a.attname::text) <> reset $$;

-- How much an option of a policy protects. What protects records (core/policy.hpp,
-- src/config/policy_weakening.cpp): more protects more. Of a role any other value protects less.
CREATE FUNCTION idempotency.strength(option text, p idempotency.policy) RETURNS bigint
    LANGUAGE sql STABLE AS $$
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
    old idempotency.policy := idempotency.policy_row(pattern);
    weakened text[];
    one text;
BEGIN
    IF old.scope_pattern IS NULL THEN RETURN; END IF;
    weakened := ARRAY(SELECT s FROM unnest(/*SAFEGUARDS*/) WITH ORDINALITY g (s, place)
                       WHERE to_jsonb(old) -> s <> 'null'
                         AND CASE s WHEN 'allowed_role' THEN next.allowed_role IS DISTINCT FROM old.allowed_role
                                    ELSE idempotency.strength(s, next) < idempotency.strength(s, old) END
                       ORDER BY place);
    IF weakened <> '{}' AND coalesce(trim(reason), '') = '' THEN
        PERFORM idempotency.refuse('reason is required',
            (SELECT format('The change weakens %s.', string_agg(format('%s of "%s" from %s to %s', s, old.scope_pattern,
                idempotency.said_of(s, old), idempotency.said_of(s, next)), ', ' ORDER BY place))
               FROM unnest(weakened) WITH ORDINALITY g (s, place)),
            'Say why with reason, which idempotency.audit keeps, or name these options in the call.', '22004');
    END IF;
    FOREACH one IN ARRAY weakened LOOP
        RAISE WARNING 'the change of policy "%" weakens % from % to %', pattern, one,
            idempotency.said_of(one, old), idempotency.said_of(one, next)
            USING DETAIL = format('Policy "%s" had the stronger value.', old.scope_pattern);
    END LOOP;
END $$;

-- Writes the checked row. The table is locked: changes wait for each other, readers do not wait. False if
-- the policy has these options already.
CREATE FUNCTION idempotency.write_policy(p idempotency.policy, may_replace boolean, reason text) RETURNS boolean
    LANGUAGE plpgsql AS $$
DECLARE
    now constant timestamptz := clock_timestamp();
    next constant jsonb := idempotency.options_of(p);
    old jsonb;
    v idempotency.in_force;
    past record;
BEGIN
    PERFORM idempotency.check_may_change(p.scope_pattern);
    old := (SELECT idempotency.options_of(t) FROM idempotency.policy t WHERE t.scope_pattern = p.scope_pattern AND NOT t.dropped);
    IF old = next THEN
        RETURN false;
    ELSIF old IS NOT NULL AND may_replace IS NOT TRUE THEN
        PERFORM idempotency.refuse('there is already a policy with this scope_pattern',
            format('The call would %s.', concat_ws(', and ', 'reset ' || idempotency.differing(old, next, true),
                                                   'change ' || idempotency.differing(old, next, false))),
            'Use idem_policy_alter, which changes only the options that it names, or replace => true.', '42710');
    END IF;
    PERFORM idempotency.check_weakening(p.scope_pattern, p, reason);
    v := idempotency.values_of(p);
    past := idempotency.changed_memory(p.scope_pattern, greatest(v.ttl, v.retention), now);
    p.since := past.since;
    p.memory_before := past.before;
    p.dropped := false;
    DELETE FROM idempotency.policy t WHERE t.scope_pattern = p.scope_pattern;
    INSERT INTO idempotency.policy SELECT p.*;
    PERFORM idempotency.remove_past_policies(p.scope_pattern, now);
    RETURN true;
END $$;

--: idem_administrator_policy_set plpgsql definer
DECLARE
    p idempotency.policy;
    old jsonb;
BEGIN
    PERFORM idempotency.check_writable('idem_policy_set()');
    IF scope_pattern IS NULL THEN
        PERFORM idempotency.refuse('scope_pattern must not be null', NULL, 'Pass a value.', '22004');
    END IF;
    p := ROW(scope_pattern, ttl, retention, max_ttl, lease, max_lease, wait, max_attempts, retry_base,
        retry_cap, retry_jitter, on_missing_key, derive_window, principal_required, fingerprint_required,
        store_request, on_lease_expiry, unknown_retry_after, abandon_after, on_abandon, max_body_bytes,
        on_large_body, fingerprint_fields, exclude_fields, drop_headers, final_errors, error_statuses, NULL,
        keep_history, encrypt, transactional_only, reason_required, max_open_claims, NULL, NULL, false);
    PERFORM idempotency.check_policy(p);
    p.allowed_role := idempotency.name_of_role(allowed_role);
    PERFORM idempotency.check_reason(reason);
    LOCK TABLE idempotency.policy IN SHARE ROW EXCLUSIVE MODE;
    old := idempotency.policy_as_json(scope_pattern COLLATE "C");
    IF idempotency.write_policy(p, replace, reason) THEN
        PERFORM idempotency.write_audit('policy_set', scope_pattern, before => old,
                                        after => idempotency.policy_as_json(scope_pattern COLLATE "C"), reason => reason);
    END IF;
END

--: idem_administrator_policy_alter plpgsql definer
DECLARE
    p idempotency.policy;
    given jsonb;
    old jsonb;
    name text;
BEGIN
    PERFORM idempotency.check_writable('idem_policy_alter()');
    IF scope_pattern IS NULL THEN
        PERFORM idempotency.refuse('scope_pattern must not be null', NULL, 'Pass a value.', '22004');
    END IF;
    PERFORM idempotency.check_reason(reason);
    LOCK TABLE idempotency.policy IN SHARE ROW EXCLUSIVE MODE;
    old := idempotency.policy_as_json(scope_pattern COLLATE "C");
    SELECT * INTO p FROM idempotency.policy t
     WHERE t.scope_pattern = idem_policy_alter.scope_pattern COLLATE "C" AND NOT t.dropped;
    IF NOT FOUND THEN
        PERFORM idempotency.refuse('there is no policy with this scope_pattern', 'Policies are found by their exact pattern.',
                                   'Create one with idem_policy_set.', '42704');
    END IF;
    -- As JSON each option has its name: intervals go through text, which keeps all of their fields.
    given := jsonb_strip_nulls(to_jsonb(ROW(scope_pattern, ttl, retention, max_ttl, lease, max_lease, wait, max_attempts,
        retry_base, retry_cap, retry_jitter, on_missing_key, derive_window, principal_required, fingerprint_required,
        store_request, on_lease_expiry, unknown_retry_after, abandon_after, on_abandon, max_body_bytes,
        on_large_body, fingerprint_fields, exclude_fields, drop_headers, final_errors, error_statuses,
        idempotency.name_of_role(allowed_role),
        keep_history, encrypt, transactional_only, reason_required, max_open_claims, NULL, NULL, NULL)::idempotency.policy)) - 'scope_pattern';
    FOREACH name IN ARRAY coalesce(idempotency.check_list(unset, 'unset'), '{}') LOOP
        IF to_jsonb(p) - '{scope_pattern,since,memory_before,dropped}'::text[] ? name IS NOT TRUE THEN
            PERFORM idempotency.refuse('invalid unset', format('"%s" is not an option.', name),
                                       'Use the names of this function''s arguments.');
        ELSIF given ? name THEN
            PERFORM idempotency.refuse('invalid unset', format('"%s" also has a value.', name),
                                       'Give an option a value, or unset it.');
        END IF;
        p := jsonb_populate_record(p, jsonb_build_object(name, NULL));
    END LOOP;
    p := jsonb_populate_record(p, given);
    PERFORM idempotency.check_policy(p);
    IF idempotency.write_policy(p, true, reason) THEN
        PERFORM idempotency.write_audit('policy_alter', scope_pattern, before => old,
                                        after => idempotency.policy_as_json(scope_pattern COLLATE "C"), reason => reason);
    END IF;
END

--: idem_administrator_policy_drop plpgsql definer
DECLARE
    now constant timestamptz := clock_timestamp();
    below idempotency.policy;
    left_over record;
    past record;
    old jsonb;
BEGIN
    PERFORM idempotency.check_writable('idem_policy_drop()');
    IF scope_pattern IS NULL THEN
        PERFORM idempotency.refuse('scope_pattern must not be null', NULL, 'Pass a value.', '22004');
    END IF;
    PERFORM idempotency.check_reason(reason);
    LOCK TABLE idempotency.policy IN SHARE ROW EXCLUSIVE MODE;
    old := idempotency.policy_as_json(scope_pattern COLLATE "C");
    IF old IS NULL THEN RETURN false; END IF;
    PERFORM idempotency.check_may_change(scope_pattern COLLATE "C");
    SELECT * INTO below FROM idempotency.policy p
     WHERE NOT p.dropped AND p.scope_pattern <> idem_policy_drop.scope_pattern COLLATE "C"
       AND idempotency.rank(p.scope_pattern, idem_policy_drop.scope_pattern COLLATE "C") > 0
     ORDER BY idempotency.rank(p.scope_pattern, idem_policy_drop.scope_pattern COLLATE "C") DESC LIMIT 1;
    PERFORM idempotency.check_weakening(scope_pattern COLLATE "C", below, reason);
    left_over := idempotency.memory_of(scope_pattern COLLATE "C", scope_pattern);
    past := idempotency.changed_memory(scope_pattern COLLATE "C", left_over.span, now);
    DELETE FROM idempotency.policy p WHERE p.scope_pattern = idem_policy_drop.scope_pattern COLLATE "C";
    IF past.since IS NOT NULL THEN
        INSERT INTO idempotency.policy (scope_pattern, since, memory_before, dropped)
        VALUES (idem_policy_drop.scope_pattern, past.since, past.before, true);
    END IF;
    PERFORM idempotency.remove_past_policies(scope_pattern, now);
    PERFORM idempotency.write_audit('policy_drop', scope_pattern, before => old, reason => reason);
    RETURN true;
END

--: idem_policy_changed plpgsql
RETURN NULL;
