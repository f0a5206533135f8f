-- Promise: idem_explain returns the outcome of the next idem_begin, and the reason. It changes nothing,
-- and its other statements are true.
\a\pset footer off
SET client_min_messages = warning;

-- Possible traces of a look: the rows and their versions, locks of keys, a transaction id.
CREATE FUNCTION test.traces(in_scope text) RETURNS text
    LANGUAGE sql AS $$
    SELECT concat_ws('/', (SELECT string_agg(concat_ws(' ', r.ctid, r.xmin, r.xmax, r.*::text), ';' ORDER BY key)
                             FROM idempotency.record r WHERE scope = in_scope),
                     (SELECT keys FROM test.locks()), pg_current_xact_id_if_assigned()) $$;

-- Explains, and then begins in a subtransaction that is undone.
CREATE FUNCTION test.explained(in_key text, request jsonb DEFAULT NULL, in_scope text DEFAULT 'explain',
                               first_sent timestamptz DEFAULT NULL, ttl interval DEFAULT NULL,
                               OUT outcome text, OUT reason text, OUT execution text, OUT agrees boolean, OUT unchanged boolean)
    LANGUAGE plpgsql AS $$
DECLARE
    traces text := test.traces(in_scope);
    e idem_explanation := idem_explain(in_key, request, in_scope, ttl => ttl, first_sent => first_sent);
    c idem_claim;
BEGIN
    unchanged := traces = test.traces(in_scope);
    BEGIN
        c := idem_begin(in_key, request, in_scope, ttl => ttl, first_sent => first_sent);
        RAISE EXCEPTION SQLSTATE 'EXPLN';
    EXCEPTION WHEN SQLSTATE 'EXPLN' THEN
        NULL;
    END;
    outcome := e.outcome;
    reason := e.reason;
    execution := e.execution;
    agrees := e.outcome = c.outcome
          AND (e.execution IS NOT NULL) = (c.outcome = 'execute')
          AND CASE e.execution WHEN 'first' THEN c.attempt = 1
                               WHEN 'reuse' THEN c.attempt = 1
                               ELSE c.attempt IS NOT DISTINCT FROM (e.record ->> 'attempt')::integer + (c.outcome = 'execute')::integer END
          AND (c.outcome = 'execute' OR c.status IS NOT DISTINCT FROM e.record ->> 'status')
          AND (e.retry_after IS NULL) = (c.retry_after IS NULL)
          AND coalesce(e.retry_after >= c.retry_after, true)
          AND coalesce(e.retry_at IN ((e.lease ->> 'until')::timestamptz, (e.record ->> 'next_attempt_at')::timestamptz), true)
          AND coalesce(e.retry_at = e.explained_at + e.retry_after * interval '1 second', true);
END $$;

-- ---- each reason ----

SELECT idem_policy_set('explain', ttl => '1 day', retention => '2 days', lease => '1 hour', store_request => true);
SELECT idem_policy_set('explain-once', max_attempts => 1);
SELECT idem_policy_set('explain-unknown', on_lease_expiry => 'unknown');
SELECT * FROM test.explained('new');
SELECT * FROM test.explained('new', first_sent => now() - interval '10 days');

CREATE TEMP TABLE claimed AS
    SELECT s AS scope, k AS key, c.token
      FROM (VALUES ('explain', 'leased'), ('explain', 'over'), ('explain', 'held'), ('explain', 'gone'), ('explain', 'done'),
                   ('explain', 'failed'), ('explain', 'due'), ('explain', 'paused'), ('explain', 'resolved'),
                   ('explain-once', 'failed'), ('explain-once', 'silent'), ('explain-unknown', 'silent')) AS v (s, k),
           idem_begin(k, '{"amount": 5}', s, hold => k IN ('held', 'gone'), holder => 'worker-1') c;
SELECT count(*) FROM claimed WHERE token IS NOT NULL;
SELECT idem_complete('done', 201, 'made', '{"X": "y"}', 'explain', token => token) FROM claimed WHERE (scope, key) = ('explain', 'done');
SELECT key, idem_fail(key, 'bank is down', key <> 'failed' OR scope <> 'explain', 503, scope => scope, token => token,
                      retry_after => CASE WHEN key = 'failed' AND scope = 'explain' THEN NULL WHEN key = 'paused' THEN interval '1 hour' ELSE '0' END)
  FROM claimed WHERE key IN ('failed', 'due', 'paused');
