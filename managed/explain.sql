-- Which values count for a scope and why (src/config/policy_in_force.cpp), and what idem_begin would say
-- (src/operate/explain.cpp).

-- Each option with its value, its source and the name of that.
CREATE FUNCTION idempotency.options(scope text, ttl bigint DEFAULT NULL, lease bigint DEFAULT NULL, wait bigint DEFAULT NULL)
    RETURNS TABLE (option text, kind text, value text, source text, origin text) LANGUAGE plpgsql AS $$
DECLARE
    p idempotency.policy := idempotency.policy_row(scope);
    v idempotency.in_force := idempotency.values_of(p);
    given jsonb := jsonb_strip_nulls(to_jsonb(p));
    known jsonb;  -- by option: its value, source and origin
    said record;
BEGIN
    PERFORM idempotency.check_usable(p);
    SELECT jsonb_object_agg(o, jsonb_build_array(x) || CASE
               WHEN given ? o THEN jsonb_build_array('policy', p.scope_pattern)
               WHEN o IN ('ttl', 'retention', 'lease', 'wait') THEN jsonb_build_array('setting', 'idempotency.default_' || o)
               WHEN o = 'max_body_bytes' THEN '["setting", "idempotency.max_body_bytes"]' ELSE '["default", null]' END)
      INTO known FROM jsonb_each(to_jsonb(v)) e (o, x);
    FOR said IN SELECT * FROM (VALUES ('ttl', ttl, v.max_ttl), ('lease', lease, v.max_lease), ('wait', wait, NULL)) a (o, us, cap) LOOP
        IF said.us IS NOT NULL THEN
            known := jsonb_set(known, ARRAY[said.o], jsonb_build_array(said.us, 'argument', NULL));
        END IF;
        IF NOT (given ? said.o AND said.us IS NULL) AND said.cap < 9223372036854775807
           AND (known -> said.o ->> 0)::bigint >= said.cap + (said.us IS NOT NULL)::integer THEN
            known := jsonb_set(known, ARRAY[said.o], known -> ('max_' || said.o));
        END IF;
    END LOOP;
    FOR said IN SELECT a.o FROM (VALUES ('retention', v.retention < (known -> 'ttl' ->> 0)::bigint),
                                        ('derive_window', v.derive_window = 0)) a (o, is_ttl) WHERE a.is_ttl LOOP
        known := jsonb_set(known, ARRAY[said.o], known -> 'ttl');
    END LOOP;
    RETURN QUERY
    SELECT o.option, o.type,
           CASE WHEN o.option IN ('abandon_after', 'max_attempts', 'max_open_claims') AND k.value = '0'
                     OR o.option IN ('max_ttl', 'max_lease') AND k.value = '9223372036854775807' THEN NULL
                WHEN o.type = 'span' THEN idempotency.days(k.value::bigint)::text
                WHEN o.option = 'fingerprint_fields' THEN v.fingerprint_fields::text
                WHEN o.option = 'exclude_fields' THEN coalesce(v.exclude_fields, '{}')::text
                WHEN o.option = 'drop_headers' THEN coalesce(v.drop_headers, /*DROPPED_HEADERS*/)::text
                WHEN o.option = 'final_errors' THEN v.final_errors::text
                WHEN o.type = 'map' THEN coalesce(v.error_statuses, '{}')::text
                ELSE k.value END,
           known -> o.option ->> 1, known -> o.option ->> 2
      FROM idempotency.policy_options() o, LATERAL (SELECT known -> o.option ->> 0) k (value);
END $$;

--: idem_staff_policy plpgsql definer
PERFORM idempotency.check_name(scope COLLATE "C", 'scope', true);
RETURN QUERY SELECT o.option, o.value, o.source, o.origin FROM idempotency.options(scope COLLATE "C") o;

-- Microseconds as seconds.
CREATE FUNCTION idempotency.seconds(micros bigint) RETURNS numeric
    LANGUAGE sql IMMUTABLE STRICT AS $$ SELECT trim_scale(greatest(micros, 0) / 1000000.0) $$;

-- A record in an explanation.
CREATE FUNCTION idempotency.record_object(r idempotency.record, status "char", due_at timestamptz) RETURNS jsonb
    LANGUAGE sql VOLATILE AS $$
SELECT jsonb_strip_nulls(jsonb_build_object('status', idempotency.status_word(status), 'attempt', (r).attempt,
    'created_at', (r).created_at, 'claimed_at', (r).claimed_at, 'finished_at', (r).finished_at,
    'next_attempt_at', (r).next_attempt_at, 'due_at', due_at,
    'expires_at', CASE WHEN isfinite((r).expires_at) THEN (r).expires_at END,
    'retained_until', CASE WHEN isfinite((r).retained_until) THEN (r).retained_until END,
    'removable_at', CASE WHEN (r).finished_at IS NOT NULL AND status <> 'u' AND isfinite((r).retained_until)
                         THEN (r).retained_until END,
    'holder', (r).holder, 'recovery_point', (r).recovery_point, 'body_bytes', octet_length((r).body), 'error', (r).error,
    'reference', (r).reference, 'operation', (r).operation, 'status_code', (r).status_code,
    'body_omitted', CASE WHEN (r).body_omitted THEN true END, 'resolved_by', (r).resolved_by)) $$;

