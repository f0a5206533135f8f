-- Promise: idem_policy shows the options in force for a scope, as the next call meets them, and their sources.
\a\pset footer off

-- Nothing but settings and defaults.
SELECT * FROM idem_policy('in-force');
-- A setting of this session counts, as it does for its calls.
SET idempotency.default_wait = '2 s';
SET idempotency.default_retention = '3d';
SELECT * FROM idem_policy('in-force') WHERE option IN ('wait', 'retention');

CREATE ROLE regress_idem_teller;
-- A policy: each option that it names is its own, the others are not.
SELECT idem_policy_set('in-*', lease => '90 s', max_attempts => 7);
SELECT idem_policy_set('in-force*', ttl => '7 days', retry_base => '0', store_request => true,
                       on_lease_expiry => 'unknown', on_large_body => 'omit', max_body_bytes => 10,
                       exclude_fields => '{sent_at,"a b"}', drop_headers => '{}', final_errors => '{22,P0002}', error_statuses => '{"22": 400}',
                       allowed_role => 'regress_idem_teller');
SELECT * FROM idem_policy('in-force') WHERE source <> 'default';
SELECT * FROM idem_policy('in-formed') WHERE source = 'policy';
-- A key is remembered as long as its answer is replayed at least, and the one who says that is named.
SELECT * FROM idem_policy('in-force') WHERE option = 'retention';
RESET idempotency.default_wait;
RESET idempotency.default_retention;
-- The values are those that a call meets.
SELECT outcome FROM idem_begin('k', scope => 'in-force');
SELECT (SELECT value::interval FROM idem_policy('in-force') WHERE option = 'ttl') = expires_at - claimed_at AS ttl,
       (SELECT value::interval FROM idem_policy('in-force') WHERE option = 'retention') = retained_until - claimed_at AS retention,
       (SELECT value::interval FROM idem_policy('in-force') WHERE option = 'lease') = lease_us * interval '1 us' AS lease
  FROM idempotency.record WHERE scope = 'in-force';
-- Each option of idem_policy_set is there, once.
SELECT count(*) = count(DISTINCT option) AS once,
       array_agg(option ORDER BY place) = (SELECT proargnames[2:cardinality(proargnames) - 2] FROM pg_proc WHERE proname = 'idem_policy_set') AS all
  FROM idem_policy('in-force') WITH ORDINALITY AS t (option, value, source, origin, place);

-- A missing role closes the scope; the options in force are still shown.
UPDATE idempotency.policy SET allowed_role = 'nobody_there' WHERE scope_pattern = 'in-force*';
SELECT outcome FROM idem_begin('k', scope => 'in-force');
\echo :SQLSTATE
SELECT * FROM idem_policy('in-force') WHERE option = 'allowed_role';
-- A name that can't be a scope, and a scope with an invalid policy.
SELECT * FROM refused($$
SELECT * FROM idem_policy(NULL);
SELECT count(*) FROM idem_policy(repeat('x', 256));
$$);
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_lease_in_range;
UPDATE idempotency.policy SET lease = '0' WHERE scope_pattern = 'in-force*';
SELECT * FROM idem_policy('in-force');
\echo :SQLSTATE
SELECT idem_policy_drop('in-force*', 'a test'), idem_policy_drop('in-*', 'a test');
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_lease_in_range
    CHECK (lease OPERATOR(pg_catalog.>) '0'::interval AND lease OPERATOR(pg_catalog.<=) '36525 days'::interval);

-- For operators.
SELECT idem_grant('regress_idem_teller');
SET ROLE regress_idem_teller;
SELECT count(*) FROM idem_policy('in-force');
\echo :SQLSTATE
RESET ROLE;
SELECT idem_grant('regress_idem_teller', operator => true);
SET ROLE regress_idem_teller;
SELECT count(*) > 10 AS told FROM idem_policy('in-force');
-- Also where nothing may be written.
BEGIN READ ONLY;
SELECT count(*) > 10 AS told FROM idem_policy('in-force');
COMMIT;
RESET ROLE;
SELECT idem_revoke('regress_idem_teller');
DROP ROLE regress_idem_teller;
DELETE FROM idempotency.record WHERE scope = 'in-force';
