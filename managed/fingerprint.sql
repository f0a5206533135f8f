-- The canonical form of a request and its digest (src/core/fingerprint.cpp, src/request/fingerprint.cpp).

-- Whether an entry names fields of a request. A name, a path such as $.a.b or $.a[*].b, or a name in double
-- quotes.
CREATE FUNCTION idempotency.is_field(entry text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF entry = '' OR entry COLLATE "C" ~ E'[\\u0001-\\u001f\\u007f]' THEN
        RETURN false;
    ELSIF left(entry, 1) = '$' THEN
        RETURN entry COLLATE "C" ~ E'^\\$(\\.[^].[*"]+|\\[\\*\\])+$';
    ELSIF left(entry, 1) = '"' THEN
        RETURN jsonb_typeof(entry::jsonb) = 'string' AND right(entry, 1) = '"';
    END IF;
    RETURN entry COLLATE "C" !~ '[].[*"]|^ | $';
EXCEPTION WHEN data_exception THEN
    RETURN false;
END $$;

-- The names among entries, in lower case.
CREATE FUNCTION idempotency.names_in(entries text[]) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN (SELECT array_agg(lower((CASE left(e, 1) WHEN '"' THEN e::jsonb #>> '{}' ELSE e END) COLLATE "C"))
  FROM unnest(entries) e WHERE left(e, 1) <> '$');

-- The paths among entries, without their $.
CREATE FUNCTION idempotency.paths_in(entries text[]) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN (SELECT array_agg(substr(e, 2)) FROM unnest(entries) e WHERE left(e, 1) = '$');

-- What is left of the paths after a step: '.name' or '[*]'.
CREATE FUNCTION idempotency.after_step(paths text[], step text) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN CASE WHEN paths IS NULL OR step COLLATE "C" ~ E'^\\..*[].[*"]' THEN NULL ELSE
    (SELECT array_agg(substr(p, length(step) + 1)) FROM unnest(paths) p
      WHERE starts_with(p COLLATE "C", step) AND (step = '[*]' OR substr(p, length(step) + 1, 1) IN ('', '.', '['))) END;

-- A number in canonical form. As ECMAScript writes it, but with all digits (RFC 8785).
CREATE FUNCTION idempotency.spell_number(n numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    digits text;
    exponent integer;
BEGIN
    IF n = 0 THEN RETURN '0'; END IF;
    IF abs(n) >= 1e-6 AND abs(n) < 1e21 THEN RETURN trim_scale(n)::text; END IF;
    digits := trim_scale(abs(n))::text;
    exponent := CASE WHEN abs(n) >= 1 THEN length(split_part(digits, '.', 1)) - 1
                     ELSE -length(substring(digits FROM E'^0\\.(0*)')) - 1 END;
    digits := trim(BOTH '0' FROM replace(digits, '.', ''));
    RETURN CASE WHEN n < 0 THEN '-' ELSE '' END || left(digits, 1)
        || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END
        || 'e' || CASE WHEN exponent < 0 THEN '' ELSE '+' END || exponent;
END $$;

-- A text that sorts as UTF-16. Members are in the order of UTF-16: the characters above U+FFFF come before
-- U+E000 to U+FFFF.
CREATE FUNCTION idempotency.utf16_order(name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN name ~ E'[\\ue000-\\uffff]'
            THEN regexp_replace(name, E'([\\ue000-\\uffff])', chr(1114111) || E'\\1', 'g') ELSE name END COLLATE "C" $$;

-- A value of which all counts. Most are their own form. One expression, which is inlined.
CREATE FUNCTION idempotency.whole_form(value jsonb, depth integer) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE WHEN jsonb_typeof(value) IN ('string', 'boolean', 'null') OR value::text ~ E'^(-?[0-9]{1,15}|{}|\\[])$'
            THEN value::text ELSE idempotency.canonical(value, NULL, NULL, NULL, NULL, true, depth) END $$;

-- The part of a value that counts; null: none. Names are in lower case; all: everything counts here.
CREATE FUNCTION idempotency.canonical(value jsonb, exclude_names text[], exclude_paths text[],
                                      field_names text[], field_paths text[], counts boolean, depth integer DEFAULT 1)
    RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    kind constant text := jsonb_typeof(value);
    form text;
BEGIN
    IF kind NOT IN ('object', 'array') THEN
        RETURN CASE WHEN NOT counts THEN NULL WHEN kind = 'number' THEN idempotency.spell_number((value #>> '{}')::numeric)
                    ELSE value::text END;
    ELSIF depth > 1000 THEN
        PERFORM idempotency.refuse('too_deep');
    END IF;
    -- Nothing is excluded: each member counts.
    IF kind = 'object' AND counts AND exclude_names IS NULL AND exclude_paths IS NULL THEN
        SELECT string_agg(to_json(e.key)::text || ':' || idempotency.whole_form(e.value, depth + 1), ','
                          ORDER BY idempotency.utf16_order(e.key)) INTO form FROM jsonb_each(value) e;
        RETURN '{' || coalesce(form, '') || '}';
    ELSIF kind = 'object' THEN
        SELECT string_agg(to_json(m.key)::text || ':' || m.form, ',' ORDER BY m.sort) INTO form
          FROM (SELECT e.key, idempotency.utf16_order(e.key) AS sort,
                       idempotency.canonical(e.value, exclude_names, x.paths, field_names, c.paths,
                           counts OR coalesce(lower(e.key COLLATE "C") = ANY (field_names), false)
                                  OR coalesce('' = ANY (c.paths), false), depth + 1) AS form
                  FROM jsonb_each(value) e,
                       LATERAL (SELECT idempotency.after_step(exclude_paths, '.' || e.key) AS paths) x,
                       LATERAL (SELECT CASE WHEN NOT counts THEN idempotency.after_step(field_paths, '.' || e.key) END AS paths) c
                 WHERE (lower(e.key COLLATE "C") = ANY (exclude_names)) IS NOT TRUE AND ('' = ANY (x.paths)) IS NOT TRUE
                OFFSET 0) m  -- a form is computed once
         WHERE m.form IS NOT NULL;
        RETURN CASE WHEN form IS NOT NULL OR counts THEN '{' || coalesce(form, '') || '}' END;
    END IF;
    IF counts AND exclude_names IS NULL AND exclude_paths IS NULL THEN
        SELECT string_agg(idempotency.whole_form(e.value, depth + 1), ',' ORDER BY e.n) INTO form
          FROM jsonb_array_elements(value) WITH ORDINALITY e (value, n);
        RETURN '[' || coalesce(form, '') || ']';
    END IF;
    SELECT string_agg(m.form, ',' ORDER BY m.n) INTO form
      FROM (SELECT e.n, idempotency.canonical(e.value, exclude_names, x.paths, field_names, c.paths,
                       counts OR coalesce('' = ANY (c.paths), false), depth + 1) AS form
              FROM jsonb_array_elements(value) WITH ORDINALITY e (value, n),
                   (SELECT idempotency.after_step(exclude_paths, '[*]') AS paths) x,
                   (SELECT CASE WHEN NOT counts THEN idempotency.after_step(field_paths, '[*]') END AS paths) c
             WHERE ('' = ANY (x.paths)) IS NOT TRUE OFFSET 0) m
     WHERE m.form IS NOT NULL;
    RETURN CASE WHEN form IS NOT NULL OR counts THEN '[' || coalesce(form, '') || ']' END;
END $$;

-- SHA-256 over method, path and canonical request.
CREATE FUNCTION idempotency.digest(method text, path text, canonical text) RETURNS bytea
    LANGUAGE plpgsql IMMUTABLE
    RETURN sha256(convert_to(E'idempotency fingerprint 1\n'
    || coalesce(octet_length(convert_to(method, 'UTF8')) || ':' || method, '-') || E'\n'
    || coalesce(octet_length(convert_to(path, 'UTF8')) || ':' || path, '-') || E'\n'
    || coalesce(octet_length(convert_to(canonical, 'UTF8')) || ':' || canonical, '-') || E'\n', 'UTF8'));

-- The fingerprint of a request.
CREATE FUNCTION idempotency.fingerprint_of(request jsonb, method text, path text, exclude text[], fields text[],
                                           OUT fingerprint bytea, OUT nothing_counts boolean)
    LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    form text;
BEGIN
    IF request IS NULL AND method IS NULL AND path IS NULL THEN RETURN; END IF;
    IF exclude IS NOT NULL THEN PERFORM idempotency.check_fields(exclude, 'exclude', 'exclude'); END IF;
    IF fields IS NOT NULL THEN PERFORM idempotency.check_fields(fields, 'fields', 'count'); END IF;
    IF request IS NOT NULL THEN
        form := coalesce(idempotency.canonical(request, idempotency.names_in(exclude), idempotency.paths_in(exclude),
                                               idempotency.names_in(fields), idempotency.paths_in(fields), fields IS NULL), '');
    END IF;
    nothing_counts := form = '';
    fingerprint := idempotency.digest(method, path, form);
END $$;

--: idem_fingerprint sql definer
SELECT f.fingerprint FROM idempotency.fingerprint_of(request, method, path, exclude, fields) f
