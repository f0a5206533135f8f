-- Promise: idem_policy_alter changes the named options only, and refuses values that idem_policy_set
-- refuses.
\a\pset footer off

CREATE FUNCTION test.said(pattern text) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_strip_nulls(to_jsonb(p)) - 'scope_pattern' - 'since' - 'role_exists'
      FROM idempotency.policies p WHERE scope_pattern = pattern $$;
CREATE ROLE regress_idem_altered;

SELECT idem_policy_set('alter', ttl => '1 day', retention => '2 days', lease => '1 min', max_attempts => 3,
                       store_request => true, exclude_fields => '{a,b}', allowed_role => 'regress_idem_altered');
SELECT test.said('alter');
-- One of each kind; a list is replaced as a whole.
SELECT idem_policy_alter('alter', lease => '2 min');
SELECT idem_policy_alter('alter', max_attempts => 4, store_request => false, on_lease_expiry => 'unknown',
                         exclude_fields => '{c}');
SELECT test.said('alter');
-- Reset, together with a change of others; options that were open stay open.
SELECT idem_policy_alter('alter', retention => '3 days', unset => '{lease,wait,exclude_fields,allowed_role}', reason => 'a test');
SELECT test.said('alter');
SELECT idem_policy_alter('alter', allowed_role => 'regress_idem_altered', unset => '{}');
-- Nothing named is nothing changed.
SELECT test.said('alter') AS before \gset
SELECT idem_policy_alter('alter');
SELECT test.said('alter') = :'before' AS same;
-- Each option can be set and unset by its name.
DO $$
DECLARE
    option text;
BEGIN
    FOREACH option IN ARRAY (SELECT proargnames[2:cardinality(proargnames) - 2] FROM pg_proc WHERE proname = 'idem_policy_alter') LOOP
        PERFORM idem_policy_alter('alter', unset => ARRAY[option], reason => 'a test');
        IF test.said('alter') ? option THEN RAISE '% is left', option; END IF;
    END LOOP;
END $$;
SELECT test.said('alter');

-- Refused calls, which leave the policy unchanged.
SELECT idem_policy_set('alter', ttl => '1 day', retention => '2 days', retry_cap => '1 min', replace => true, reason => 'a test');
SELECT * FROM refused($$
SELECT idem_policy_alter('alter', unset => '{ttl,tlt}');
SELECT idem_policy_alter('alter', unset => '{scope_pattern}');
SELECT idem_policy_alter('alter', unset => '{since}');
SELECT idem_policy_alter('alter', ttl => '2 days', unset => '{ttl}');
SELECT idem_policy_alter('alter', unset => '{ttl,NULL}');
SELECT idem_policy_alter('alt*', ttl => '1 day');
SELECT idem_policy_alter(NULL, ttl => '1 day');
SELECT idem_policy_alter('alter', lease => '0');
SELECT idem_policy_alter('alter', on_large_body => 'truncate');
SELECT idem_policy_alter('alter', exclude_fields => '{$.}');
SELECT idem_policy_alter('alter', allowed_role => 0);
-- With values that the policy has already.
SELECT idem_policy_alter('alter', ttl => '3 days');
SELECT idem_policy_alter('alter', retry_base => '2 min');
$$);
SELECT idem_policy_alter('alter', ttl => '3 days', unset => '{retention}');
SELECT test.said('alter');

-- The previous memory is stored, as by idem_policy_set.
SELECT idem_policy_set('alter-memory', ttl => '1 hour');
SELECT idem_policy_alter('alter-memory', retention => '7 days');
SELECT memory_before FROM idempotency.policies WHERE scope_pattern = 'alter-memory';
-- A policy that was dropped is none, though a trace of it is left.
SELECT idem_policy_drop('alter-memory', 'a test');
SELECT idem_policy_alter('alter-memory', retention => '7 days');
\echo :SQLSTATE
-- An invalid policy is mended, or refused unchanged.
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_lease_in_range;
UPDATE idempotency.policy SET lease = '0' WHERE scope_pattern = 'alter';
SELECT idem_policy_alter('alter', max_attempts => 2);
\echo :SQLSTATE
SELECT idem_policy_alter('alter', unset => '{lease}');
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_lease_in_range
    CHECK (lease OPERATOR(pg_catalog.>) '0'::interval AND lease OPERATOR(pg_catalog.<=) '36525 days'::interval);
SELECT outcome FROM idem_begin('k', scope => 'alter');
-- A missing role stays missing until it is named again.
SELECT idem_policy_set('alter', allowed_role => 'regress_idem_altered', replace => true, reason => 'a test');
DROP ROLE regress_idem_altered;
SELECT idem_policy_alter('alter', ttl => '1 day');
SELECT test.said('alter');
SELECT outcome FROM idem_begin('k', scope => 'alter');
\echo :SQLSTATE
BEGIN READ ONLY;
SELECT idem_policy_alter('alter', ttl => '1 day');
\echo :SQLSTATE
ROLLBACK;
SELECT idem_policy_drop('alter', 'a test');
DELETE FROM idempotency.record WHERE scope = 'alter';
TRUNCATE idempotency.policy;
DROP FUNCTION test.said;
