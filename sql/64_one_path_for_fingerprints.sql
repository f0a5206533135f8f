-- Promise: where the server sees a request, it takes its fingerprint, method and path included, by
-- the policy's fields and the call's. It names fingerprints that it can't compare.
\a\pset footer off

-- Method and path count, as in idem_fingerprint: the same bytes as a client's.
SELECT outcome FROM idem_begin('k', '{"amount": 1}', 'prints', method => 'POST', path => '/payments');
SELECT fingerprint = idem_fingerprint('{"amount": 1.0}', 'POST', '/payments') AS as_documented, fingerprint_of
  FROM idempotency.record WHERE scope = 'prints';
SELECT idem_complete('k', 201, 'made', scope => 'prints', token => token) FROM idempotency.record WHERE scope = 'prints';
SELECT outcome FROM idem_begin('k', '{"amount": 1.0}', 'prints', method => 'POST', path => '/payments');
SELECT outcome FROM idem_begin('k', '{"amount": 2}', 'prints', method => 'POST', path => '/payments');
SELECT outcome FROM idem_begin('k', '{"amount": 1}', 'prints', method => 'POST', path => '/refunds');
SELECT outcome FROM idem_begin('k', '{"amount": 1}', 'prints', method => 'PATCH', path => '/payments');
SELECT outcome FROM idem_begin('k', '{"amount": 1}', 'prints');
-- Without a body they are the request.
SELECT outcome FROM idem_begin('bare', scope => 'prints', method => 'POST', path => '/orders/7/cancel');
SELECT outcome FROM idem_begin('bare', scope => 'prints', method => 'POST', path => '/orders/7/cancel');
SELECT outcome FROM idem_begin('bare', scope => 'prints', method => 'POST', path => '/orders/8/cancel');
SELECT idem_policy_set('prints', fingerprint_required => true);
SELECT outcome FROM idem_begin('bare', scope => 'prints', method => 'POST', path => '/orders/7/cancel');
SELECT idem_policy_drop('prints');

-- The call's exclude and the policy's are one list.
SELECT idem_policy_set('prints', exclude_fields => '{trace_id}');
SELECT outcome FROM idem_begin('u', '{"amount": 1, "trace_id": "a", "ts": 1}', 'prints', method => 'POST', path => '/p', exclude => '{ts}');
SELECT excluded FROM idempotency.record WHERE scope = 'prints' AND key = 'u';
SELECT outcome FROM idem_begin('u', '{"amount": 1, "trace_id": "b", "ts": 2}', 'prints', method => 'POST', path => '/p', exclude => '{ts}');
SELECT outcome FROM idem_begin('u', '{"amount": 2, "trace_id": "b", "ts": 2}', 'prints', method => 'POST', path => '/p', exclude => '{ts}');
-- A caller that leaves out less is judged by the record's own rule.
SELECT outcome FROM idem_begin('u', '{"amount": 1, "trace_id": "b", "ts": 2}', 'prints', method => 'POST', path => '/p');
SELECT idem_policy_drop('prints');
SELECT outcome FROM idem_begin('u', '{"amount": 1, "trace_id": "b", "ts": 2}', 'prints', method => 'POST', path => '/p');
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('x', '{"amount": 1}', 'prints', exclude => '{a,NULL}');
SELECT outcome FROM idem_begin('x', '{"amount": 1}', 'prints', exclude => '{a.b}');
$$);
SELECT idem_policy_set('prints', exclude_fields => '{trace_id}');
SELECT * FROM refused($$
SELECT outcome FROM idem_begin('x', '{"amount": 1}', 'prints', exclude => '{a,NULL}');
SELECT outcome FROM idem_begin('x', '{"amount": 1}', 'prints', exclude => (SELECT array_agg('f' || i) FROM generate_series(1, 1000) i));
$$);
SELECT outcome FROM idem_begin('x', '{"amount": 1}', 'prints', exclude => '{}');
-- fingerprint_fields, with method and path.
SELECT idem_policy_set('prints', fingerprint_fields => '{amount}', replace => true);
SELECT outcome FROM idem_begin('f', '{"amount": 1, "new": 1}', 'prints', method => 'POST', path => '/p');
SELECT outcome FROM idem_begin('f', '{"amount": 1, "new": 2}', 'prints', method => 'POST', path => '/p');
SELECT outcome FROM idem_begin('f', '{"amount": 2, "new": 2}', 'prints', method => 'POST', path => '/p');

-- idem_execute likewise.
CREATE FUNCTION test.prints(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
SELECT outcome FROM idem_execute('e', 'test.prints(jsonb)', '{"amount": 1, "new": 1}', 'prints', method => 'POST', path => '/p');
SELECT outcome FROM idem_execute('e', 'test.prints(jsonb)', '{"amount": 1, "new": 2}', 'prints', method => 'POST', path => '/p');
SELECT outcome FROM idem_execute('e', 'test.prints(jsonb)', '{"amount": 1, "new": 2}', 'prints', method => 'POST', path => '/q');
DROP FUNCTION test.prints(jsonb);

-- idem_explain agrees with idem_begin.
SELECT outcome, request FROM idem_explain('f', '{"amount": 1, "new": 3}', 'prints', method => 'POST', path => '/p');
SELECT outcome, request FROM idem_explain('f', '{"amount": 2}', 'prints', method => 'POST', path => '/p');
-- Without method and path there is nothing to compare; where the request is stored, its fields are.
SELECT outcome, request, notes FROM idem_explain('f', '{"amount": 1, "new": 3}', 'prints');
SELECT idem_policy_set('prints', store_request => true, replace => true);
SELECT outcome FROM idem_begin('s', '{"amount": 1}', 'prints', method => 'POST', path => '/p');
SELECT outcome, request FROM idem_explain('s', '{"amount": 1}', 'prints');
SELECT outcome, request FROM idem_explain('s', '{"amount": 2}', 'prints');
SELECT outcome, request FROM idem_explain('s', '{"amount": 2}', 'prints', method => 'POST', path => '/p');
SELECT idem_policy_drop('prints');

-- A derived key is made of all that counts.
SELECT idem_policy_set('prints', on_missing_key => 'derive', exclude_fields => '{trace_id}');
SELECT outcome, key FROM idem_begin(NULL, '{"amount": 1, "trace_id": 1, "ts": 1}', 'prints', 'mira', method => 'POST', path => '/p', exclude => '{ts}') \gset
SELECT :'outcome' AS outcome, :'key' = encode(idem_fingerprint(to_jsonb(encode(idem_fingerprint('{"amount": 1}', 'POST', '/p'), 'hex')), 'mira', 'prints'), 'hex') AS as_documented;
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, '{"amount": 1, "trace_id": 2, "ts": 2}', 'prints', 'mira', method => 'POST', path => '/p', exclude => '{ts}');
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, '{"amount": 1}', 'prints', 'mira', method => 'POST', path => '/q');
SELECT outcome, key = :'key' AS same FROM idem_begin(NULL, NULL, 'prints', 'mira', method => 'POST', path => '/p');
SELECT outcome FROM idem_begin(NULL, NULL, 'prints', 'mira');
\echo :SQLSTATE
DELETE FROM idempotency.record WHERE scope = 'prints';
SELECT idem_policy_drop('prints');
