-- Promise: a path without its "$." is refused, wherever fields are named. A member with such a name is
-- written in quotes, with the escapes of JSON.
\a\pset footer off

CREATE FUNCTION test.taken(entry text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_policy_set('names', exclude_fields => ARRAY[entry], replace => true);
    PERFORM idem_policy_alter('names', exclude_fields => ARRAY[entry]);
    PERFORM idem_policy_set('names', fingerprint_fields => ARRAY[entry], replace => true);
    PERFORM idem_fingerprint('{}', exclude => ARRAY[entry]);
    PERFORM idem_fingerprint('{}', fields => ARRAY[entry]);
    PERFORM idem_begin('names', '{}', 'names-free', exclude => ARRAY[entry]);
    RETURN 'taken';
EXCEPTION WHEN invalid_parameter_value THEN
    RETURN 'refused';
END $$;
SELECT entry, test.taken(entry) FROM (VALUES
    ('payment.amount'), ('a[*]'), ('a[0]'), ('a]'), ('*'), ('a*'), ('  a'), ('a '), (' '), ('a"b'), ('"a'), ('a"'), ('"a"b"'), ('"a\x"'),
    ('"\u0000"'), ('"\ud83d"'), ('"\u12"'), (''),
    ('"payment.amount"'), ('"a[*]"'), ('"*"'), ('"  a"'), ('"a\"b"'), ('"$.a"'), ('""'), ('"\ud83d\ude00"'), ('a b'), ('$.a.b'), ('a$')) v (entry);
-- Each place refuses by itself.
SELECT * FROM refused($$
SELECT idem_policy_set('names', fingerprint_fields => '{payment.amount,currency}');
SELECT idem_policy_alter('names', exclude_fields => '{ok,"a[*]"}');
SELECT idem_fingerprint('{}', fields => '{"  a"}');
SELECT outcome FROM idem_begin('k', '{}', 'names-free', exclude => '{*}');
$$);
-- Also in a row written by hand.
UPDATE idempotency.policy SET fingerprint_fields = '{payment.amount}' WHERE scope_pattern = 'names';
SELECT outcome FROM idem_begin('k', '{}', 'names');
\echo :SQLSTATE
SELECT idem_policy_drop('names');

-- A name in quotes is that member at every depth, letter case ignored as without them.
SELECT entry, idem_fingerprint(request::jsonb, exclude => ARRAY[entry]) = idem_fingerprint(rest::jsonb) AS as_rest FROM (VALUES
    ('"payment.amount"', '{"payment.amount": 1, "a": [{"Payment.Amount": 2}], "payment": {"amount": 3}}', '{"a": [{}], "payment": {"amount": 3}}'),
    ('"a[*]"', '{"a[*]": 1, "a": [1]}', '{"a": [1]}'),
    ('"$.a"', '{"$.a": 1, "a": 2}', '{"a": 2}'),
    ('" a"', '{" a": 1, "a": 2}', '{"a": 2}'),
    ('"a\"\\\/\n\u00e9\ud83d\ude00"', '{"a\"\\/\n\u00e9\ud83d\ude00": 1, "b": 2}', '{"b": 2}'),
    ('""', '{"": 1, "b": 2}', '{"b": 2}'),
    ('"ts"', '{"ts": 1, "b": 2}', '{"b": 2}')) v (entry, request, rest);
SELECT idem_fingerprint('{"a.b": 1, "c": 2}', fields => '{"\"a.b\""}') = idem_fingerprint('{"a.b": 1}') AS counts;
-- Among others.
SELECT idem_fingerprint('{"a.b": 1, "c": {"d": 2, "e": 3}, "f g": 4, "ts": 5, "x": 6}', exclude => ARRAY['ts', '$.c.d', '"f g"', '"\u0061.b"']) = idem_fingerprint('{"c": {"e": 3}, "x": 6}') AS as_rest;
DROP FUNCTION test.taken;
DELETE FROM idempotency.record WHERE scope LIKE 'names%';
