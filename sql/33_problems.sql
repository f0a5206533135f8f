-- Promise: idem_problem has a document for each outcome that is not an answer, and only for those. A
-- failure without a status of its own is sent as one.
\a\pset footer off

-- A record that has ended is no problem, for any caller and function.
SELECT outcome, token FROM idem_begin('done', scope => 'problem') \gset
SELECT idem_problem(idem_get('done', 'problem')) ->> 'type' AS while_open;
SELECT idem_complete('done', 201, 'made', scope => 'problem', token => :token);
SELECT idem_problem(idem_get('done', 'problem')) IS NULL AS looked_at, idem_problem(c) IS NULL AS replayed
  FROM idem_begin('done', scope => 'problem') c;
SELECT token FROM idem_begin('bare', scope => 'problem') \gset
SELECT idem_complete('bare', scope => 'problem', token => :token);
SELECT idem_problem(idem_get('bare', 'problem')) IS NULL AS looked_at, idem_problem(c) IS NULL AS replayed
  FROM idem_begin('bare', scope => 'problem') c;
SELECT token FROM idem_begin('declined', scope => 'problem') \gset
SELECT idem_fail('declined', 'declined', status_code => 402, body => 'declined', scope => 'problem', token => :token);
SELECT idem_problem(idem_get('declined', 'problem')) IS NULL AS looked_at, idem_problem(c) IS NULL AS replayed
  FROM idem_begin('declined', scope => 'problem') c;

-- A failure without a status of its own is a 500 for every caller, the first included.
SELECT token FROM idem_begin('failed', scope => 'problem', fingerprint => '\x02') \gset
SELECT idem_fail('failed', 'secret detail', scope => 'problem', token => :token);
SELECT outcome, status, status_code, idem_problem(c) = idem_problem(idem_get('failed', 'problem')) AS same, jsonb_pretty(idem_problem(c)) AS problem
  FROM idem_begin('failed', scope => 'problem') c;
CREATE FUNCTION test.fails(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
SELECT outcome, status, status_code, idem_problem(c) ->> 'status' AS problem FROM idem_execute('executed', 'test.fails(jsonb)', '{}', 'problem') c;
SELECT outcome, status, status_code, idem_problem(c) ->> 'status' AS problem FROM idem_execute('executed', 'test.fails(jsonb)', '{}', 'problem') c;
SELECT idem_problem(c) ->> 'type' AS type FROM idem_begin('failed', '{}', 'problem', fingerprint => '\x01') c;

-- A look has the document that a repeat would get.
SELECT token FROM idem_begin('later', scope => 'problem', fingerprint => '\x02') \gset
SELECT idem_fail('later', 'down', true, scope => 'problem', token => :token, retry_after => '1 hour');
SELECT idem_problem(idem_get('later', 'problem')) ->> 'type' AS retryable;
SELECT idem_problem(jsonb_populate_record(idem_get('later', 'problem'), '{"outcome": ""}')) ->> 'type' AS empty_outcome;
SELECT idem_policy_set('problem-unknown', on_lease_expiry => 'unknown');
SELECT outcome FROM idem_begin('lost', scope => 'problem-unknown', lease => '1 hour');
SELECT idem_problem(idem_get('lost', 'problem-unknown')) ->> 'type' AS in_progress;
SELECT test.let_pass('2 hours', 'problem-unknown');
SELECT idem_problem(idem_get('lost', 'problem-unknown')) ->> 'type' AS unknown;
SELECT idem_policy_drop('problem-unknown', 'a test');

-- The error of the last attempt is shown to callers that may retry later, and to those that may not.
SELECT outcome, error FROM idem_begin('later', scope => 'problem');
SELECT idem_policy_set('problem', max_attempts => 1);
SELECT outcome, error, recovery_point IS NULL AND token IS NULL AS nothing_else FROM idem_begin('later', scope => 'problem');
SELECT outcome, error FROM idem_begin('later', '{}', 'problem', fingerprint => '\x01');
SELECT idem_policy_drop('problem');

-- By the word as well: for callers that have only the outcome.
SELECT word, idem_problem(word) ->> 'status' AS status, idem_http_status(word), idem_problem(word) ->> 'type' AS type
  FROM unnest('{execute,replay,in_progress,mismatch,expired,retry_later,exhausted,unknown,failed,missing_key,bad_key}'::text[]) word;
SELECT idem_problem('mismatch') = idem_problem(jsonb_populate_record(NULL::idem_claim, '{"outcome": "mismatch"}')) AS same;
-- Of nothing there is nothing to say: a record that is not there is no missing key.
SELECT idem_problem(NULL) IS NULL AS none, idem_problem(NULL::idem_claim) IS NULL AS no_claim,
       idem_problem(idem_get('absent', 'problem')) IS NULL AS no_record, idem_problem(c) IS NULL AS no_record_as_row
  FROM idem_get('absent', 'problem') c;
SELECT idem_problem('completed');
\echo :SQLSTATE

-- A pause of any length is given in whole seconds, rounded up.
SELECT pause, idem_problem(jsonb_populate_record(NULL::idem_claim,
           jsonb_build_object('outcome', 'retry_later', 'retry_after', pause))) -> 'retry_after' AS retry_after
  FROM unnest('{0.000001,1,1.000001,3155760000,1e12,1e300,Infinity,-Infinity,NaN,-1,0}'::text[]) pause;

DROP FUNCTION test.fails;
