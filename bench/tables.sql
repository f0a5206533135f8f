-- Objects for the contenders: the business table, others' tables of keys, and records in bulk. No
-- table has more indexes than it needs: each that the bare transaction maintained, too, would make
-- everybody else look cheaper. The table of keys has not even one for removing old keys.
CREATE SCHEMA bench;

CREATE TABLE bench.payment (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account  bigint NOT NULL,
    amount   bigint NOT NULL,
    currency text NOT NULL DEFAULT 'EUR',
    made_at  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE bench.keyed_payment (
    LIKE bench.payment INCLUDING ALL,
    request_key text COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE bench.request_key (
    key            text COLLATE "C" PRIMARY KEY,
    created_at     timestamptz NOT NULL DEFAULT now(),
    recovery_point text NOT NULL DEFAULT 'started',
    status_code    integer,
    body           text
);

CREATE FUNCTION bench.pay(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO bench.payment (account, amount)
    VALUES ((request ->> 'account')::bigint, (request ->> 'amount')::bigint);
    RETURN to_jsonb(repeat('x', 198));  -- with its quotes, as long as the others' bodies
END $$;

-- A hand-written solution with a table of keys.
CREATE FUNCTION bench.pay_with_key(asked text, request jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text;
BEGIN
    INSERT INTO bench.request_key (key) VALUES (asked) ON CONFLICT (key) DO NOTHING;
    IF NOT FOUND THEN
        SELECT body INTO STRICT answer FROM bench.request_key WHERE key = asked;
        RETURN answer;
    END IF;
    answer := bench.pay(request) #>> '{}';
    UPDATE bench.request_key SET recovery_point = 'finished', status_code = 201, body = answer
     WHERE key = asked;
    RETURN answer;
END $$;

-- As long as a UUID; neighbours in number are none in an index.
CREATE FUNCTION bench.key_of(number bigint) RETURNS text IMMUTABLE LANGUAGE sql AS $$
    SELECT 1000000000000000000 + (number * 1103515245 % 2147483648) * 3800000000
           || '-5b1c-7d3e-8f00'
$$;

-- A UUID of version 4 or 7, of 32 hexadecimal digits and, for version 7, of milliseconds since 1970.
CREATE FUNCTION bench.uuid_of(version integer, digits text, millis bigint) RETURNS text
    IMMUTABLE LANGUAGE sql AS $$
    SELECT overlay(CASE version WHEN 7 THEN lpad(to_hex(millis), 12, '0') || substr(digits, 13)
                   ELSE digits END PLACING version::text FROM 13)::uuid::text
$$;

CREATE FUNCTION bench.new_uuid(version integer) RETURNS text VOLATILE LANGUAGE sql AS $$
    SELECT bench.uuid_of(version, replace(gen_random_uuid()::text, '-', ''),
                         (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
$$;

-- Of the record with this number, of which a thousand arrived in each second.
CREATE FUNCTION bench.uuid_of_number(version integer, number bigint) RETURNS text
    IMMUTABLE LANGUAGE sql AS $$
    SELECT bench.uuid_of(version, md5(number::text), 1700000000000 + number)
$$;

-- Completed records numbered `first` to `last`, whose retention ends are spread evenly from `starts`
-- to `ends`, seconds from now. In the order of their keys, which saves the time of jumping from page
-- to page of the index, or as they arrive and so expire.
CREATE FUNCTION bench.records(scope text, first bigint, last bigint,
                              starts float8, ends float8, by_key boolean)
    RETURNS TABLE (scope text, principal text, key text, status "char", status_code integer,
                   attempt integer, token bigint, lease_us bigint, created_at timestamptz,
                   claimed_at timestamptz, expires_at timestamptz, retained_until timestamptz,
                   finished_at timestamptz, body bytea)
    STABLE LANGUAGE sql AS $$
    SELECT $1, '', bench.key_of(i), 'c'::"char", 201, 1, i, 60000000, made, made,
           made + interval '1 day', made + interval '1 day', made,
           convert_to(repeat('x', 200), 'UTF8')
      FROM generate_series(first, last) i,
           LATERAL (SELECT now() - interval '1 day' + interval '1 s'
                           * (starts + (ends - starts) * (i - first) / (last - first + 1)))
               AS made (made)
     ORDER BY CASE WHEN by_key THEN bench.key_of(i) END COLLATE "C", i
$$;

CREATE FUNCTION bench.wait_for_duplicates(wanted bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told bigint := 0;
BEGIN
    FOR attempt IN 1..60000 LOOP
        SELECT in_progress INTO STRICT told FROM idempotency.stats WHERE scope = 'bench';
        EXIT WHEN told = wanted;
        PERFORM pg_sleep(0.001);
    END LOOP;
    IF told <> wanted THEN
        RAISE 'of % duplicates, % got in_progress', wanted, told;
    END IF;
END $$;

-- Records numbered 1 to `last` as the protocol makes them, in the clear or encrypted.
CREATE FUNCTION bench.complete_payments(last bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR number IN 1..last LOOP
        PERFORM idem_begin(bench.key_of(number), jsonb_build_object('payment', number), 'bench');
        PERFORM idem_complete(bench.key_of(number), 201, repeat('x', 200),
                              '{"Content-Type": "application/json"}', 'bench');
    END LOOP;
END $$;
