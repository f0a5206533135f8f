-- Promise: in a scope with reason_required, no decision of an operator is made without a reason.
\a\pset footer off

CREATE ROLE regress_idem_support;
SELECT idem_grant('regress_idem_support', operator => true);
SELECT idem_policy_set('why/*', reason_required => true, max_attempts => 1);
SELECT option, value, source FROM idem_policy('why/1') WHERE option = 'reason_required';
SELECT count(*) FROM unnest('{a,b,c,d,e}'::text[]) k, idem_begin(k, scope => 'why/1', principal => 'p', lease => '1 hour');
SELECT count(*) FROM unnest('{a,b}'::text[]) k, idem_begin(k, scope => 'free', principal => 'p', lease => '1 hour');
UPDATE idempotency.record SET lease_until = now() WHERE scope IN ('why/1', 'free');

SET SESSION AUTHORIZATION regress_idem_support;
SELECT statement, code, error, detail, hint FROM refused($$
SELECT idem_resolve('a', 'fail', 'why/1', 'p');
SELECT idem_resolve('a', 'complete', 'why/1', 'p', reason => '  ');
SELECT idem_forget('a', 'why/1', 'p');
SELECT idem_erase('a', 'why/1', 'p');
SELECT idem_resolve_idle('a', 'fail', 'why/1', 'p');
$$);
\set VERBOSITY terse
CALL idem_resolve_all('fail', scope => 'why/*');
\echo :SQLSTATE
CALL idem_forget_principal('p');
\echo :SQLSTATE
\set VERBOSITY default
-- A key without a record is no decision.
SELECT idem_erase('none', 'why/1', 'p'), idem_resolve_idle('none', 'fail', 'why/1', 'p');
RESET SESSION AUTHORIZATION;
SELECT key, status, resolved_by FROM idempotency.records WHERE scope = 'why/1' ORDER BY key;

SET SESSION AUTHORIZATION regress_idem_support;
SELECT idem_resolve('a', 'fail', 'why/1', 'p', reason => 'ticket 1'), idem_forget('b', 'why/1', 'p', 'ticket 2'),
       idem_erase('c', 'why/1', 'p', 'ticket 3'), idem_resolve_idle('d', 'fail', 'why/1', 'p', reason => 'ticket 4');
SELECT idem_resolve('a', 'reopen', 'why/1', 'p', reason => 'ticket 5');
CALL idem_resolve_all('fail', 'ticket 6', scope => 'why/*');
-- Other scopes need none.
SELECT idem_resolve('a', 'fail', 'free', 'p');
CALL idem_forget_principal('p', 'ticket 7');
RESET SESSION AUTHORIZATION;

-- Nor is the rule itself given up without one.
SELECT statement, code, error, detail FROM refused($$
SELECT idem_policy_alter('why/*', unset => '{reason_required}');
SELECT idem_policy_drop('why/*');
$$);
SET client_min_messages = error;
SELECT idem_policy_drop('why/*', 'the end'), idem_revoke('regress_idem_support');
DROP ROLE regress_idem_support;
