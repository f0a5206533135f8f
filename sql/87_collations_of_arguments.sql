-- Promise: arguments of any collation are taken byte by byte, also where they differ, and take "Key" and "key" for the same.
\a\pset footer off
\set SHOW_CONTEXT never
SELECT NOT EXISTS (SELECT FROM pg_collation WHERE collname = 'und-x-icu') AS no_icu \gset
\if :no_icu
\quit
\endif

CREATE COLLATION test.careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE COLLATION test.other (provider = icu, locale = 'und-u-ks-level1', deterministic = false);
CREATE TABLE test.given (scope text COLLATE test.careless, key text COLLATE test.other, note text COLLATE test.other,
    keys text[] COLLATE test.careless, pattern text COLLATE test.careless);
INSERT INTO test.given VALUES ('Careless', 'Key', 'Note', '{Key,key,other,Key}', 'Careless*');
SELECT idem_policy_set(pattern, store_request => true, retry_base => '0', exclude_fields => keys, keep_history => true,
           drop_headers => '{Date}'::text[] COLLATE test.careless, reason => note),
       idem_policy_alter(pattern, final_errors => '{22}'::text[] COLLATE test.careless, reason => note,
           unset => '{drop_headers}'::text[] COLLATE test.careless),
       idem_policy_set(lower(pattern), retry_base => '0') FROM test.given;
SELECT o.option, o.value, o.origin FROM test.given, idem_policy(scope) o WHERE option IN ('store_request', 'exclude_fields', 'final_errors') ORDER BY option;
BEGIN;
SELECT outcome FROM test.given, idem_begin(key, '{"a": 1}', scope, note);
SELECT isfinite(idem_checkpoint(key, note, '{}', scope, note)), idem_fail(key, note, true, scope => scope, principal => note) FROM test.given;
COMMIT;
SELECT (idem_begin(lower(key), '{"a": 1}', scope, note)).outcome, (idem_begin(key, '{"a": 1}', lower(scope), note)).outcome,
       (idem_begin(key, '{"a": 1}', scope, lower(note))).outcome FROM test.given;
SELECT c.key FROM test.given, idem_claim_due(lower(pattern), 10, '1 min') c;
SELECT c.key, c.principal, c.attempt, c.recovery_point, c.token FROM test.given, idem_claim_due(pattern, 10, '1 min', holder => note) c \gset
\echo :key :principal :attempt :recovery_point
SELECT (idem_get(key, scope, note)).status, (idem_get(key, scope, note)).holder, idem_get(upper(key), scope, note),
       (idem_explain(key, '{"a": 1}', scope, note)).outcome, (idem_attempts(key, scope, note)).attempt FROM test.given;
SELECT isfinite(idem_extend(key, :token, '2h', scope, note)), idem_unknown(key, note, note, scope, note, :token) FROM test.given;
SELECT idem_resolve_idle(key, 'reopen' COLLATE test.careless, scope, note, reason => note, status => 'unknown' COLLATE test.careless) FROM test.given;
SELECT idem_once_each(keys, scope) FROM test.given;
SELECT idem_once_each(keys || upper(key), scope) FROM test.given;
SELECT idem_once(key, note), idem_once(lower(key), note), idem_once(key, lower(note)) FROM test.given;
CREATE FUNCTION test.echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT (idem_execute(key, 'test.echo(jsonb)', '{}', note || '/x', note)).outcome, (idem_execute(lower(key), 'test.echo(jsonb)', '{}', note || '/x', note)).outcome,
       (idem_execute(key, 'test.echo(jsonb)', '{}', note || '/x', note)).outcome FROM test.given;
DROP FUNCTION test.echo(jsonb);
SELECT idem_fingerprint('{"Key": 1}', note, note, keys, keys) = idem_fingerprint('{"Key": 1}', 'Note', 'Note', '{Key,key,other}', '{Key,key,other}'),
       idem_key(VARIADIC keys) = idem_key('Key', 'key', 'other', 'Key'), idem_event_id(scope, key, 'epoch') COLLATE "C" = idem_event_id('Careless', 'Key', 'epoch'),
       idem_parse_key('"' || key || '"'), idem_http_status('mismatch' COLLATE test.careless),
       idem_problem('mismatch' COLLATE test.careless) = idem_problem('mismatch') FROM test.given;
SELECT idem_fingerprint('{"Key": {"a": 1, "b": 2}}', exclude => '{$.Key.a, $.key.b}'::text[] COLLATE test.careless) = idem_fingerprint('{"Key": {"b": 2}}'),
       idem_fingerprint('{"Key": {"a": 1, "b": 2}}', fields => '{$.Key.a, $.key.b}'::text[] COLLATE test.careless) = idem_fingerprint('{"Key": {"a": 1}}');
CALL idem_resolve_all('release' COLLATE test.careless, 'Note' COLLATE test.careless, 'careless*' COLLATE test.careless, 'Note' COLLATE test.careless,
    'retryable' COLLATE test.careless, holder => 'Note' COLLATE test.careless);
SELECT idem_resolve(key, 'release' COLLATE test.careless, scope, note, reason => note), idem_forget(lower(key), scope, reason => note),
       idem_erase(key, note, reason => note) FROM test.given;
SELECT w.* FROM test.given, idem_await_claims(lower(note), '1s') w;
SELECT key, scope, principal, status FROM idempotency.records ORDER BY scope, key, principal;
CALL idem_forget_principal('note' COLLATE test.careless, 'Note' COLLATE test.careless);
SELECT idem_erase_decisions(note, note), idem_policy_drop(lower(pattern), note), idem_policy_drop(pattern, note) FROM test.given;

DROP TABLE test.given;
DROP COLLATION test.careless, test.other;
TRUNCATE idempotency.record, idempotency.policy, idempotency.audit;