-- A session as the owner of these functions may see it, without its query.
CREATE FUNCTION idempotency.activity_of(of_pid integer) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
SELECT coalesce((SELECT jsonb_strip_nulls(jsonb_build_object('application_name', nullif(a.application_name, ''), 'user', a.usename,
    'state', a.state, 'since', a.xact_start, 'age', idempotency.seconds(idempotency.since(clock_timestamp(), a.xact_start)),
    'query_since', a.query_start, 'query_age', idempotency.seconds(idempotency.since(clock_timestamp(), a.query_start))))
  FROM pg_stat_activity a WHERE a.pid = of_pid), '{}') $$;

-- The parts of a value that count (src/request/difference.cpp). Each with its name, its step of a path and its place.
-- An element has the number among those that count.
CREATE FUNCTION idempotency.counted_parts(value jsonb, exclude_names text[], exclude_paths text[], field_names text[],
                                          field_paths text[], counts boolean)
    RETURNS TABLE (name text, step text, part jsonb, excluded text[], fields text[], part_counts boolean)
    LANGUAGE sql STABLE AS $$
SELECT coalesce(e.key, row_number() OVER (ORDER BY e.n)::text) COLLATE "C", e.step, e.value, p.excluded, p.fields, d.counts
  FROM (SELECT o.key COLLATE "C" AS key, o.n, o.value, '.' || o.key AS taken,
               '.' || CASE WHEN o.key ~ '^[A-Za-z_][A-Za-z_0-9]*$' THEN o.key ELSE to_json(o.key)::text END AS step
          FROM jsonb_each(CASE jsonb_typeof(value) WHEN 'object' THEN value ELSE '{}' END) WITH ORDINALITY o (key, value, n)
        UNION ALL
        SELECT NULL, a.n, a.value, '[*]', '[' || a.n - 1 || ']'
          FROM jsonb_array_elements(CASE jsonb_typeof(value) WHEN 'array' THEN value ELSE '[]' END) WITH ORDINALITY a (value, n)) e,
       LATERAL (SELECT idempotency.after_step(exclude_paths, e.taken) AS excluded,
                       CASE WHEN NOT counts THEN idempotency.after_step(field_paths, e.taken) END AS fields) p,
       LATERAL (SELECT counts OR coalesce(lower(e.key) = ANY (field_names), false)
                            OR coalesce('' = ANY (p.fields), false) AS counts) d
 WHERE (lower(e.key) = ANY (exclude_names)) IS NOT TRUE AND ('' = ANY (p.excluded)) IS NOT TRUE
   AND (d.counts OR idempotency.canonical(e.value, exclude_names, p.excluded, field_names, p.fields, false) IS NOT NULL) $$;

-- The parts that differ, after those that were found before. More than 20 say that there are more. What is below
-- 1000 levels is not distinguished.
CREATE FUNCTION idempotency.differences(ours jsonb, theirs jsonb, exclude_names text[], exclude_paths text[], field_names text[],
    field_paths text[], counts boolean, show_values boolean, path text DEFAULT '$', depth integer DEFAULT 0,
    parts jsonb DEFAULT '[]') RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    one record;
BEGIN
    IF depth = 1000 OR jsonb_typeof(ours) NOT IN ('object', 'array')
       OR jsonb_typeof(ours) IS DISTINCT FROM jsonb_typeof(theirs) THEN
        RETURN parts || jsonb_build_array((SELECT jsonb_object_agg(m.member, m.value)
          FROM (VALUES ('path', to_jsonb(idempotency.clipped(path, 1000)
                                         || CASE WHEN octet_length(path) > 1000 THEN '...' ELSE '' END)),
                       ('how', to_jsonb(CASE WHEN ours IS NULL THEN 'added' WHEN theirs IS NULL THEN 'missing'
                                             ELSE 'changed' END)),
                       ('stored', CASE WHEN show_values THEN ours END),
                       ('given', CASE WHEN show_values THEN theirs END)) m (member, value)
         -- As the server keeps it, without headers.
         WHERE pg_column_size(m.value) - CASE WHEN jsonb_typeof(m.value) IN ('object', 'array') THEN 4 ELSE 12 END <= 8192));
    END IF;
    -- The order of members in a jsonb.
    FOR one IN SELECT coalesce(o.step, t.step) AS step, o.part AS ours, t.part AS theirs, coalesce(o.excluded, t.excluded) AS excluded,
                      coalesce(o.fields, t.fields) AS fields, coalesce(o.part_counts, t.part_counts) AS counts
                 FROM idempotency.counted_parts(ours, exclude_names, exclude_paths, field_names, field_paths, counts) o
                 FULL JOIN idempotency.counted_parts(theirs, exclude_names, exclude_paths, field_names, field_paths, counts) t USING (name)
                WHERE o.part IS DISTINCT FROM t.part ORDER BY octet_length(name), name LOOP
        parts := idempotency.differences(one.ours, one.theirs, exclude_names, one.excluded, field_names, one.fields, one.counts,
                                         show_values, path || one.step, depth + 1, parts);
        EXIT WHEN jsonb_array_length(parts) > 20;
    END LOOP;
    RETURN parts;
