-- The decision: from the record of a key to the reason of an answer (src/core/decision.cpp). The words of
-- reasons and outcomes are generated from src/core/outcome.hpp; a test compares every case.

-- The status now; null: there is no record.
CREATE FUNCTION idempotency.status_at(
    status "char", attempt integer, lives boolean, retained_until timestamptz, if_silent "char", derived boolean,
    now timestamptz, max_attempts integer, unknown_if_silent boolean
) RETURNS "char" LANGUAGE plpgsql IMMUTABLE
    RETURN CASE WHEN status <> 'i' OR lives THEN status
            WHEN if_silent = 'u' OR unknown_if_silent THEN 'u'
            WHEN (if_silent = 'x' OR (max_attempts > 0 AND attempt >= max_attempts))
                 AND NOT (derived AND now >= retained_until) THEN 'x'
            ELSE status END;

-- The reason of an answer.
CREATE FUNCTION idempotency.decide(
    status "char", attempt integer, lease_until timestamptz, next_attempt_at timestamptz, expires_at timestamptz,
    retained_until timestamptz, claimed_at timestamptz, holder_gone boolean, released boolean, if_silent "char",
    derived boolean, same_request boolean,
    now timestamptz, memory bigint, first_sent timestamptz, max_attempts integer, unknown_if_silent boolean
) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    lives boolean := coalesce(now < lease_until, false) AND NOT holder_gone;
    status_now "char";
    too_old boolean := coalesce(first_sent < idempotency.after(now, -memory), false);
    anew text;
BEGIN
    IF status IS NULL THEN
        RETURN CASE WHEN too_old THEN 'sent_before_memory' ELSE 'no_record' END;
    END IF;
    IF NOT same_request AND (now < expires_at OR status IN ('i', 'u')) THEN
        RETURN 'other_request';
    END IF;
    status_now := idempotency.status_at(status, attempt, lives, retained_until, if_silent, derived,
                                        now, max_attempts, unknown_if_silent);
    -- The record is past its retention.
    anew := CASE WHEN first_sent <= claimed_at THEN 'sent_before_claim'
                 WHEN too_old THEN 'sent_before_memory' ELSE 'retention_over' END;
    CASE status_now
        WHEN 'i' THEN
            RETURN CASE WHEN lives THEN 'leased'
                        WHEN derived AND now >= retained_until THEN anew
                        WHEN coalesce(now < lease_until, false) THEN 'session_ended' ELSE 'lease_over' END;
        WHEN 'c', 'f', 'r', 'x' THEN
            IF status = 'i' THEN
                RETURN 'attempts_timed_out';
            ELSIF now >= expires_at THEN
                RETURN CASE WHEN now < retained_until THEN 'ttl_over' ELSE anew END;
            ELSIF status = 'r' THEN
                RETURN CASE WHEN max_attempts > 0 AND attempt >= max_attempts AND NOT released THEN 'attempts_failed'
                            WHEN now < next_attempt_at THEN 'pause' ELSE 'retry_due' END;
            ELSIF status = 'x' THEN
                RETURN CASE WHEN lease_until IS NULL THEN 'attempts_failed' ELSE 'attempts_timed_out' END;
            END IF;
            RETURN 'answered';
        ELSE
            RETURN CASE status WHEN 'u' THEN 'outcome_unknown' ELSE 'takeover_forbidden' END;
    END CASE;
END $$;

-- How an execution uses the record that it found; null: none.
CREATE FUNCTION idempotency.execution_of(reason text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
SELECT CASE reason WHEN 'no_record' THEN 'first' WHEN 'retention_over' THEN 'reuse' WHEN 'lease_over' THEN 'takeover'
                   WHEN 'session_ended' THEN 'takeover' WHEN 'retry_due' THEN 'retry' END $$;

-- Microseconds until the client should ask again; null: not known.
CREATE FUNCTION idempotency.retry_after(reason text, lease_until timestamptz, next_attempt_at timestamptz,
                                        now timestamptz, unknown_retry_after bigint) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE
    RETURN CASE WHEN reason = 'leased' THEN idempotency.since(lease_until, now)
            WHEN reason = 'pause' THEN idempotency.since(next_attempt_at, now)
            WHEN reason IN ('held', 'own_claim') THEN 1000000
            WHEN reason IN ('outcome_unknown', 'takeover_forbidden') THEN unknown_retry_after END;

-- A status as a word.
CREATE FUNCTION idempotency.status_word(status "char") RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN CASE status /*STATUSES*/ ELSE 'unknown' END;

-- The outcome of a reason.
CREATE FUNCTION idempotency.outcome_of(reason text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
    RETURN CASE reason /*OUTCOMES*/ END;

-- Outcomes and the problem of each; null: none.
CREATE FUNCTION idempotency.problems(OUT word text, OUT status integer, OUT type text, OUT title text, OUT detail text)
    RETURNS SETOF record LANGUAGE sql IMMUTABLE AS $$
VALUES /*PROBLEMS*/ $$;

-- The reasons in words.
CREATE FUNCTION idempotency.reasons(OUT word text, OUT why text, OUT next text) RETURNS SETOF record
    LANGUAGE sql IMMUTABLE AS $$
VALUES /*REASONS*/ $$;

-- Whether the session of a claim with hold has ended. On a standby the session is on another server.
CREATE FUNCTION idempotency.session_gone(backend_pid integer, backend_start timestamptz) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF backend_pid IS NULL OR pg_is_in_recovery() THEN RETURN false; END IF;
    PERFORM pg_stat_clear_snapshot();
    -- When a session of another role began may be hidden; then its pid counts.
    RETURN NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = session_gone.backend_pid
                          AND coalesce(a.backend_start = session_gone.backend_start, true));
END $$;

--: idem_claim_lives sql definer
SELECT lease_until IS NOT NULL AND clock_timestamp() < lease_until
       AND NOT idempotency.session_gone(backend_pid, backend_start)

-- The names of operators are complete, because who inserts by hand has a search_path of its own.
--: idem_is_record plpgsql caller
RETURN CASE WHEN status OPERATOR(pg_catalog.=) 'i' THEN lease_until IS NOT NULL
            ELSE (status OPERATOR(pg_catalog.=) ANY ('{c,f,r,x,u}')) IS TRUE END;
