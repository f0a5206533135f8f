-- Operations for idem_execute, good and bad, and roles that come and go in policies and grants.
CREATE ROLE fuzz_app;
CREATE ROLE fuzz_other;
CREATE SCHEMA fuzz;
GRANT USAGE ON SCHEMA fuzz TO PUBLIC;

CREATE FUNCTION fuzz.plain(jsonb) RETURNS jsonb LANGUAGE sql RETURN $1;
CREATE FUNCTION fuzz.answers(jsonb) RETURNS idem_response LANGUAGE sql
    RETURN idem_response(201, '{"X": "y"}', $1);
CREATE FUNCTION fuzz.odd(jsonb) RETURNS idem_response LANGUAGE sql
    RETURN idem_response((random() * 700)::int, '{"Set-Cookie": "x", "bad name": 1}', repeat('x', 1000));
CREATE FUNCTION fuzz.nothing(jsonb) RETURNS jsonb LANGUAGE sql RETURN NULL::jsonb;
CREATE FUNCTION fuzz.fails(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'declined %', repeat('é', 50000) USING ERRCODE = 'P0001';
END $$;
CREATE FUNCTION fuzz.must_retry(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'later' USING ERRCODE = '40001';
END $$;
-- Meets the claim that it runs under, and claims of its own.
CREATE FUNCTION fuzz.nested(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    answer jsonb;
BEGIN
    SELECT jsonb_agg(outcome) INTO answer FROM generate_series(1, 6) i, idem_begin('k' || i);
    PERFORM idem_once('k7');
    PERFORM idem_complete('k1', 200);
    RETURN answer;
END $$;
CREATE FUNCTION fuzz.many(jsonb) RETURNS SETOF jsonb LANGUAGE sql RETURN $1;