SELECT idem_resolve('resolved', 'fail', 'explain', error => 'given up');
UPDATE idempotency.record SET lease_until = now() - interval '1 minute' WHERE scope LIKE 'explain%' AND key IN ('over', 'silent');
UPDATE idempotency.record SET backend_start = backend_start - interval '1 second' WHERE scope = 'explain' AND key = 'gone';

SELECT scope, key, e.* FROM claimed, test.explained(key, '{"amount": 5}', scope) e ORDER BY scope, key;
SELECT key, e.* FROM claimed, test.explained(key, '{"amount": 6}') e WHERE scope = 'explain' AND key IN ('leased', 'done', 'due') ORDER BY key;
-- Without anything to compare, the request counts as the same.
SELECT key, e.* FROM claimed, test.explained(key) e WHERE scope = 'explain' AND key IN ('leased', 'done') ORDER BY key;

-- Records past their ttl, and past their retention.
SELECT test.let_pass('30 hours', 'explain');
SELECT * FROM test.explained('done', '{"amount": 6}');
SELECT test.let_pass('30 hours', 'explain');
SELECT * FROM test.explained('done', '{"amount": 6}');
SELECT * FROM test.explained('done', first_sent => now() - interval '61 hours', ttl => '10 days');
SELECT * FROM test.explained('done', first_sent => now() - interval '1 hour');
SELECT test.let_pass('-60 hours', 'explain');

-- This transaction's own claim, and another request for it.
BEGIN;
SELECT outcome FROM idem_begin('own', '{"amount": 5}', 'explain');
SELECT * FROM test.explained('own', '{"amount": 5}');
SELECT * FROM test.explained('own', '{"amount": 6}');
SELECT holder ->> 'kind' AS kind, (holder ->> 'pid')::integer = pg_backend_pid() AS mine, record ->> 'status' AS status FROM idem_explain('own', scope => 'explain');
SELECT idem_complete('own', scope => 'explain');
SELECT * FROM test.explained('own', '{"amount": 5}');
ROLLBACK;

-- ---- whatever the record is ----

-- Rows of any kind, for any caller, from a seed. Times lie hours away, so that none passes meanwhile.
SELECT count(*) FROM (SELECT idem_policy_set('explain-random' || CASE WHEN m THEN '-some' ELSE '' END || CASE WHEN u THEN '-unknown' ELSE '' END,
                             retention => '3 days', max_attempts => CASE WHEN m THEN 2 END, on_lease_expiry => CASE WHEN u THEN 'unknown' END)
  FROM unnest('{t,f}'::boolean[]) m, unnest('{t,f}'::boolean[]) u) AS p;
CREATE FUNCTION test.one_of(VARIADIC choices anyarray) RETURNS anyelement
    LANGUAGE sql VOLATILE AS $$ SELECT choices[1 + floor(random() * cardinality(choices))::integer] $$;
CREATE PROCEDURE test.explain_at_random(rounds integer) LANGUAGE plpgsql AS $$
DECLARE
    hour interval := '1 hour';
    scope text;
    seen record;
    sent timestamptz;
    asked jsonb;
    found text[] := '{}';
