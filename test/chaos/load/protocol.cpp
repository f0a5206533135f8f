#include "load/protocol.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "digest.hpp"

namespace idem::chaos {
namespace {

constexpr const char* kClaimColumns =
    "SELECT outcome, token, attempt, status, status_code, convert_from(body, 'UTF8'),"
    " recovery_point, (extract(epoch FROM created_at) * 1000000)::bigint, error FROM ";

// Answers of one value, in the same columns.
std::string single(const std::string& call) {
    return "SELECT " + call + ", NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL";
}

const char* const kOneStatement = R"(
WITH claim AS MATERIALIZED (
    SELECT *, (extract(epoch FROM created_at) * 1000000)::bigint::text AS generation
    FROM idem_begin(%begin%)),
granted AS MATERIALIZED (SELECT * FROM claim WHERE outcome = 'execute'),
known AS (SELECT * FROM chaos.part WHERE (scope, principal, key) = (%key%)),
look AS (
    INSERT INTO chaos.look
    SELECT %transaction%, %key%, token,
        ARRAY(SELECT n FROM known ORDER BY n DESC LIMIT %looked_at%), recovery_point,
        recovery_point IS NULL OR recovery_point LIKE 'bare-%'
            OR recovery_point IN (SELECT id FROM known)
    FROM granted),
part AS (
    INSERT INTO chaos.part
    SELECT %part%, %transaction%, %key%, generation, token, 'once' FROM granted
    WHERE generation NOT IN (SELECT generation FROM known WHERE kind = 'once')),
effect AS (
    INSERT INTO chaos.effect SELECT %effect%, %transaction%, %key% FROM granted RETURNING id),
done AS (SELECT idem_complete(%complete%) FROM effect)
SELECT outcome, token, attempt, CASE outcome WHEN 'execute' THEN 'completed' ELSE status END,
    status_code, convert_from(body, 'UTF8'), recovery_point, generation, error
FROM claim LEFT JOIN done ON true)";

const char* const kWhole =
    "SELECT * FROM chaos.whole(%principal%, %scope%, %name%, %transaction%, %part%, %effect%, "
    "%ttl%,"
    " %lease%, %wait%, %fingerprint%, %code%, %body%)";

// The text with its words in percent signs replaced.
std::string filled(const std::string& text, const std::map<std::string, std::string>& values) {
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('%', at + 1);
        const auto value = text[at] == '%' && end != std::string::npos
                               ? values.find(text.substr(at, end + 1 - at))
                               : values.end();
        const bool is_word = value != values.end();
        result += is_word ? value->second : text.substr(at, 1);
        at = is_word ? end + 1 : at + 1;
    }
    return result;
}

std::string interval(Micros duration) {
    return "'" + std::to_string(duration) + " microseconds'::interval";
}

Call call_of(Function function, const Key& key) {
    Call call;
    call.function = function;
    call.key = key;
    return call;
}

}  // namespace

// Not compressible, so that a large body is stored out of line.
std::string body_of(const std::string& effect, std::int64_t size) {
    if (size == 0) return {};
    std::string body = effect + ":";
    Random random(std::hash<std::string>{}(effect), 0);
    const auto wanted = static_cast<std::size_t>(size);
    while (body.size() < wanted)
        body += static_cast<char>('a' + static_cast<char>(random.next() % 26));
    if (body.size() > wanted && wanted > effect.size()) body.resize(wanted);
    return body;
}

std::string Protocol::names(const Key& key) const {
    return "key => " + client_.quote(key.key) + ", scope => " + client_.quote(key.scope) +
           ", principal => " + client_.quote(key.principal);
}

std::string Protocol::optional(const char* name, Micros duration) const {
    return duration > 0 ? std::string(", ") + name + " => " + interval(duration) : "";
}

std::string Protocol::token_argument(std::int64_t token) const {
    return token == 0 ? "" : ", token => " + std::to_string(token);
}

