-- Promise: a change that takes protection from records says what it weakens, and needs a reason: by set,
-- alter or drop, and by a more specific pattern, which takes scopes from the policy around it.
\a\pset footer off

CREATE ROLE regress_guard;
CREATE ROLE regress_other;
SELECT idem_policy_set('pay/*', ttl => '1 day', retention => '30 days', principal_required => true, on_lease_expiry => 'unknown',
                       allowed_role => 'regress_guard', transactional_only => true, max_attempts => 3);
SELECT idem_policy_set('weak', ttl => '1 day', principal_required => false, on_lease_expiry => 'takeover');
SELECT test.stored() AS before \gset
SELECT * FROM refused($$
SELECT idem_policy_set('pay/*', max_attempts => 3, replace => true);
SELECT idem_policy_set('pay/*', max_attempts => 3, replace => true, reason => '  ');
SELECT idem_policy_alter('pay/*', retention => '29 days');
SELECT idem_policy_alter('pay/*', unset => '{retention}');
SELECT idem_policy_alter('pay/*', principal_required => false);
SELECT idem_policy_alter('pay/*', on_lease_expiry => 'takeover');
SELECT idem_policy_alter('pay/*', allowed_role => 'regress_other');
SELECT idem_policy_alter('pay/*', unset => '{allowed_role,transactional_only}');
SELECT idem_policy_drop('pay/*');
-- A more specific one, within a prefix, too; several at once are all named.
SELECT idem_policy_set('pay/refund', retention => '30 days', on_lease_expiry => 'unknown', transactional_only => true, allowed_role => 'regress_guard');
SELECT idem_policy_set('pay/r*', max_attempts => 1);
SELECT idem_policy_set('pay/refund', ttl => '60 days', retention => '60 days');
$$);
SELECT test.stored() = :'before' AS same;

-- What weakens nothing needs no reason: the same, stronger, what the policy leaves open, and other scopes.
BEGIN;
SELECT idem_policy_alter('pay/*', ttl => '2 days', lease => '1 min', retention => '31 days', max_attempts => 100);
SELECT idem_policy_alter('pay/*', ttl => '40 days', retention => '40 days');
SELECT idem_policy_set('pay/refund', ttl => '1 day', retention => '2400 hours', principal_required => true, on_lease_expiry => 'unknown',
                       allowed_role => 'regress_guard', transactional_only => true, encrypt => false);
SELECT idem_policy_alter('weak', unset => '{ttl,principal_required,on_lease_expiry}'), idem_policy_drop('weak');
SELECT idem_policy_set('pay', ttl => '1 hour'), idem_policy_set('*', ttl => '1 hour'), idem_policy_drop('*');
ROLLBACK;

-- With a reason it is done and said. Where a dropped policy had a wider one around it, that counts.
SELECT idem_policy_set('pay/refund', retention => '7 days', principal_required => true, reason => 'refunds are no secret');
SELECT idem_policy_alter('pay/refund', retention => '6 days', principal_required => false, reason => 'the bank forgets');
SELECT idem_policy_drop('pay/refund');
SELECT idem_policy_set('*', retention => '10 days', transactional_only => true);
SELECT idem_policy_drop('pay/*', 'moved');
SELECT action, scope, reason FROM idempotency.decisions WHERE reason IS NOT NULL ORDER BY decided_at;
SELECT scope_pattern FROM idempotency.policies ORDER BY 1;

-- A transaction that rolls back has said so.
BEGIN;
SELECT idem_policy_alter('*', transactional_only => false, reason => 'a test');
ROLLBACK;
-- An invalid row can be mended.
ALTER TABLE idempotency.policy DROP CONSTRAINT policy_on_lease_expiry_known;
UPDATE idempotency.policy SET on_lease_expiry = 'maybe' WHERE scope_pattern = '*';
SELECT idem_policy_alter('*', on_lease_expiry => 'unknown');
SELECT idem_policy_drop('*', 'done');
ALTER TABLE idempotency.policy ADD CONSTRAINT policy_on_lease_expiry_known
    CHECK (on_lease_expiry OPERATOR(pg_catalog.=) ANY ('{takeover,unknown}'::text[]));

TRUNCATE idempotency.policy, idempotency.audit;
DROP ROLE regress_guard, regress_other;