END $$;

-- Run by the owner of the records it may show values; run by the function below it does not.
CREATE FUNCTION idempotency.explain(key text, request jsonb, scope text, principal text, fingerprint bytea, ttl interval,
    lease interval, wait interval, first_sent timestamptz, show_values boolean, method text, path text)
    RETURNS @extschema@.idem_explanation LANGUAGE plpgsql AS $$
DECLARE
    q idempotency.question;
    p idempotency.in_force;
    r idempotency.record;
    lock integer;
    at timestamptz;
    reason text;
    same boolean;
    unlike integer;
    incomparable text;
    other record;
    standby constant boolean := pg_is_in_recovery();
    holder jsonb;
    request_seen jsonb;
    parts jsonb;
    no_request boolean;
    notes text[];
BEGIN
    PERFORM idempotency.check_identity(key COLLATE "C", scope, principal);
    q := idempotency.question_of('idem_explain()', key COLLATE "C", scope, principal, NULL, ttl, wait, false, lease, NULL, request,
        method, path, fingerprint, first_sent);
    q.without_request := true;
    p := idempotency.policy_for(scope COLLATE "C");
    q := idempotency.settle(q, p);
    lock := idempotency.lock_of(q.key, q.scope, q.principal);
    -- The lock first: who had it may have committed when the record is looked at.
    SELECT l.pid, l.virtualtransaction, x.gid, x.owner, x.prepared INTO other
      FROM pg_locks l LEFT JOIN pg_prepared_xacts x ON l.virtualtransaction = '-1/' || x.transaction
     WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = 18756 AND l.objid = (lock::bigint & 4294967295)::oid
       AND l.granted AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    r := idempotency.record_of(q.key, q.scope, q.principal);
    at := clock_timestamp();
    PERFORM idempotency.check_readable(r);
    IF r.fingerprint IS NOT NULL AND q.fingerprint IS NOT NULL THEN
        same := idempotency.same_request(r, q, p);
        unlike := (coalesce(r.fingerprint_of, 0) # q.fingerprint_of) & 7;
        IF NOT same AND unlike <> 0 THEN
            incomparable := CASE WHEN unlike & 4 <> 0 THEN 'digest' ELSE 'method_and_path' END;
            same := NULL;
            q.fingerprint := NULL;  -- taken to be the record's own
        END IF;
    END IF;
    reason := idempotency.reason_for(r, q, p, at);
    -- An absent row says nothing: the other may have written it.
    IF (idempotency.execution_of(reason) IS NOT NULL OR r.token IS NULL) AND other.pid IS DISTINCT FROM pg_backend_pid()
       AND other.virtualtransaction IS NOT NULL THEN
        reason := 'held';
    END IF;
    IF idempotency.is_own_claim(r) THEN
        holder := '{"kind": "this_transaction"}' || jsonb_build_object('pid', pg_backend_pid())
                  || idempotency.activity_of(pg_backend_pid());
    ELSIF other.virtualtransaction IS NOT NULL AND other.pid IS DISTINCT FROM pg_backend_pid() THEN
        holder := CASE WHEN other.pid IS NULL
            THEN jsonb_strip_nulls(jsonb_build_object('kind', 'prepared', 'gid', other.gid, 'user', other.owner, 'since', other.prepared,
                     'age', idempotency.seconds(idempotency.since(clock_timestamp(), other.prepared))))
            ELSE jsonb_build_object('kind', 'transaction', 'pid', other.pid) || idempotency.activity_of(other.pid) END;
    ELSIF r.status = 'i' AND r.backend_pid IS NOT NULL AND NOT standby
          AND NOT idempotency.session_gone(r.backend_pid, r.backend_start) THEN
        holder := jsonb_build_object('kind', 'session', 'pid', r.backend_pid) || idempotency.activity_of(r.backend_pid);
    END IF;
    IF r.token IS NOT NULL THEN
        request_seen := jsonb_strip_nulls(jsonb_build_object('same', same, 'not_comparable', incomparable,
            'stored', r.request IS NOT NULL, 'counted', to_jsonb(r.counted), 'left_out', to_jsonb(r.excluded)));
        IF (NOT same OR incomparable IS NOT NULL) AND r.request IS NOT NULL AND request IS NOT NULL THEN
            -- By the rule by which the record's fingerprint was taken.
            IF r.fingerprint_of & 4 <> 0 THEN r.counted := NULL; r.excluded := NULL; END IF;
            parts := CASE WHEN r.request = request THEN '[]' ELSE idempotency.differences(r.request #> '{}', request #> '{}',
                idempotency.names_in(r.excluded), idempotency.paths_in(r.excluded), idempotency.names_in(r.counted),
                idempotency.paths_in(r.counted), r.counted IS NULL, show_values) END;
            request_seen := request_seen || jsonb_build_object('differ', jsonb_path_query_array(parts, '$[0 to 19]'),
                                                               'more', jsonb_array_length(parts) > 20);
        END IF;
    END IF;
    no_request := q.fingerprint IS NULL AND incomparable IS NULL;
    notes := ARRAY(SELECT m.message FROM unnest(ARRAY[
        CASE WHEN standby THEN 'note_standby' END,
        CASE WHEN holder ->> 'kind' IN ('transaction', 'prepared') AND r.token IS NOT NULL THEN 'note_holder' END,
        CASE WHEN no_request AND r.token IS NOT NULL THEN 'note_no_request' END,
        'note_' || incomparable,
        CASE WHEN no_request AND p.fingerprint_required THEN 'note_required' END,
        CASE WHEN idempotency.outcome_of(reason) = 'in_progress' AND reason <> 'own_claim' AND q.wait > 0 THEN 'note_wait' END
        ]) WITH ORDINALITY n (word, place) JOIN idempotency.messages() m USING (word) ORDER BY n.place);
    RETURN ROW(idempotency.outcome_of(reason), reason, x.why, x.next, idempotency.execution_of(reason),
            q.key, q.scope, q.principal, pause / 1e6, idempotency.after(at, pause),
            CASE WHEN r.token IS NOT NULL THEN idempotency.record_object(r,
                CASE WHEN idempotency.is_own_claim(r) THEN r.status ELSE idempotency.status_by(r, p, at) END, idempotency.due_at(r, p, at)) END,
            CASE WHEN r.finished_at IS NULL AND r.lease_until IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object(
                'seconds', idempotency.seconds(r.lease_us), 'until', r.lease_until,
                'left', idempotency.seconds(idempotency.since(r.lease_until, at)),
                'overdue', idempotency.seconds(idempotency.since(at, r.lease_until)), 'held', r.backend_pid IS NOT NULL,
                'session_lives', CASE WHEN r.backend_pid IS NOT NULL AND NOT standby
                                      THEN NOT idempotency.session_gone(r.backend_pid, r.backend_start) END,
                'given_up_at', idempotency.given_up_at(r, p))) END, holder, request_seen,
            (SELECT jsonb_object_agg(o.option, jsonb_strip_nulls(jsonb_build_object('value',
                        CASE WHEN o.kind IN ('flag', 'number') THEN o.value::jsonb ELSE to_jsonb(o.value) END,
                        'source', o.source, 'origin', o.origin)))
               FROM idempotency.options(q.scope, idempotency.micros(explain.ttl),
                    idempotency.micros(explain.lease), idempotency.micros(explain.wait)) o),
            notes, standby, at, NULL::text)::@extschema@.idem_explanation
      FROM idempotency.reasons() x, idempotency.retry_after(reason, r.lease_until, r.next_attempt_at, at, p.unknown_retry_after) pause
     WHERE x.word = reason;
END $$;

-- The same for operators, who do not own the records.
CREATE FUNCTION idempotency.explain_paths(key text, request jsonb, scope text, principal text, fingerprint bytea, ttl interval,
    lease interval, wait interval, first_sent timestamptz, show_values boolean, method text, path text)
    RETURNS @extschema@.idem_explanation LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF show_values THEN PERFORM idempotency.refuse('values_of_owner'); END IF;
    RETURN idempotency.explain(key, request, scope, principal, fingerprint, ttl, lease, wait, first_sent, false, method, path);
END $$;

-- With the rights of its caller: a function with those of its owner does not know them.
--: idem_operator_explain plpgsql
IF show_values AND pg_has_role(current_user, (SELECT c.relowner FROM pg_class c
                                               WHERE c.oid = 'idempotency.record'::regclass), 'USAGE') THEN
    RETURN idempotency.explain(key, request, scope, principal, fingerprint, ttl, lease, wait, first_sent, true, method, path);
END IF;
RETURN idempotency.explain_paths(key, request, scope, principal, fingerprint, ttl, lease, wait, first_sent, show_values, method,
                                 path);
