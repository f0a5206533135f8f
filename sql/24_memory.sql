-- Promise: a request that says when it was first sent is executed only if its key cannot have been
-- forgotten since. It is compared with the shortest memory that the key can have had in all that time,
-- after any change of policies, arguments and settings.
\a\pset footer off
-- The outcome of a request of some age, each with a new key.
CREATE FUNCTION test.told(in_scope text, VARIADIC ages interval[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT string_agg(c.outcome, ' ' ORDER BY n)
              FROM unnest(ages) WITH ORDINALITY a (age, n),
                   idem_begin(gen_random_uuid()::text, scope => in_scope, first_sent => clock_timestamp() - age) c);
END $$;
-- Makes policies as old as that.
CREATE FUNCTION test.let_policies_age(age interval) RETURNS void LANGUAGE sql
    AS $$UPDATE idempotency.policy SET since = since - age$$;
CREATE VIEW test.history AS
SELECT scope_pattern, ttl, memory_before, since > now() AS counts_from_now, dropped FROM idempotency.policy
 ORDER BY scope_pattern;

-- It grows: refused requests stay refused, and requests sent from now on are judged by the new memory.
SELECT idem_policy_set('memory*', ttl => '1 hour');
SELECT test.told('memory/1', '59 min', '61 min', '23 h', '25 h');
SELECT idem_policy_set('memory*', ttl => '1 day', replace => true);
SELECT test.told('memory/1', '59 min', '61 min', '23 h', '25 h');
SELECT * FROM test.history;
-- Two hours later: requests sent before the change are refused, later ones are not.
SELECT test.let_policies_age('2 hours');
SELECT test.told('memory/1', '59 min', '110 min', '121 min', '23 h');
-- It grows again, before the first change has taken full effect: the shortest counts.
SELECT idem_policy_set('memory*', ttl => '1 week', replace => true);
SELECT test.told('memory/1', '59 min', '61 min', '25 h');
SELECT * FROM test.history;
-- Other changes, and a shorter memory, do not restart the period.
SELECT test.let_policies_age('2 hours');
SELECT idem_policy_set('memory*', ttl => '1 week', lease => '1 min', replace => true);
SELECT idem_policy_set('memory*', ttl => '3 days', retention => '4 days', replace => true);
SELECT test.told('memory/1', '59 min', '110 min', '121 min');
SELECT * FROM test.history;
-- In the end the past no longer matters, and is forgotten with the next change.
SELECT test.let_policies_age('4 days');
SELECT test.told('memory/1', '61 min', '95 h', '97 h');
SELECT idem_policy_set('memory*', ttl => '4 days', replace => true);
SELECT * FROM test.history;
-- A change that is rolled back has not been.
BEGIN;
SELECT idem_policy_set('memory*', ttl => '1 min', replace => true);
SELECT idem_policy_set('memory*', ttl => '4 days', replace => true);
SELECT test.told('memory/1', '2 min');
ROLLBACK;
SELECT test.told('memory/1', '2 min');

-- A policy for some scopes of another: they had the other one's memory before.
SELECT idem_policy_set('memory/long', ttl => '1 year');
SELECT idem_policy_set('memory/short*', ttl => '1 hour');
SELECT test.told('memory/long', '95 h', '97 h'), test.told('memory/short', '59 min', '61 min');
SELECT * FROM test.history;
-- When it is dropped they have the other one's again, and what they had before counts on: under any
-- policy that covers them.
SELECT idem_policy_drop('memory/long'), idem_policy_drop('memory/short*'), idem_policy_drop('memory/short*');
SELECT test.told('memory/long', '95 h', '97 h'), test.told('memory/short', '59 min', '61 min'), test.told('memory/1', '61 min');
SELECT * FROM test.history;
SELECT scope_pattern FROM idempotency.policies ORDER BY 1;
SELECT idem_policy_set('memory/short/not', ttl => '1 year');
SELECT test.told('memory/short/not', '59 min', '61 min');
SELECT idem_policy_drop('memory/short/not');
SELECT idem_policy_set('memory/short*', ttl => '1 month');
SELECT test.told('memory/short', '59 min', '61 min');
SELECT idem_policy_drop('memory/short*');
SELECT test.let_policies_age('5 days');
SELECT test.told('memory/short', '61 min', '95 h', '97 h');
-- Memories that no longer matter are removed with the next change of any policy.
SELECT idem_policy_alter('memory*', lease => '1 min');
SELECT * FROM test.history;
-- Without any policy, the settings apply before and after.
SELECT idem_policy_drop('memory*');
SELECT * FROM test.history;
SELECT test.told('memory/1', '23 h', '25 h');
SELECT idem_policy_set('memory*', ttl => '4 days');
SELECT test.told('memory/1', '23 h', '25 h');
SELECT idem_policy_drop('memory*'), count(*) FROM idempotency.policy;
SELECT idem_policy_set('memory*', ttl => '1 min', retention => '1 hour');
SELECT idem_policy_drop('memory*');
SELECT test.told('memory/1', '59 min', '61 min');
DELETE FROM idempotency.policy;

-- Arguments: the call's own ttl may shorten the compared memory, and never lengthens it.
SELECT outcome FROM idem_begin('a', scope => 'memory', ttl => '1 hour', first_sent => now() - interval '61 min');
SELECT outcome FROM idem_begin('b', scope => 'memory', ttl => '1 week', first_sent => now() - interval '25 h');
SELECT outcome FROM idem_begin('c', scope => 'memory', ttl => '1 week', first_sent => now() - interval '23 h');
SELECT retained_until - claimed_at AS remembered FROM idempotency.records WHERE (scope, key) = ('memory', 'c');
-- A record that is over and still there tells for certain, whatever a repeat asks for.
SELECT token, clock_timestamp() AS sent FROM idem_begin('short', scope => 'memory', ttl => '1 min') \gset
SELECT idem_complete('short', scope => 'memory', token => :token);
SELECT test.let_pass('2 min', 'memory');
SELECT outcome FROM idem_begin('short', scope => 'memory', ttl => '1 h', first_sent => :'sent'::timestamptz - interval '2 min 1 s');
SELECT outcome FROM idem_begin('short', scope => 'memory', ttl => '1 h', first_sent => :'sent'::timestamptz);

-- Values of the memory are checked like other values.
\set VERBOSITY terse
INSERT INTO idempotency.policy (scope_pattern, since) VALUES ('memory', now());
INSERT INTO idempotency.policy (scope_pattern, since, memory_before) VALUES ('memory', now(), '0');
INSERT INTO idempotency.policy (scope_pattern, since, memory_before) VALUES ('memory', now(), '36526 days');
INSERT INTO idempotency.policy (scope_pattern, dropped) VALUES ('memory', true);
DELETE FROM idempotency.record WHERE scope LIKE 'memory%';
DROP VIEW test.history;
DROP FUNCTION test.told, test.let_policies_age;
