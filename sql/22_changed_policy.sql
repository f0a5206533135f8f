-- Promise: a record knows the rule of its fingerprint. After a change of the excluded fields, a repeat of
-- an older request is no mismatch, and another request is no repeat.
\a\pset footer off

CREATE FUNCTION test.asked(key text, request jsonb) RETURNS text LANGUAGE sql AS
    $$SELECT outcome FROM idem_begin(key, request, 'rules')$$;
CREATE FUNCTION test.done(key text, request jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    told text := test.asked(key, request);
BEGIN
    PERFORM idem_complete(key, 200, 'done', scope => 'rules');
    RETURN told;
END $$;
CREATE VIEW test.rules AS
    SELECT key, status, attempt, excluded, request FROM idempotency.record WHERE scope = 'rules' ORDER BY key;

-- From no field to one: this field distinguished earlier requests, and still does.
SELECT test.done('none', '{"amount": 1, "trace": "a"}');
SELECT idem_policy_set('rules', exclude_fields => '{trace}');
SELECT test.asked('none', '{"amount": 1, "trace": "a"}') AS as_before, test.asked('none', '{"trace": "a", "amount": 1.0}') AS notation,
       test.asked('none', '{"amount": 1, "trace": "b"}') AS other_trace, test.asked('none', '{"amount": 2, "trace": "a"}') AS other_amount;
-- From one to others: fields left out then do not count, fields left out now did count.
SELECT test.done('one', '{"amount": 1, "trace": "a", "sent": 1}');
SELECT idem_policy_set('rules', exclude_fields => '{sent}', replace => true);
SELECT test.asked('one', '{"amount": 1, "trace": "b", "sent": 1}') AS other_trace, test.asked('one', '{"amount": 1, "sent": 1}') AS without,
       test.asked('one', '{"amount": 1, "trace": "a", "sent": 2}') AS other_sent, test.asked('one', '{"amount": 2, "trace": "a", "sent": 1}') AS other_amount;
-- Requests that the current policy calls the same are the same: no field was there that counted only then.
SELECT test.asked('one', '{"amount": 1, "sent": 1}') AS by_both, test.asked('none', '{"amount": 1, "trace": "a", "sent": 1}') AS by_the_present_one;
-- From one to none.
SELECT test.done('two', '{"amount": 1, "sent": 1}');
SELECT idem_policy_drop('rules');
SELECT test.asked('two', '{"amount": 1, "sent": 2}') AS other_sent, test.asked('two', '{"amount": 2, "sent": 1}') AS other_amount,
       test.asked('one', '{"amount": 1, "trace": "b", "sent": 1}') AS older, test.asked('none', '{"amount": 1, "trace": "a"}') AS oldest;
SELECT * FROM test.rules;

-- A caller's own fingerprint follows no rule of ours, on neither side. It is compared with what the
-- server makes of all fields, and with what it makes of those of now.
SELECT outcome FROM idem_begin('own', scope => 'rules', fingerprint => idem_fingerprint('{"amount": 1}'));
SELECT idem_policy_set('rules', exclude_fields => '{trace}');
SELECT test.asked('own', '{"amount": 1}') AS by_all, test.asked('own', '{"amount": 1, "trace": "a"}') AS by_the_present_rule,
       test.asked('own', '{"amount": 2}') AS other_amount;
SELECT idem_policy_drop('rules');
SELECT outcome FROM idem_begin('one', scope => 'rules', fingerprint => idem_fingerprint('{"amount": 1, "sent": 1}'));
SELECT outcome FROM idem_begin('one', scope => 'rules', fingerprint => idem_fingerprint('{"amount": 1, "trace": "b", "sent": 1}'));
SELECT outcome FROM idem_begin('one', scope => 'rules');
SELECT idem_policy_set('rules', exclude_fields => '{sent}');

-- An attempt is recorded by the rule of its own request; without one it goes by what is there. Within
-- the transaction of a claim the rule counts as well.
SELECT test.asked('again', '{"amount": 1, "trace": "a", "sent": 1}');
SELECT idem_fail('again', 'down', retryable => true, scope => 'rules', token => token, retry_after => '0') FROM idempotency.record WHERE scope = 'rules' AND key = 'again';
SELECT idem_policy_set('rules', exclude_fields => '{trace,sent}', replace => true);
BEGIN;
SELECT test.asked('again', '{"amount": 1, "trace": "b", "sent": 1}') AS other_trace_and_counted_sent;
SELECT test.asked('again', '{"amount": 1, "trace": "a", "sent": 2}') AS other_sent;
SELECT idem_policy_set('rules', replace => true);
SELECT test.asked('again', '{"amount": 1, "trace": "c", "sent": 3}') AS its_own_rule, test.asked('again', '{"amount": 2}') AS other_amount;
SELECT idem_fail('again', 'down', retryable => true, scope => 'rules', retry_after => '0');
COMMIT;
SELECT key, status, attempt, excluded FROM test.rules WHERE key IN ('again', 'own');
SELECT outcome, attempt FROM idem_begin('again', scope => 'rules');
SELECT key, status, attempt, excluded FROM test.rules WHERE key = 'again';
SELECT test.asked('again', '{"amount": 1, "trace": "d"}') AS same, test.asked('again', '{"amount": 2}') AS other_amount;

SELECT idem_policy_drop('rules');
DROP VIEW test.rules;
DROP FUNCTION test.asked, test.done;
