public static class Statements
{
    public const string Begin = @"
SELECT outcome, key, token, attempt, status, status_code, headers, body, body_omitted, error, recovery_point,
       state, retry_after
  FROM idem_begin($1::text, request => $2::jsonb,
                  fingerprint => $3::bytea, method => $4::text, path => $5::text, exclude => $6::text[],
                  scope => $7::text, principal => $8::text,
                  ttl => $9::bigint * interval '1 ms', lease => $10::bigint * interval '1 ms',
                  wait => $11::bigint * interval '1 ms', holder => $12::text, transactional => $13::boolean,
                  derive => $14::bigint * interval '1 ms')";
    public const string Complete = @"
SELECT idem_complete($1::text, $2::integer, $3::bytea, $4::jsonb, scope => $5::text,
                     principal => $6::text, token => $7::bigint)";
    public const string Fail = @"
SELECT idem_fail($1::text, $2::text, retryable => true, scope => $3::text, principal => $4::text,
                 token => $5::bigint, uncertain => $6::boolean)";
    public const string Unknown = @"
SELECT idem_unknown($1::text, $2::text, $3::text, scope => $4::text, principal => $5::text,
                    token => $6::bigint)";
    public const string Extend = @"
SELECT idem_extend($1::text, $2::bigint, scope => $3::text, principal => $4::text)";
    public const string Checkpoint = @"
SELECT idem_checkpoint($1::text, $2::text, $3::jsonb, scope => $4::text, principal => $5::text,
                       token => $6::bigint)";
    public const string Once = @"
SELECT idem_once($1::text, scope => $2::text, principal => $3::text) AS first";
    public const string Problem = @"
SELECT idem_problem($1::text) AS problem";
}