BEGIN
    FOR i IN 1 .. rounds LOOP
        scope := 'explain-random' || test.one_of(''::text, '-some') || test.one_of(''::text, '-unknown');
        DELETE FROM idempotency.record r WHERE r.scope LIKE 'explain-random%';
        INSERT INTO idempotency.record (scope, principal, key, status, if_silent, attempt, token, lease_us, backend_pid, backend_start,
                                        created_at, claimed_at, expires_at, retained_until, lease_until, next_attempt_at, finished_at,
                                        fingerprint, operation, error, resolved_by, request)
        SELECT scope, '', 'k', status, test.one_of('t'::"char", 'u', 'x'), test.one_of(1, 2, 3), 1, 60000000, b.pid, CASE WHEN b.pid IS NOT NULL THEN now() - 100 * hour END,
               now() - 9 * hour, now() - test.one_of(5, 9) * hour, e, e + test.one_of(0, 4) * hour, now() + test.one_of(-1, 1) * hour,
               CASE WHEN status = 'r' THEN now() + test.one_of(-1, 1) * hour END, CASE WHEN status <> 'i' THEN now() - hour END,
               idem_fingerprint(asked.r), test.one_of(NULL, 'public.echo(jsonb)'::text), test.one_of(NULL, 'e'::text), test.one_of(NULL, 'someone'::text), test.one_of(NULL, asked.r)
          FROM (SELECT test.one_of('i'::"char", 'i', 'c', 'f', 'r', 'r', 'x', 'u') AS status, now() + test.one_of(-6, -2, 2, 6) * hour AS e OFFSET 0) AS s,
               (SELECT test.one_of(NULL, '{"a": 1}'::jsonb, '{"a": 2}') AS r OFFSET 0) AS asked, (SELECT test.one_of(NULL, 1) AS pid OFFSET 0) AS b
         WHERE i % 20 > 0;
        sent := now() - test.one_of(NULL, 0, 2, 7, 20, 200) * hour;
        asked := test.one_of(NULL, '{"a": 1}'::jsonb, '{"a": 2}');
        SELECT * INTO seen FROM test.explained('k', asked, scope, sent, test.one_of(NULL, 2, 2000) * hour);
        found := found || (seen.outcome || ' ' || seen.reason);
        IF seen.agrees IS NOT TRUE OR seen.unchanged IS NOT TRUE THEN
            RAISE WARNING 'round %: % for % sent % and %', i, seen, asked, sent, (SELECT r FROM idempotency.record r WHERE r.key = 'k' AND r.scope LIKE 'explain-random%');
        END IF;
    END LOOP;
    RAISE INFO '%', (SELECT string_agg(DISTINCT f, ', ' ORDER BY f) FROM unnest(found) f);
END $$;
SELECT setseed(0.17) \gset
CALL test.explain_at_random(1000);
DELETE FROM idempotency.record WHERE scope LIKE 'explain-random%';

-- ---- nothing is changed ----

BEGIN READ ONLY;
SELECT outcome, reason FROM idem_explain('new', scope => 'explain');
SELECT outcome, reason FROM idem_explain('leased', scope => 'explain');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_transaction_id, * FROM test.locks();
COMMIT;
-- A caller's fixed snapshot says nothing of a caller whose work comes later.
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT outcome, reason FROM idem_explain('gone', scope => 'explain');
COMMIT;

-- ---- the facts ----

CREATE FUNCTION test.facts(what jsonb) RETURNS text
    LANGUAGE sql AS $$
    SELECT string_agg(key || '=' || CASE WHEN key ~ '(_at|_age|_since|since|until|age|left|overdue|pid|user|application_name|resolved_by)$' THEN 'set' ELSE value END, ' ' ORDER BY key)
      FROM jsonb_each_text(what) $$;
SELECT c.key, test.facts(record) AS record, test.facts(lease) AS lease, test.facts(holder) AS holder, test.facts(request) AS request
  FROM claimed c, idem_explain(c.key, scope => c.scope) e WHERE c.scope = 'explain' ORDER BY c.key;
SELECT (lease ->> 'until')::timestamptz - explained_at = (lease ->> 'left')::numeric * interval '1 second' AS left, lease ->> 'overdue' AS overdue
  FROM idem_explain('leased', scope => 'explain');
SELECT explained_at - (lease ->> 'until')::timestamptz = (lease ->> 'overdue')::numeric * interval '1 second' AS overdue, lease ->> 'left' AS left
  FROM idem_explain('over', scope => 'explain');
SELECT (e.record ->> 'expires_at')::timestamptz = r.expires_at AS expires, (e.record ->> 'removable_at')::timestamptz = r.retained_until AS removable
  FROM idem_explain('done', scope => 'explain') e, idempotency.records r WHERE (r.scope, r.key) = ('explain', 'done');
