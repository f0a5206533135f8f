-- Promise: idem_once is true the first time and false after. While the result is not certain, it returns
-- neither.
\a\pset footer off
-- A wait that should not be there ends as an error.
SET statement_timeout = '30 s';

SELECT idem_once('msg-1', 'once');
SELECT idem_once('msg-1', 'once');
SELECT idem_once('msg-1', 'once', 'shop'), idem_once('msg-1', 'once', 'shop');
SELECT test.seen(c) FROM idem_begin('msg-1', scope => 'once') c;

-- Within one transaction, and gone with a rollback of the transaction or of a savepoint.
BEGIN;
SELECT idem_once('msg-2', 'once'), idem_once('msg-2', 'once');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idem_once('msg-2', 'once');
ROLLBACK TO s;
SELECT idem_once('msg-2', 'once');
COMMIT;
SELECT idem_once('msg-2', 'once');

-- There is no claim to end, nor has there been one.
BEGIN;
SELECT idem_once('msg-2a', 'once');
SELECT idem_complete('msg-2a', scope => 'once');
ROLLBACK;

-- Each message takes effect once, however often it is delivered.
SELECT message, idem_once(message, 'once-list') FROM unnest('{a,b,a,c,b,a}'::text[]) message;
SELECT message, idem_once(message, 'once-list') FROM unnest('{c,d}'::text[]) message;

-- The ttl, and a new generation after it.
SELECT idem_once('msg-3', 'once-old', ttl => '1 hour');
SELECT expires_at - claimed_at AS ttl FROM idempotency.records WHERE scope = 'once-old';
SELECT test.let_pass('59 min', 'once-old');
SELECT idem_once('msg-3', 'once-old', ttl => '1 hour');
SELECT test.let_pass('1 min', 'once-old');
SELECT idem_once('msg-3', 'once-old', ttl => '1 hour');
-- Between ttl and retention it has been seen.
SELECT idem_policy_set('once-kept', ttl => '1 hour', retention => '2 hours');
SELECT idem_once('msg-3', 'once-kept');
SELECT test.let_pass('1 hour', 'once-kept');
SELECT idem_once('msg-3', 'once-kept');
SELECT idem_policy_drop('once-kept');

-- A failed request has been dealt with, too.
BEGIN;
SELECT outcome FROM idem_begin('msg-4', scope => 'once');
SELECT idem_fail('msg-4', 'bad message', scope => 'once');
COMMIT;
SELECT idem_once('msg-4', 'once');

-- While another claim lives neither answer would be right: it waits, and then says so.
SELECT token FROM idem_begin('msg-5', scope => 'once') \gset
SELECT * FROM refused($$
SELECT idem_once('msg-5', 'once', wait => '0');
SELECT idem_once('msg-5', 'once', wait => '20 ms');
$$);
SELECT idem_complete('msg-5', scope => 'once', token => :token);
SELECT idem_once('msg-5', 'once');
-- A claim with an expired lease is taken over.
SELECT outcome FROM idem_begin('msg-6', scope => 'once');
SELECT test.let_pass('1 hour', 'once');
SELECT idem_once('msg-6', 'once'), idem_once('msg-6', 'once');

-- It does not wait for the transaction that it runs in.
BEGIN;
SELECT outcome FROM idem_begin('msg-7', scope => 'once');
SELECT idem_once('msg-7', 'once');
\echo :SQLSTATE
ROLLBACK;

-- To be tried again later, or by an operator's decision only.
SELECT token FROM idem_begin('msg-8', scope => 'once') \gset
SELECT idem_fail('msg-8', 'down', true, scope => 'once', token => :token, retry_after => '1 hour');
\set VERBOSITY sqlstate
SELECT idem_once('msg-8', 'once', wait => '0');
\set VERBOSITY default
SELECT idem_policy_set('once', max_attempts => 1);
SELECT idem_once('msg-8', 'once');
\echo :SQLSTATE
SELECT idem_policy_set('once', on_lease_expiry => 'unknown', replace => true);
SELECT outcome FROM idem_begin('msg-9', scope => 'once');
SELECT test.let_pass('1 hour', 'once');
SELECT idem_once('msg-9', 'once');
\echo :SQLSTATE
SELECT idem_policy_drop('once', 'a test');
-- The retry that is due is made.
SELECT idem_once('msg-8', 'once'), idem_once('msg-8', 'once');

-- A message has no payload to compare, so no policy asks for one.
SELECT idem_policy_set('once', fingerprint_required => true);
SELECT idem_once('msg-10', 'once'), idem_once('msg-10', 'once');
SELECT idem_policy_drop('once', 'a test');

-- It has to have a key, even where one may be generated.
\set VERBOSITY terse
SELECT idem_once(NULL, 'once');
\echo :SQLSTATE
