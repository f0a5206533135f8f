#include "run/tables.hpp"

#include "load/plan.hpp"

namespace idem::chaos {
namespace {

// No unique keys on effects and parts: a second one has to be seen, not prevented.
const char* const kTables = R"(
CREATE SCHEMA chaos;
CREATE TABLE chaos.effect (id text, transaction bigint, scope text, principal text, key text);
CREATE TABLE chaos.part (id text, transaction bigint, scope text, principal text, key text,
    generation text, token bigint, kind text, n bigserial);
CREATE INDEX ON chaos.part (scope, principal, key, n);
CREATE TABLE chaos.look (transaction bigint, scope text, principal text, key text, token bigint,
    latest bigint[], point text, point_seen boolean);
CREATE TABLE chaos.account (grp int, slot int, writers bigint[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (grp, slot));
CREATE TABLE chaos.entry (grp int, transaction bigint, balance bigint);
CREATE INDEX ON chaos.entry (grp);
CREATE TABLE chaos.reading (transaction bigint, object text, ordered boolean, writers bigint[]);
CREATE TABLE chaos.home (id text, transaction bigint);
CREATE UNLOGGED TABLE chaos.audit (operation text, at timestamptz);
)";

// The same with statements that Citus can send to a shard.
const char* const kWorkOfShards = R"(
CREATE OR REPLACE FUNCTION chaos.take_part(t bigint, part text, s text, p text, k text, g text,
    tok bigint, granted_point text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    seen bigint[];
    point_seen boolean := granted_point = '' OR granted_point LIKE 'bare-%';
    taken boolean := false;
    part_kind text := CASE g WHEN '' THEN 'other' ELSE 'once' END;
BEGIN
    SELECT array_agg(n ORDER BY n DESC) INTO seen FROM (
        SELECT n FROM chaos.part WHERE scope = s AND principal = p AND key = k
        ORDER BY n DESC LIMIT %LOOKED_AT%) AS parts;
    IF NOT point_seen THEN
        SELECT count(*) > 0 INTO point_seen FROM chaos.part
            WHERE scope = s AND principal = p AND key = k AND id = granted_point;
    END IF;
    IF g <> '' THEN
        SELECT count(*) > 0 INTO taken FROM chaos.part
            WHERE scope = s AND principal = p AND key = k AND generation = g AND kind = 'once';
    END IF;
    INSERT INTO chaos.look VALUES (t, s, p, k, tok, coalesce(seen, '{}'), granted_point, point_seen);
    IF NOT taken THEN
        INSERT INTO chaos.part VALUES (part, t, s, p, k, g, tok, part_kind);
    END IF;
END $$;
)";

// Claim, work, effect and end as one statement of the client, which Citus sends to the node with
// the principal's shards.
const char* const kWhole = R"(
CREATE FUNCTION chaos.whole(p text, s text, k text, t bigint, part text, effect text,
    claim_ttl interval, claim_lease interval, claim_wait interval, claim_fingerprint bytea,
    code int, result text)
RETURNS TABLE (outcome text, token bigint, attempt int, status text, status_code int, body text,
    point text, generation text, error text) LANGUAGE plpgsql AS $$
DECLARE
    c idem_claim;
    first_claimed text;
BEGIN
    SELECT * INTO c FROM idem_begin(k, scope => s, principal => p, fingerprint => claim_fingerprint,
        ttl => claim_ttl, lease => claim_lease, wait => claim_wait);
    first_claimed := (extract(epoch FROM c.created_at) * 1000000)::bigint::text;
    status := c.status;
    IF c.outcome = 'execute' THEN
        PERFORM chaos.take_part(t, part, s, p, k, first_claimed, c.token,
            coalesce(c.recovery_point, ''));
        INSERT INTO chaos.effect VALUES (effect, t, s, p, k);
        PERFORM idem_complete(k, code, result, scope => s, principal => p);
        status := 'completed';
    END IF;
    RETURN QUERY SELECT c.outcome, c.token, c.attempt, status, c.status_code,
        convert_from(c.body, 'UTF8'), c.recovery_point, first_claimed, c.error;
END $$;
)";

// A volatile PL/pgSQL function takes its snapshots like separate statements of the client.
const char* const kWork = R"(
CREATE FUNCTION chaos.take_part(t bigint, part text, s text, p text, k text, g text, tok bigint,
                                granted_point text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos.look SELECT t, s, p, k, tok,
        ARRAY(SELECT n FROM chaos.part WHERE (scope, principal, key) = (s, p, k)
              ORDER BY n DESC LIMIT %LOOKED_AT%),
        granted_point,
        granted_point = '' OR granted_point LIKE 'bare-%' OR EXISTS
            (SELECT FROM chaos.part WHERE (scope, principal, key, id) = (s, p, k, granted_point));
    INSERT INTO chaos.part
        SELECT part, t, s, p, k, g, tok, CASE g WHEN '' THEN 'other' ELSE 'once' END
        WHERE g = '' OR NOT EXISTS
            (SELECT FROM chaos.part
             WHERE (scope, principal, key, generation, kind) = (s, p, k, g, 'once'));
END $$;

-- Reads all of a group and writes what follows from it.
CREATE FUNCTION chaos.sum_up(t bigint, g int, s int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    entries bigint[] := ARRAY(SELECT transaction FROM chaos.entry WHERE grp = g);
BEGIN
    INSERT INTO chaos.reading SELECT t, g || '/' || slot, true, writers FROM chaos.account
        WHERE grp = g;
    INSERT INTO chaos.reading VALUES (t, g::text, false, entries);
    INSERT INTO chaos.entry VALUES (g, t, cardinality(entries) + 1);
    UPDATE chaos.account SET writers = writers || t WHERE (grp, slot) = (g, s);
END $$;

-- Of a user, on our tables; see the fault "triggers".
CREATE FUNCTION chaos.user_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    open_cursor refcursor;
    first record;
BEGIN
    CASE TG_ARGV[0]
    WHEN 'cursor' THEN
        OPEN open_cursor FOR SELECT relname, md5(relname) FROM pg_class ORDER BY relname;
        FETCH open_cursor INTO first;
    WHEN 'write' THEN
        INSERT INTO chaos.audit VALUES (TG_OP, clock_timestamp());
    WHEN 'settings' THEN
        PERFORM set_config('search_path', 'pg_temp', true), set_config('DateStyle', 'SQL', true),
            set_config('IntervalStyle', 'iso_8601', true), set_config('work_mem', '64kB', false);
    WHEN 'raise' THEN
        RAISE 'the user''s trigger objects' USING ERRCODE = 'CH001';
    END CASE;
    RETURN coalesce(NEW, OLD);
END $$;
)";

const char* const kRoles = R"(
DO $$ BEGIN CREATE ROLE chaos_stranger; EXCEPTION WHEN duplicate_object THEN END $$;
DO $$ BEGIN CREATE ROLE chaos_keeper; EXCEPTION WHEN duplicate_object THEN END $$;
DO $$ BEGIN CREATE ROLE chaos_owner; EXCEPTION WHEN duplicate_object THEN END $$;
GRANT USAGE ON SCHEMA chaos TO chaos_owner;
GRANT INSERT ON chaos.audit TO chaos_owner;
)";

const char* const kOperation = R"(
CREATE FUNCTION chaos.work(request jsonb) RETURNS idem_response LANGUAGE plpgsql AS $$
BEGIN
    IF request->>'part' <> '' THEN
        PERFORM chaos.take_part((request->>'transaction')::bigint, request->>'part',
            request->>'scope', request->>'principal', request->>'key', '', 0, '');
    END IF;
    INSERT INTO chaos.effect VALUES (request->>'id', (request->>'transaction')::bigint,
        request->>'scope', request->>'principal', request->>'key');
    IF (request->>'fails')::boolean THEN RAISE 'it did not work'; END IF;
    RETURN idem_response((request->>'status_code')::int, NULL::jsonb, request->>'body');
END $$;
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
    return text.replace(text.find(what), what.size(), by);
}

}  // namespace