SELECT idem_policy_set('explain', store_request => true, abandon_after => '10 min', replace => true, reason => 'a test');
SELECT (lease ->> 'given_up_at')::timestamptz - (lease ->> 'until')::timestamptz AS given_up FROM idem_explain('leased', scope => 'explain');
-- A record that no caller takes over needs nothing more.
SELECT idem_policy_set('explain-unknown', lease => '1 hour', on_lease_expiry => 'unknown', abandon_after => '10 min', on_abandon => 'unknown', replace => true);
SELECT outcome FROM idem_begin('unknown', scope => 'explain-unknown');
SELECT lease ? 'given_up_at' AS given_up FROM idem_explain('unknown', scope => 'explain-unknown');
SELECT idem_policy_alter('explain-unknown', on_abandon => 'release');
SELECT lease ? 'given_up_at' AS given_up FROM idem_explain('unknown', scope => 'explain-unknown');
SELECT idem_policy_set('explain', ttl => '1 day', retention => '2 days', lease => '1 hour', store_request => true, replace => true);
-- Reason and next step as sentences; and who must act.
SELECT c.key, why, next FROM claimed c, idem_explain(c.key, scope => c.scope) e WHERE c.scope = 'explain' AND c.key IN ('leased', 'done') ORDER BY 1;
SELECT notes FROM idem_explain('leased', scope => 'explain', wait => '1 hour');
SELECT notes FROM idem_explain('leased', '{"amount": 5}', scope => 'explain');
SELECT idem_policy_set('explain-strict', fingerprint_required => true);
SELECT outcome, notes FROM idem_explain('strict', scope => 'explain-strict');
SELECT outcome, notes FROM idem_explain('strict', '{}', scope => 'explain-strict');

-- The policy in force, and who says so.
SELECT option, policy -> option AS said FROM idem_explain('new', scope => 'explain', ttl => '2 hours', wait => '1 s'),
       unnest('{ttl,retention,lease,wait,max_attempts,store_request,on_lease_expiry,allowed_role}'::text[]) AS option;
-- All of it, as idem_policy has it.
SELECT count(*) > 10 AS options, bool_and(policy ? option AND policy -> option ->> 'source' = p.source AND policy -> option ->> 'origin' IS NOT DISTINCT FROM p.origin
                                    AND policy -> option ->> 'value' IS NOT DISTINCT FROM p.value) AS same
  FROM idem_explain('new', scope => 'explain') e, idem_policy('explain') p;

-- ---- differences ----

SELECT idem_policy_set('explain', store_request => true, exclude_fields => '{trace_id,$.meta.sent_at,$.tags[*].id}', replace => true, reason => 'a test');
SELECT token IS NOT NULL AS claimed FROM idem_begin('parts', '{"amount": 100, "to": {"name": "acme", "bank": [1, {"x": null}, true]}, "trace_id": "a",
    "meta": {"sent_at": 1, "by": "me"}, "tags": [{"id": 1, "t": "x"}], "odd name": 1, "a.b": 1, "\u0001\"": 1, "": 1, "big": 12345678901234567890.50}', 'explain');
CREATE FUNCTION test.parts(given jsonb, show_values boolean DEFAULT false, in_key text DEFAULT 'parts') RETURNS text
    LANGUAGE sql AS $$
    SELECT concat_ws(E'\n', concat(e.outcome, ', same ', request ->> 'same', ', more ' || (request ->> 'more')),
                     (SELECT string_agg(part::text, E'\n') FROM jsonb_array_elements(request -> 'differ') part))
      FROM idem_explain(in_key, given, 'explain', show_values => show_values) e $$;
-- Excluded fields, the spelling of numbers and the order of members are no difference.
SELECT test.parts('{"big": 12345678901234567890.5, "": 1.0, "\u0001\"": 1, "a.b": 10e-1, "odd name": 1, "tags": [{"t": "x", "id": 2}], "meta": {"by": "me", "sent_at": 2},
    "Trace_ID": "b", "to": {"bank": [1, {"x": null}, true], "name": "acme"}, "amount": 100}');
SELECT test.parts('{"amount": 100.01, "to": {"name": "acme", "bank": [1, {"x": 0}, true, false]}, "trace_id": "b",
    "meta": {"sent_at": 2, "by": "you"}, "tags": [{"id": 2, "t": "y"}, 3], "odd name": 2, "a.b": 2, "\u0001\"": 2, "": 2, "big": 12345678901234567890.51, "tip": {"a": 1}}');