Question Protocol::begin(const Key& key) const {
    Question question{call_of(Function::Begin, key), {}};
    Asked& asked = question.call.asked;
    asked.fingerprint = plan_.fingerprint;
    asked.ttl = plan_.ttl;
    asked.lease = plan_.lease;
    asked.hold = plan_.hold && mix_.hold;
    // Without a value, the attempt inherits everything of an earlier one.
    std::string kept;
    if (plan_.tells)
        kept = secret_of(&question.call, ", request => '{\"iban\": \"", "\"}'") +
               secret_of(&question.call, ", holder => '", "'");
    question.sql = kClaimColumns + ("idem_begin(" + begin_arguments(key) + kept +
                                    (plan_.hold ? ", hold => true" : "") + ")");
    return question;
}

std::string Protocol::secret_of(Call* call, const char* before, const char* after) const {
    if (plan_.secret.empty() || call->key.scope != "decided") return {};
    call->asked.secret = plan_.secret;
    return before + plan_.secret + after;
}

std::string Protocol::begin_arguments(const Key& key) const {
    std::string arguments = names(key) + optional("ttl", plan_.ttl) +
                            optional("lease", plan_.lease) + optional("wait", plan_.wait);
    if (plan_.fingerprint != 0)
        arguments += ", fingerprint => '\\x0" + std::to_string(plan_.fingerprint) + "'";
    return arguments;
}

// The statement's snapshot may be older than the grant, and the call says so.
Question Protocol::one_statement(const Key& key, const std::string& effect, const std::string& part,
                                 std::int64_t transaction) const {
    Question question{call_of(Function::Execute, key), {}};
    Call& call = question.call;
    call.asked.fingerprint = plan_.fingerprint;
    call.asked.ttl = plan_.ttl;
    call.asked.lease = plan_.lease;
    call.asked.effect = effect;
    set_result(&call, effect);
    question.sql = mix_.distributed ? whole_on_shard(key, call, effect, part, transaction)
                                    : whole(key, call, effect, part, transaction);
    return question;
}

std::string Protocol::whole(const Key& key, const Call& call, const std::string& effect,
                            const std::string& part, std::int64_t transaction) const {
    return filled(kOneStatement,
                  {{"%begin%",
                    begin_arguments(key) + (mix_.same_statement ? ", same_statement => true" : "")},
                   {"%complete%", names(key) + result_arguments(call, effect)},
                   {"%effect%", client_.quote(effect)},
                   {"%part%", client_.quote(part)},
                   {"%transaction%", std::to_string(transaction)},
                   {"%key%", columns_of(key)},
                   {"%looked_at%", std::to_string(kLookedAt)}});
}

std::string Protocol::whole_on_shard(const Key& key, const Call& call, const std::string& effect,
                                     const std::string& part, std::int64_t transaction) const {
    const auto optional = [](Micros duration) {
        return duration > 0 ? interval(duration) : std::string("NULL");
    };
    return filled(
        kWhole,
        {{"%principal%", client_.quote(key.principal)},
         {"%scope%", client_.quote(key.scope)},
         {"%name%", client_.quote(key.key)},
         {"%transaction%", std::to_string(transaction)},
         {"%part%", client_.quote(part)},
         {"%effect%", client_.quote(effect)},
         {"%ttl%", optional(plan_.ttl)},
         {"%lease%", optional(plan_.lease)},
         {"%wait%", optional(plan_.wait)},
         {"%fingerprint%",
          plan_.fingerprint == 0 ? "NULL" : "'\\x0" + std::to_string(plan_.fingerprint) + "'"},
         {"%code%", std::to_string(call.asked.status_code)},
         {"%body%", client_.quote(body_of(effect, plan_.body_size))}});
}

std::string Protocol::columns_of(const Key& key) const {
    return client_.quote(key.scope) + ", " + client_.quote(key.principal) + ", " +
           client_.quote(key.key);
}

Question Protocol::part(const Key& key, const Answer& grant, const std::string& part,
                        std::int64_t transaction) const {
    Question question{call_of(Function::Work, key), {}};
    question.call.asked.part = part;
    question.sql = "SELECT chaos.take_part(" + std::to_string(transaction) + ", " +
                   client_.quote(part) + ", " + columns_of(key) + ", " +
                   client_.quote(grant.generation) + ", " + std::to_string(grant.token) + ", " +
                   client_.quote(grant.point) + ")";
    return question;
}

