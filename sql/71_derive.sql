-- Promise: idem_begin(derive => window) makes a missing key of the request, by the rules that a policy's
-- on_missing_key => 'derive' follows, and forgets it with the window.
\a\pset footer off

CREATE FUNCTION test.buy(request jsonb, OUT answer text[]) LANGUAGE plpgsql AS $$
BEGIN
    SELECT ARRAY[outcome, attempt::text] INTO answer
      FROM idem_begin(NULL, request, 'buy', 'mira', method => 'POST', path => '/buy', exclude => '{sent_at}', derive => '1 min');
END $$;
CREATE VIEW test.bought AS SELECT * FROM idempotency.record WHERE scope = 'buy';

SELECT idem_policy_set('buy', ttl => '1 hour', retention => '10 days');
SELECT test.buy('{"item": 1, "sent_at": 1}');
SELECT key = encode(idem_fingerprint(to_jsonb(encode(idem_fingerprint('{"item": 1}', 'POST', '/buy'), 'hex')), 'mira', 'buy'), 'hex') AS derived,
       retained_until - created_at AS window FROM test.bought;
SELECT idem_complete(key, 201, 'made', scope => scope, principal => principal, token => token, ttl => '1 hour') FROM test.bought;
SELECT test.buy('{"item": 1, "sent_at": 2}'), test.buy('{"item": 2, "sent_at": 2}');
-- After the window it is another purchase, whatever the policy's retention says.
SELECT test.let_pass('1 min', 'buy');
SELECT test.buy('{"item": 1, "sent_at": 3}');
SELECT retained_until - created_at AS window FROM test.bought;
DELETE FROM test.bought;

-- The digest of a body that is not JSON; a scope that looks at fields refuses it.
SELECT outcome FROM idem_begin(NULL, scope => 'buy', fingerprint => '\x01', derive => '1 min');
SELECT outcome FROM idem_begin(NULL, scope => 'buy', fingerprint => '\x01', derive => '1 min');
SELECT outcome FROM idem_begin(NULL, scope => 'buy', fingerprint => '\x02', derive => '1 min');
SELECT idem_policy_alter('buy', fingerprint_fields => '{item}');
SELECT outcome FROM idem_begin(NULL, scope => 'buy', fingerprint => '\x01', derive => '1 min');
\echo :SQLSTATE
-- The policy's fields count, and a request without any has no key.
SELECT test.buy('{"item": 1, "cup": 1}'), test.buy('{"item": 1, "cup": 2}');
SELECT outcome FROM idem_begin(NULL, '{"cup": 1}', 'buy', derive => '1 min');
\echo :SQLSTATE
SELECT idem_policy_drop('buy', 'a test');
DELETE FROM test.bought;

-- A key that is given is remembered as ever. A policy that derives has its own window. One that refuses a
-- missing key lets the caller derive it. The ttl is never longer than the window.
SELECT idem_policy_set('buy', on_missing_key => 'error', retention => '10 days');
SELECT outcome FROM idem_begin('given', '{"item": 1}', 'buy', derive => '1 min');
SELECT retained_until - created_at AS window FROM test.bought;
DELETE FROM test.bought;
SELECT outcome FROM idem_begin(NULL, '{"item": 1}', 'buy', ttl => '1 hour', derive => '1 min');
SELECT retained_until - created_at AS window, expires_at = retained_until AS alike FROM test.bought;
DELETE FROM test.bought;
SELECT idem_policy_set('buy', on_missing_key => 'derive', derive_window => '5 min', replace => true, reason => 'a test');
SELECT outcome FROM idem_begin(NULL, '{"item": 1}', 'buy', derive => '1 min');
SELECT retained_until - created_at AS window FROM test.bought;
DELETE FROM test.bought;
SELECT idem_policy_drop('buy', 'a test');

-- The call's window is at most the longer one of the policy's retention and max_ttl.
SELECT idem_policy_set('buy', ttl => '1 hour', max_ttl => '2 hours', retention => '3 hours');
SELECT outcome FROM idem_begin(NULL, '{"item": 1}', 'buy', derive => '10 days');
SELECT retained_until - created_at AS window FROM test.bought;
DELETE FROM test.bought;
SELECT idem_policy_alter('buy', max_ttl => '4 hours');
SELECT outcome FROM idem_begin(NULL, '{"item": 1}', 'buy', derive => '10 days');
SELECT retained_until - created_at AS window FROM test.bought;
DELETE FROM test.bought;
SELECT idem_policy_drop('buy', 'a test');

-- Refused.
SELECT * FROM refused($$
SELECT outcome FROM idem_begin(NULL, scope => 'buy', derive => '1 min');
SELECT outcome FROM idem_begin(NULL, '{}', scope => 'buy', derive => '0');
SELECT outcome FROM idem_begin(NULL, '{}', scope => 'buy', derive => '-1 s');
SELECT outcome FROM idem_begin('given', '{}', scope => 'buy', derive => '1 month 1 s ago');
$$);

-- Arguments left out cost nothing: the planner drops those at the end that say no more than their
-- defaults, and the function puts them back.
EXPLAIN (VERBOSE, COSTS off) SELECT outcome FROM idem_begin('k', '{}', 'buy', hold => false, holder => NULL);
EXPLAIN (VERBOSE, COSTS off) SELECT outcome FROM idem_begin('k', lease => '1 min', hold => true, exclude => NULL);
PREPARE given(text, interval) AS SELECT outcome FROM idem_begin($1, '{}', 'buy', derive => $2);
SET plan_cache_mode = force_generic_plan;
EXPLAIN (VERBOSE, COSTS off) EXECUTE given('k', NULL);
EXECUTE given(NULL, NULL);
EXECUTE given(NULL, '1 min');
EXECUTE given(NULL, '1 min');
SET plan_cache_mode = force_custom_plan;
EXECUTE given('k', NULL);
EXECUTE given(NULL, '1 min');
RESET plan_cache_mode;
DEALLOCATE given;
-- Scope and principal stay, so that a null is refused and does not become the default.
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('k', NULL, NULL, NULL);
SELECT outcome FROM idem_execute('k', 'echo(jsonb)', NULL, 'buy', NULL);
$$);
-- So do they in a view, whose text has them all, and where the call stands in the list.
CREATE VIEW test.begun AS SELECT outcome FROM idem_begin('k', '{}', 'buy', holder => NULL);
SELECT pg_get_viewdef('test.begun') LIKE '%, holder => NULL::text)%' AS whole;
SELECT * FROM test.begun;
SELECT (idem_begin('k', '{}', 'buy')).outcome, (idem_execute('e', 'echo(jsonb)', '{}', 'buy')).outcome AS executed;

DROP VIEW test.begun, test.bought;
DROP FUNCTION test.buy;
DELETE FROM idempotency.record WHERE scope = 'buy';
