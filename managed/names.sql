-- Arguments are checked by themselves, before anything is granted (src/api/arguments.cpp). They may have
-- any collation, as columns of the caller, and differ in it: a function that is called with COLLATE "C" on one
-- argument compares all of them byte by byte.

-- The texts of errors and notices, by the words of the file "messages".
CREATE FUNCTION idempotency.messages(OUT word text, OUT code text, OUT message text, OUT detail text, OUT hint text)
    RETURNS SETOF record LANGUAGE sql IMMUTABLE AS $$
VALUES /*MESSAGES*/ $$;

-- A message with its arguments in it.
CREATE FUNCTION idempotency.message(of_word text, args text[], OUT code text, OUT message text, OUT detail text, OUT hint text)
    LANGUAGE sql IMMUTABLE AS $$
SELECT m.code, format(m.message, VARIADIC args), format(m.detail, VARIADIC args), format(m.hint, VARIADIC args)
  FROM idempotency.messages() m WHERE m.word = of_word $$;

-- Raises an error.
CREATE FUNCTION idempotency.refuse(word text, VARIADIC args text[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    m record := idempotency.message(word, args);
BEGIN
    IF coalesce(m.detail, m.hint) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = m.code, MESSAGE = m.message;
    ELSIF m.detail IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = m.code, MESSAGE = m.message, HINT = m.hint;
    ELSIF m.hint IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = m.code, MESSAGE = m.message, DETAIL = m.detail;
    END IF;
    RAISE EXCEPTION USING ERRCODE = m.code, MESSAGE = m.message, DETAIL = m.detail, HINT = m.hint;
END $$;

-- Tells a notice, or a warning, as its SQLSTATE says.
CREATE FUNCTION idempotency.tell(word text, VARIADIC args text[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    m record := idempotency.message(word, args);
BEGIN
    IF m.code = '01000' THEN
        RAISE WARNING USING MESSAGE = m.message, DETAIL = m.detail, HINT = m.hint;
    ELSE
        RAISE NOTICE USING MESSAGE = m.message, DETAIL = m.detail, HINT = m.hint;
    END IF;
END $$;

-- Microseconds; a month has 30 days, and a day 24 hours. An infinite span (17 and later) has no months.
CREATE FUNCTION idempotency.micros(span interval) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN coalesce(((extract(year FROM span) * 360 + extract(month FROM span) * 30 + extract(day FROM span)) * 86400000000
    + extract(hour FROM span) * 3600000000 + extract(minute FROM span) * 60000000
    + extract(microseconds FROM span))::bigint, CASE WHEN span < '0'::interval THEN -1 ELSE 9000000000000000000 END);

-- A moment and a span of microseconds.
CREATE FUNCTION idempotency.after(moment timestamptz, micros bigint) RETURNS timestamptz
    LANGUAGE sql STABLE STRICT AS $$ SELECT moment + micros * interval '1 microsecond' $$;

-- Microseconds from one moment to another.
CREATE FUNCTION idempotency.since(later timestamptz, earlier timestamptz) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN CASE WHEN isfinite(later) AND isfinite(earlier)
            THEN ((extract(epoch FROM later) - extract(epoch FROM earlier)) * 1000000)::bigint
            ELSE 4000000000000000000 END;

-- Microseconds of an argument.
CREATE FUNCTION idempotency.checked_span(span interval, what text, longest_days bigint DEFAULT 36525,
                                         zero_allowed boolean DEFAULT false) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    us bigint;
    fault text;
BEGIN
    BEGIN
        us := idempotency.micros(span);
    EXCEPTION WHEN data_exception THEN  -- more than 64 bits
        us := CASE WHEN span < '0'::interval THEN -1 ELSE 9000000000000000000 END;
    END;
    fault := CASE WHEN us < 0 THEN 'It is negative.'
                  WHEN us = 0 AND NOT zero_allowed THEN 'It is zero.'
                  WHEN us > longest_days * 86400000000 THEN 'It is too long.' END;
    IF fault IS NOT NULL THEN
        PERFORM idempotency.refuse('wrong_span', what, fault,
            CASE WHEN zero_allowed THEN 'from zero to' ELSE 'greater than zero and at most' END, longest_days::text,
            CASE longest_days WHEN 1 THEN 'day' ELSE 'days' END);
    END IF;
    RETURN us;
END $$;

-- Refuses null where a value is needed.
CREATE FUNCTION idempotency.check_given(what text, given boolean) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF NOT given THEN PERFORM idempotency.refuse('is_null', what, 'Pass a value.'); END IF;
END $$;

-- Why a text is too long, or more than a line; null: it is not.
CREATE FUNCTION idempotency.text_fault(given text, most integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN length(given) > most THEN format('It has %s characters; %s are allowed.', length(given), most)
            WHEN given COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f-\\u009f]' THEN 'It contains a control character.' END $$;

-- The fault of a name; null: none.
CREATE FUNCTION idempotency.name_fault(name text, may_be_empty boolean) RETURNS text
    LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN name = '' THEN CASE WHEN NOT may_be_empty THEN 'It is empty.' END
            ELSE coalesce(idempotency.text_fault(name, 255),
                          CASE WHEN ltrim(name, ' ') = '' THEN 'It consists of spaces only.' END) END $$;

-- Refuses an argument that names nothing.
CREATE FUNCTION idempotency.check_name(name text, what text, may_be_empty boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    fault text := idempotency.name_fault(name, may_be_empty);
BEGIN
    IF name IS NULL THEN
        PERFORM idempotency.refuse('is_null', what,
            CASE WHEN may_be_empty THEN 'Omit the argument to get its default.' ELSE 'Pass a value.' END);
    ELSIF fault IS NOT NULL THEN
        PERFORM idempotency.refuse(CASE what WHEN 'key' THEN 'wrong_key' ELSE 'wrong_name' END, what, fault);
    END IF;
END $$;

-- Whether key, scope and principal are short, printable ASCII. Right for sure, as nearly all are. One
-- expression, which is inlined.
CREATE FUNCTION idempotency.is_plain_identity(key text, scope text, principal text) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
SELECT key <> '' AND octet_length(key || scope || principal) <= 255 AND (key || scope || principal) COLLATE "C" !~ '[^!-~]' $$;

-- Refuses what names no record. The primary key's index holds no more.
CREATE FUNCTION idempotency.check_identity(key text, scope text, principal text, key_may_be_null boolean DEFAULT false)
    RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF idempotency.is_plain_identity(key, scope, principal) THEN RETURN; END IF;
    IF key IS NULL AND NOT key_may_be_null THEN PERFORM idempotency.check_name(key, 'key'); END IF;
    PERFORM idempotency.check_name(scope, 'scope', true), idempotency.check_name(principal, 'principal', true);
    IF key IS NOT NULL THEN PERFORM idempotency.check_name(key, 'key'); END IF;
    IF octet_length(concat(key, scope, principal)) > 2600 THEN
        PERFORM idempotency.refuse('too_long_together', octet_length(concat(key, scope, principal))::text);
    END IF;
END $$;

-- Refuses what is no reason of a decision.
CREATE FUNCTION idempotency.check_reason(reason text) RETURNS void LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    PERFORM idempotency.refuse('wrong_reason', fault) FROM idempotency.text_fault(reason, 1000) fault WHERE fault IS NOT NULL;
END $$;

-- Refuses a moment that is not finite.
CREATE FUNCTION idempotency.check_moment(moment timestamptz, what text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    IF NOT isfinite(moment) THEN PERFORM idempotency.refuse('infinite', what); END IF;
END $$;

-- Refuses a number out of range.
CREATE FUNCTION idempotency.check_number(number bigint, what text, lowest bigint, highest bigint) RETURNS void
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    IF number < lowest OR number > highest THEN
        PERFORM idempotency.refuse('wrong_number', what, number::text, lowest::text, highest::text);
    END IF;
END $$;

-- A list without nulls.
CREATE FUNCTION idempotency.check_list(list text[], what text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF cardinality(list) > 1000 THEN
        PERFORM idempotency.refuse('too_many_elements', what, cardinality(list)::text);
    ELSIF EXISTS (SELECT FROM unnest(list) x WHERE x IS NULL) THEN
        PERFORM idempotency.refuse('null_element', what);
    END IF;
    RETURN list;
END $$;

-- Refuses a transaction that cannot write.
CREATE FUNCTION idempotency.check_writable(function text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF current_setting('transaction_read_only') = 'on' THEN
        PERFORM idempotency.refuse(CASE WHEN pg_is_in_recovery() THEN 'in_recovery' ELSE 'read_only' END, function);
    END IF;
END $$;

-- The user whose call it is: a function with the rights of its owner sees itself as current_user. ANALYZE and the
-- like run code of a table's owner in the session of another user, who calls nothing: this cursor is refused there.
CREATE FUNCTION idempotency.caller() RETURNS name LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'DECLARE "idempotency.caller" CURSOR WITH HOLD FOR SELECT';
    EXECUTE 'CLOSE "idempotency.caller"';
    RETURN CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END::name;
END $$;

-- The headers of a response (RFC 9110), without those that are never kept.
CREATE FUNCTION idempotency.checked_headers(headers jsonb) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    fault text;
BEGIN
    IF headers IS NULL OR headers = 'null' THEN RETURN NULL; END IF;
    fault := CASE WHEN jsonb_typeof(headers) <> 'object' THEN 'It is not a JSON object.' ELSE coalesce(
        (SELECT CASE WHEN h.key !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$'
                         THEN 'A header''s name is empty or has characters that HTTP does not allow.'
                     WHEN jsonb_typeof(v.value) <> 'string' THEN 'A header''s value is not a string or an array of strings.'
                     WHEN v.value #>> '{}' ~ E'[\\u0001-\\u0008\\u000a-\\u001f\\u007f-\\u009f]'
                         THEN 'A header''s value contains a control character.' END
           FROM jsonb_each(headers) h
           LEFT JOIN LATERAL jsonb_array_elements(CASE jsonb_typeof(h.value) WHEN 'array' THEN h.value
                                                  ELSE jsonb_build_array(h.value) END) v ON true
          ORDER BY 1 LIMIT 1),
        (SELECT 'A header is given twice, in different letter case.' FROM jsonb_object_keys(headers) k
          GROUP BY lower(k COLLATE "C") HAVING count(*) > 1 LIMIT 1)) END;
    IF fault IS NOT NULL THEN PERFORM idempotency.refuse('wrong_headers', fault); END IF;
    RETURN headers;
END $$;