Question Protocol::part_of_kind(const char* kind, const Key& key, const Answer& grant,
                                const std::string& part, std::int64_t transaction) const {
    Question question{call_of(Function::Work, key), {}};
    question.call.asked.part = part;
    question.sql = "INSERT INTO chaos.part VALUES (" + client_.quote(part) + ", " +
                   std::to_string(transaction) + ", " + columns_of(key) + ", " +
                   client_.quote(grant.generation) + ", " + std::to_string(grant.token) + ", '" +
                   kind + "')";
    return question;
}

Question Protocol::sum(std::int64_t transaction) const {
    Question question{call_of(Function::Work, Key{}), {}};
    question.sql = "SELECT chaos.sum_up(" + std::to_string(transaction) + ", " +
                   std::to_string(plan_.group) + ", " + std::to_string(plan_.slot) + ")";
    return question;
}

Question Protocol::foreign(const Key& key, const std::string& row, std::int64_t transaction) const {
    Question question{call_of(Function::Foreign, key), {}};
    question.call.asked.part = row;
    question.sql = "INSERT INTO chaos.abroad VALUES (" + client_.quote(row) + ", " +
                   std::to_string(transaction) + ")";
    return question;
}

void Protocol::set_result(Call* call, const std::string& effect) const {
    const std::string body = body_of(effect, plan_.body_size);
    call->asked.status_code = plan_.status_code;
    call->asked.body = digest(body);
    call->asked.too_large = static_cast<std::int64_t>(body.size()) > mix_.body_limit;
}

std::string Protocol::result_arguments(const Call& call, const std::string& effect) const {
    return ", status_code => " + std::to_string(call.asked.status_code) + ", body => " +
           client_.quote(body_of(effect, plan_.body_size)) + "::text";
}

Question Protocol::end(const Key& key, Ending ending, std::int64_t token,
                       const std::string& effect) const {
    if (ending == Ending::Release) {
        Question question{call_of(Function::Release, key), {}};
        question.call.asked.token = token;
        question.sql = single("idem_release(" + names(key) + token_argument(token) + ")");
        return question;
    }
    if (ending == Ending::Unknown) return end_unknown(key, token);
    const bool completes = ending == Ending::Complete;
    Question question{call_of(completes ? Function::Complete : Function::Fail, key), {}};
    Call& call = question.call;
    call.asked.token = token;
    call.asked.retryable = ending == Ending::FailRetryable;
    if (!call.asked.retryable) call.asked.effect = effect;
    set_result(&call, effect);
    std::string arguments = names(key) + token_argument(token) + result_arguments(call, effect);
    if (call.asked.retryable) {
        arguments += ", retryable => true";
        call.asked.retry_after = plan_.retry_after;
        if (plan_.retry_after >= 0) arguments += ", retry_after => " + interval(plan_.retry_after);
    }
    arguments += secret_of(&call, ", headers => '{\"X-Iban\": \"", "\"}'");
    if (!completes)
        arguments += ", error => 'it did not work" + secret_of(&call, " for ", "") + "'";
    question.sql = single((completes ? "idem_complete(" : "idem_fail(") + arguments + ")");
    return question;
}

Question Protocol::end_unknown(const Key& key, std::int64_t token) const {
    Question question{call_of(Function::Unknown, key), {}};
    question.call.asked.token = token;
    const std::string kept = secret_of(&question.call, " for ", "");
    question.sql =
        single("idem_unknown(" + names(key) + token_argument(token) +
               ", error => 'no answer in time" + kept + "', reference => 'charge" + kept + "')");
    return question;
}

Question Protocol::extend(const Key& key, std::int64_t token) const {
    Question question{call_of(Function::Extend, key), {}};
    question.call.asked.token = token;
    question.call.asked.lease = plan_.lease;
    question.sql = single("idem_extend(" + names(key) + token_argument(token) +
                          optional("lease", plan_.lease) + ")");
    return question;
}

Question Protocol::checkpoint(const Key& key, std::int64_t token, const std::string& point) const {
    Question question{call_of(Function::Checkpoint, key), {}};
    question.call.asked.token = token;
    question.call.asked.point = point;
    const std::string kept = secret_of(&question.call, ", \"iban\": \"", "\"");
    question.sql =
        single("idem_checkpoint(" + names(key) + token_argument(token) + ", recovery_point => '" +
               question.call.asked.point + "', state => '{\"n\": 1" + kept + "}')");
    return question;
}

