-- Promise: a record says whether its fingerprint is the caller's. A policy with fields refuses a digest.
-- Fingerprints that can't be compared are a mismatch only for a caller that is about to execute.
\a\pset footer off

SELECT outcome FROM idem_begin('d', scope => 'digests', fingerprint => idem_fingerprint('{"amount": 1, "ts": 1}', 'POST', '/p', '{ts}'));
SELECT fingerprint_of, counted, excluded FROM idempotency.record WHERE scope = 'digests';
-- A digest as documented is the server's own fingerprint, on either side, also where the policy came later.
SELECT outcome FROM idem_begin('d', '{"amount": 1, "ts": 2}', 'digests', method => 'POST', path => '/p', exclude => '{ts}');
SELECT idem_policy_set('digests', exclude_fields => '{trace_id}');
SELECT outcome FROM idem_begin('d', '{"amount": 1, "ts": 2}', 'digests', method => 'POST', path => '/p', exclude => '{ts}');
SELECT idem_policy_drop('digests');
SELECT outcome FROM idem_begin('s', '{"amount": 1}', 'digests', method => 'POST', path => '/p');
SELECT outcome FROM idem_begin('s', scope => 'digests', fingerprint => idem_fingerprint('{"amount": 1}', 'POST', '/p'));
-- Another one is another request to idem_begin, for a first answer must not go to a second request.
SELECT outcome FROM idem_begin('d', '{"amount": 2}', 'digests', method => 'POST', path => '/p', exclude => '{ts}');
SELECT outcome FROM idem_begin('s', scope => 'digests', fingerprint => '\x01');
-- idem_explain can't tell.
SELECT outcome, request, notes FROM idem_explain('d', '{"amount": 2}', 'digests', method => 'POST', path => '/p');
SELECT outcome, request FROM idem_explain('d', '{"amount": 1}', 'digests', method => 'POST', path => '/p');
SELECT outcome, request FROM idem_explain('s', scope => 'digests', fingerprint => '\x01');
-- Two digests are compared as they are.
SELECT outcome, request FROM idem_explain('d', scope => 'digests', fingerprint => '\x01');

-- Refused, before anything is granted, with and without a request or a key.
CREATE FUNCTION test.refused(in_key text, in_request jsonb DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT outcome FROM idem_begin(in_key, in_request, 'digests', fingerprint => '\x01'));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN SQLERRM;
END $$
BEGIN
    RETURN (SELECT outcome FROM idem_begin(in_key, in_request, 'digests', fingerprint => '\x01'));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN SQLERRM;
END $$;
SELECT idem_policy_set('digests', fingerprint_fields => '{amount}');
SELECT test.refused('n'), test.refused('n', '{"amount": 1}'), test.refused(NULL);
SELECT idem_policy_set('digests', exclude_fields => '{trace_id}', replace => true$$
BEGIN
    RETURN (SELECT outcome FROM idem_begin(in_key, in_request, 'digests', fingerprint => '\x01'));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN SQLERRM;
END $$;
SELECT idem_policy_set('digests', fingerprint_fields => '{amount}');
SELECT test.refused('n'), test.refused('n', '{"amount": 1}'), test.refused(NULL);
SELECT idem_policy_set('digests', exclude_fields => '{trace_id}');
SELECT test.refused('n');
SELECT idem_policy_set('digests', on_missing_key => 'derive', replace => true$$
BEGIN
    RETURN (SELECT outcome FROM idem_begin(in_key, in_request, 'digests', fingerprint => '\x01'));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN SQLERRM;
END $$;
SELECT idem_policy_set('digests', fingerprint_fields => '{amount}');
SELECT test.refused('n'), test.refused('n', '{"amount": 1}'), test.refused(NULL);
SELECT idem_policy_set('digests', exclude_fields => '{trace_id}');
SELECT test.refused('n');
SELECT idem_policy_set('digests', on_missing_key => 'derive');
SELECT test.refused('n'), test.refused(NULL);
SELECT outcome FROM idem_execute('n', 'echo(jsonb)', '{}', 'digests', fingerprint => '\x01');
\echo :SQLSTATE
SELECT outcome FROM idem_explain('n', '{}', 'digests', fingerprint => '\x01');
\echo :SQLSTATE
-- A list that leaves nothing out asks for nothing.
SELECT idem_policy_set('digests', exclude_fields => '{}', replace => true$$
BEGIN
    RETURN (SELECT outcome FROM idem_begin(in_key, in_request, 'digests', fingerprint => '\x01'));
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN SQLERRM;
END $$;
SELECT idem_policy_set('digests', fingerprint_fields => '{amount}');
SELECT test.refused('n'), test.refused('n', '{"amount": 1}'), test.refused(NULL);
SELECT idem_policy_set('digests', exclude_fields => '{trace_id}');
SELECT test.refused('n');
SELECT idem_policy_set('digests', on_missing_key => 'derive');
SELECT test.refused('n'), test.refused(NULL);
SELECT outcome FROM idem_execute('n', 'echo(jsonb)', '{}', 'digests', fingerprint => '\x01');
\echo :SQLSTATE
SELECT outcome FROM idem_explain('n', '{}', 'digests', fingerprint => '\x01');
\echo :SQLSTATE
-- A list that leaves nothing out asks for nothing.
SELECT idem_policy_set('digests', exclude_fields => '{}');
SELECT test.refused('n');
DROP FUNCTION test.refused;
DELETE FROM idempotency.record WHERE scope = 'digests';
SELECT idem_policy_drop('digests');
