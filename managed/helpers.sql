-- The pure helpers (src/api/helpers.cpp).

-- Parts of a key, joined unambiguously.
CREATE FUNCTION idempotency.joined(parts text[]) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT string_agg(replace(replace(p COLLATE "C", E'\\', E'\\\\'), ':', E'\\:'), ':' ORDER BY n) FROM unnest(parts) WITH ORDINALITY u (p, n) $$;

--: idem_key plpgsql definer
PERFORM idempotency.check_given('parts', parts IS NOT NULL), idempotency.check_list(parts, 'parts');
IF cardinality(parts) = 0 THEN PERFORM idempotency.check_number(0, 'number of parts', 1, 1000); END IF;
RETURN idempotency.joined(parts);

--: idem_event_id plpgsql definer
DECLARE
    id text;
    micros numeric;
BEGIN
    PERFORM idempotency.check_given('event_type', event_type IS NOT NULL),
            idempotency.check_given('resource_id', resource_id IS NOT NULL),
            idempotency.check_given('updated_at', updated_at IS NOT NULL), idempotency.check_moment(updated_at, 'updated_at');
    micros := ((updated_at AT TIME ZONE 'UTC')::date - '1970-01-01'::date) * 86400000000::numeric
              + extract(epoch FROM (updated_at AT TIME ZONE 'UTC')::time) * 1000000;
    IF micros > 9223372036854775807 THEN PERFORM idempotency.refuse('out_of_range'); END IF;
    id := idempotency.joined(ARRAY[event_type, resource_id, micros::bigint::text]);
    RETURN CASE WHEN idempotency.name_fault(id, false) IS NULL THEN id
                ELSE encode(sha256(convert_to(id, getdatabaseencoding())), 'hex') END;
END

-- An RFC 8941 Item that is a String, with parameters that are checked and ignored, or a bare value.
--: idem_parse_key plpgsql definer
DECLARE
    field text COLLATE "C" := trim(BOTH E' \t' FROM header);
    bare constant text COLLATE "C" := E'("([ !#-[\\]-~]|\\\\["\\\\])*"|:[A-Za-z0-9+/]*=*:|\\?[01]|@-?[0-9]{1,15}|%"([ !#$&-~]|%[0-9a-f]{2})*"|-?[0-9]{1,15}|-?[0-9]{1,12}\\.[0-9]{1,3}|[A-Za-z*][A-Za-z0-9!#$%&''*+.^_`|~:/-]*)';
    key text;
BEGIN
    IF left(field, 1) = '"' THEN
        IF field ~ (E'^"([ !#-[\\]-~]|\\\\["\\\\])*"(; *[a-z*][a-z0-9_.*-]*(=' || bare || ')?)*$') THEN
            key := regexp_replace(substring(field FROM E'^"((?:[ !#-[\\]-~]|\\\\["\\\\])*)"'), E'\\\\(["\\\\])', E'\\1', 'g');
        END IF;
    ELSIF field ~ E'^[!#-+\\--:<-[\\]-~]+$' THEN
        key := field;
    END IF;
    RETURN CASE WHEN idempotency.name_fault(key, false) IS NULL THEN key END;
END

-- The problem document of a word.
CREATE FUNCTION idempotency.problem(of_word text, retry_after double precision DEFAULT NULL) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    p record;
BEGIN
    SELECT * INTO p FROM idempotency.problems() x WHERE x.word = of_word;
    IF NOT FOUND THEN
        PERFORM idempotency.refuse('wrong_word', 'outcome', of_word,
            (SELECT string_agg(x.word, ', ') FROM idempotency.problems() x));
    END IF;
    RETURN CASE WHEN p.status IS NOT NULL THEN
        jsonb_build_object('type', p.type, 'title', p.title, 'status', p.status, 'detail', p.detail)
        || CASE WHEN retry_after > 0 AND retry_after <> 'NaN' THEN jsonb_build_object('retry_after', ceil(least(retry_after, 1e12))::bigint) ELSE '{}' END
        END;
END $$;

--: idem_http_status plpgsql definer
RETURN CASE WHEN outcome IS NOT NULL THEN (idempotency.problem(outcome) ->> 'status')::integer END;

--: idem_problem_text plpgsql definer
RETURN CASE WHEN outcome IS NOT NULL THEN idempotency.problem(outcome) END;

-- For a record that is only looked at: the document that a repeat would get.
--: idem_problem plpgsql definer
DECLARE
    word text := coalesce(nullif(claim.outcome, ''), CASE claim.status /*REPEATS*/ END);
BEGIN
    IF claim IS NULL OR coalesce(word, '') = '' THEN RETURN NULL; END IF;
    IF word IN ('execute', 'replay') AND claim.status = 'failed' AND claim.status_code IS NULL THEN
        word := 'failed';
    END IF;
    RETURN idempotency.problem(word, claim.retry_after);
END

--: idem_backoff plpgsql definer
DECLARE
    base_us bigint := idempotency.checked_span(base, 'base', 36525, true);
    cap_us bigint := idempotency.checked_span(cap, 'cap', 36525, true);
BEGIN
    IF attempt IS NULL OR base IS NULL OR cap IS NULL THEN RETURN NULL; END IF;
    PERFORM idempotency.check_number(attempt, 'attempt', 1, 2147483647);
    RETURN idempotency.backoff(base_us, cap_us, attempt) * interval '1 microsecond';
END