Question Protocol::once(const Key& key, const std::string& effect) const {
    Question question{call_of(Function::Once, key), {}};
    question.call.asked.effect = effect;
    // NULL would wait forever.
    question.sql = single("idem_once(" + names(key) + ", wait => " + interval(plan_.wait) + ")");
    return question;
}

Question Protocol::execute(const Key& key, const std::string& effect, const std::string& part,
                           std::int64_t transaction) const {
    Question question{call_of(Function::Execute, key), {}};
    Call& call = question.call;
    // The request differs with every call, so its own fingerprint would never match.
    call.asked.fingerprint = std::max(plan_.fingerprint, 1);
    if (plan_.fails) {
        call.asked.action = "fail";
    } else {
        call.asked.effect = effect;
        set_result(&call, effect);
    }
    const nlohmann::json request = {{"id", effect},
                                    {"transaction", transaction},
                                    {"scope", key.scope},
                                    {"principal", key.principal},
                                    {"key", key.key},
                                    {"status_code", plan_.status_code},
                                    {"fails", plan_.fails},
                                    {"body", body_of(effect, plan_.body_size)},
                                    {"part", plan_.looks ? part : ""}};
    std::string arguments = names(key) + ", operation => 'chaos.work(jsonb)', request => " +
                            client_.quote(request.dump()) + optional("wait", plan_.wait);
    arguments += ", fingerprint => '\\x0" + std::to_string(call.asked.fingerprint) + "'";
    question.sql = kClaimColumns + ("idem_execute(" + arguments + ")");
    return question;
}

Question Protocol::get(const Key& key) const {
    return {call_of(Function::Get, key), kClaimColumns + ("idem_get(" + names(key) + ")")};
}

Question Protocol::forget(const Key& key) const {
    return {call_of(Function::Forget, key), single("idem_forget(" + names(key) + ")")};
}

Question Protocol::erase(const Key& key) const {
    return {call_of(Function::Erase, key), single("idem_erase(" + names(key) + ")")};
}

Question Protocol::cleanup(const Key& key) const {
    return {call_of(Function::Cleanup, key), single("idem_cleanup(1000)")};
}

Question Protocol::forget_all(const Key& key) const {
    const Key all{"", key.principal, ""};
    return {call_of(Function::ForgetAll, all),
            "CALL idem_forget_principal(" + client_.quote(key.principal) + ", batch_size => 1)"};
}

Question Protocol::scan(const Key& key) const {
    std::string tables;
    for (const char* const table : {"record", "attempt"})
        tables += (tables.empty() ? "" : " UNION ALL ") +
                  std::string("SELECT kept::text FROM idempotency.") + table +
                  " AS kept WHERE scope = " + client_.quote(key.scope) +
                  " AND principal = " + client_.quote(key.principal);
    return {call_of(Function::Scan, {"", key.principal, ""}),
            single("(SELECT coalesce(string_agg(DISTINCT secret[1], ' '), '') FROM (" + tables +
                   ") AS row (kept), regexp_matches(kept, 'secret-[0-9a-f-]+', 'g') AS secret)")};
}

Question Protocol::resolve(const Key& key, const std::string& effect) const {
    Question question{call_of(Function::Resolve, key), {}};
    Call& call = question.call;
    call.asked.action = plan_.action;
    std::string arguments = names(key) + ", action => '" + plan_.action + "'";
    if (!runs_again(plan_.action)) {
        call.asked.effect = effect;
        set_result(&call, effect);
        arguments += result_arguments(call, effect);
    }
    question.sql = single("idem_resolve(" + arguments + ")");
    return question;
}

Question Protocol::effect(const Key& key, const std::string& effect,
                          std::int64_t transaction) const {
    return {call_of(Function::Effect, key),
            "INSERT INTO chaos.effect VALUES (" + client_.quote(effect) + ", " +
                std::to_string(transaction) + ", " + client_.quote(key.scope) + ", " +
                client_.quote(key.principal) + ", " + client_.quote(key.key) + ")"};
}

}  // namespace idem::chaos