SELECT test.parts('{"to": "acme"}');
SELECT test.parts('[]');
SELECT test.parts('"scalar"');
-- The paths are those of jsonpath.
SELECT count(*) AS parts, bool_and(jsonb_path_exists(e.request, '$'::jsonpath) AND jsonb_path_query_first(r.request, (part ->> 'path')::jsonpath) = part -> 'stored') AS found
  FROM idempotency.records r, idem_explain('parts', '{"amount": 1, "to": {"name": 1, "bank": [0, {"x": 1}, 3]}, "meta": {"by": 1}, "tags": [{"t": 1}], "odd name": 2, "a.b": 2, "\u0001\"": 2, "": 2, "big": 2}',
       'explain', show_values => true) e, jsonb_array_elements(e.request -> 'differ') part
 WHERE (r.scope, r.key) = ('explain', 'parts');
-- With values, if the owner asks; large ones are left out.
SELECT test.parts('{"amount": 1, "to": null}', true) LIKE '%"stored": 100%' AS shown;
SELECT part FROM idem_explain('parts', jsonb_build_object('amount', repeat('x', 9000), 'meta', jsonb_build_object('by', repeat('y', 8)), 'to', jsonb_build_object('bank', 1)), 'explain',
    show_values => true) e, jsonb_array_elements(e.request -> 'differ') part WHERE part ->> 'path' IN ('$.amount', '$.meta.by', '$.to.bank');
-- A caller's own fingerprint: nothing to say.
SELECT idem_policy_set('explain', store_request => true, replace => true, reason => 'a test');
SELECT outcome, request, notes FROM idem_explain('parts', scope => 'explain', fingerprint => '\x00');
SELECT outcome FROM idem_begin('scalar', '"a"', 'explain', fingerprint => '\x01');
SELECT outcome, request FROM idem_explain('scalar', '"a"', 'explain', fingerprint => '\x02');
SELECT idem_policy_set('explain', store_request => true, exclude_fields => '{trace_id,$.meta.sent_at,$.tags[*].id}', replace => true, reason => 'a test');
-- A bounded number of paths, in readable form.
SELECT jsonb_array_length(request -> 'differ') AS parts, request -> 'more' AS more FROM idem_explain('parts', (SELECT jsonb_object_agg(i, i) FROM generate_series(1, 1000) i), 'explain');
SELECT outcome FROM idem_begin('deep', (repeat('{"ä":', 400) || '1' || repeat('}', 400))::jsonb, 'explain');
SELECT octet_length(part ->> 'path') AS bytes, right(part ->> 'path', 4) AS ends, part ->> 'how' AS how
  FROM idem_explain('deep', (repeat('{"ä":', 400) || '2' || repeat('}', 400))::jsonb, 'explain') e, jsonb_array_elements(e.request -> 'differ') part;
-- A comparison that takes long can be cancelled in its midst: each level looks first whether all below it
-- is the same bytes. What comes after it in the same row would be done if only the statement's end heard
-- of the timeout.
SELECT idem_policy_set('explain-long', store_request => true, max_body_bytes => 100000000);
CREATE TEMP TABLE long AS
    SELECT id, (repeat('{"a":', 900) || jsonb_build_object('a', array_agg(repeat('x', 80)), 'id', id) || repeat('}', 900))::jsonb AS request
      FROM generate_series(1, 200000) n, generate_series(1, 2) id GROUP BY id;