std::string work_tables() {
    return kTables + replaced(kWork, "%LOOKED_AT%", std::to_string(kLookedAt)) + kRoles +
           "INSERT INTO chaos.account SELECT g, s FROM generate_series(0, " +
           std::to_string(kGroups - 1) + ") g, generate_series(0, " + std::to_string(kSlots - 1) +
           ") s;\n";
}

std::string work_operation() {
    return kOperation;
}

std::vector<std::string> distributed_work() {
    return {
        "ALTER ROLE chaos_stranger LOGIN",
        "ALTER TABLE chaos.part ALTER n DROP DEFAULT",
        "DROP SEQUENCE chaos.part_n_seq",
        "ALTER TABLE chaos.part ALTER n SET DEFAULT (extract(epoch FROM clock_timestamp())"
        " * 1000000)::bigint * 1000 + floor(random() * 1000)::bigint",
        "SELECT create_distributed_table('chaos.effect', 'principal', shard_count => 8)",
        "SELECT create_distributed_table('chaos.part', 'principal', colocate_with => "
        "'chaos.effect')",
        "SELECT create_distributed_table('chaos.look', 'principal', colocate_with => "
        "'chaos.effect')",
        replaced(kWorkOfShards, "%LOOKED_AT%", std::to_string(kLookedAt)),
        kWhole,
        "SELECT create_distributed_function(oid::regprocedure, 'p', colocate_with => "
        "'chaos.effect', force_delegation => true) FROM pg_proc WHERE proname = 'whole'",
        "SELECT create_distributed_function(oid::regprocedure) FROM pg_proc"
        " WHERE pronamespace = 'chaos'::regnamespace AND proname IN ('take_part', 'work')",
        "SELECT idem_distribute('chaos.effect')",
    };
}

std::string foreign_table(const std::string& folder, int port) {
    return "CREATE EXTENSION IF NOT EXISTS postgres_fdw;\n"
           "DROP SERVER IF EXISTS loopback CASCADE;\n"
           "CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '" +
           folder + "', port '" + std::to_string(port) +
           "', dbname 'chaos');\n"
           "CREATE USER MAPPING FOR postgres SERVER loopback OPTIONS (user 'postgres');\n"
           "CREATE FOREIGN TABLE chaos.abroad (id text, transaction bigint) SERVER loopback"
           " OPTIONS (schema_name 'chaos', table_name 'home');\n";
}

}  // namespace idem::chaos