SELECT outcome FROM long, idem_begin('long', request, 'explain-long', fingerprint => '\x01') WHERE id = 1;
SET statement_timeout = '100ms';
\set VERBOSITY sqlstate
SELECT idem_explain('long', request, 'explain-long', fingerprint => '\x02') IS NULL, pg_advisory_lock(45) FROM long WHERE id = 2;
\set VERBOSITY default
RESET statement_timeout;
SELECT count(*) AS came_to_its_end FROM pg_locks WHERE locktype = 'advisory' AND objid = 45 AND pid = pg_backend_pid();
DROP TABLE long;
-- The rule of then: by that of today nothing would differ.
SELECT idem_policy_set('explain', store_request => true, exclude_fields => '{amount}', replace => true, reason => 'a test');
SELECT test.parts('{"amount": 6}', in_key => 'leased');
SELECT outcome FROM idem_begin('leased', '{"amount": 6}', 'explain');
-- Where only some fields count: parts without any of them do not matter.
SELECT idem_policy_set('explain', store_request => true, fingerprint_fields => '{id,$.to.name,$.list[*].n}', exclude_fields => '{$.meta.id}', replace => true, reason => 'a test');
SELECT outcome FROM idem_begin('some', '{"id": 1, "x": 1, "to": {"name": "acme", "y": 1}, "list": [{"z": 1}, {"n": 1}, {"n": 2, "z": [{"id": 3}]}], "meta": {"id": 1}, "rest": [[{"a": {}}]]}', 'explain');
SELECT test.parts('{"id": 1.0, "x": 2, "to": {"name": "acme", "y": 2}, "list": [{"n": 1}, {"z": 1}, {"z": [{"id": 3}, {"q": 1}], "n": 2}], "meta": {"id": 2}, "more": {"a": [1]}}', in_key => 'some');
SELECT test.parts('{"id": 2, "to": {"name": "other", "y": 2}, "list": [{"n": 1}, 5, {"n": 3, "z": [{"id": 4}]}, {"n": 5}], "rest": [[{"id": {}}]], "more": {"a": [1]}}', in_key => 'some');
SELECT test.parts('{"id": 1, "to": 5, "list": {"n": 1}}', in_key => 'some');
SELECT request -> 'counted' AS counted, request -> 'left_out' AS left_out FROM idem_explain('some', scope => 'explain');
-- A record that has no request says that the fingerprints differ, and no more.
SELECT outcome, request FROM idem_explain('silent', '{"amount": 6}', 'explain-unknown');
-- Deeper than a fingerprint reads, with one of the caller's.
SELECT idem_policy_set('explain', store_request => true, replace => true, reason => 'a test');
SELECT outcome FROM idem_begin('deeper', (repeat('[', 1500) || '1' || repeat(']', 1500))::jsonb, 'explain', fingerprint => '\x01');
SELECT jsonb_array_length(request -> 'differ') AS parts, part ->> 'how' AS how
  FROM idem_explain('deeper', (repeat('[', 1500) || '2' || repeat(']', 1500))::jsonb, 'explain', fingerprint => '\x02') e, jsonb_array_elements(e.request -> 'differ') part;

-- ---- rights, and refused calls ----

CREATE ROLE regress_idem_clerk;
SELECT idem_grant('regress_idem_clerk');
SET ROLE regress_idem_clerk;
SELECT outcome FROM idem_explain('leased', scope => 'explain');
\echo :SQLSTATE
RESET ROLE;
SELECT idem_grant('regress_idem_clerk', operator => true);
SET ROLE regress_idem_clerk;
SELECT outcome, holder ->> 'kind' AS kind, (holder ->> 'state') IS NULL AS state_hidden, (holder ->> 'application_name') IS NULL AS name_hidden
  FROM idem_explain('held', scope => 'explain');
SELECT outcome, request -> 'differ' AS differ FROM idem_explain('leased', '{"amount": 7}', 'explain');
SELECT outcome FROM idem_explain('leased', scope => 'explain', show_values => true);
\echo :SQLSTATE
RESET ROLE;
SELECT idem_policy_set('explain-closed', allowed_role => 'pg_monitor');
SET ROLE regress_idem_clerk;
SELECT outcome FROM idem_explain('k', scope => 'explain-closed');
\echo :SQLSTATE
RESET ROLE;
SELECT * FROM refused($$
SELECT outcome FROM idem_explain(NULL);
SELECT outcome FROM idem_explain('');
SELECT outcome FROM idem_explain('k', ttl => '-1 s');
$$);
SELECT idem_policy_set('explain-small', store_request => true, max_body_bytes => 5);
SELECT outcome FROM idem_explain('k', '{"amount": 5}', 'explain-small');
\echo :SQLSTATE

SELECT idem_revoke('regress_idem_clerk');
DROP ROLE regress_idem_clerk;
DELETE FROM idempotency.record WHERE scope LIKE 'explain%';
SELECT count(idem_policy_drop(scope_pattern, 'a test')) AS dropped FROM idempotency.policies WHERE scope_pattern LIKE 'explain%';
DROP FUNCTION test.parts, test.facts, test.one_of, test.explained, test.traces;
DROP PROCEDURE test.explain_at_random;
