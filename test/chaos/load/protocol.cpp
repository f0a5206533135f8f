#include "load/protocol.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "digest.hpp"

namespace idem::chaos {
namespace {

constexpr const char* kClaimColumns =
    "SELECT outcome, token, attempt, status, status_code, convert_from(body, 'UTF8'),"
    " recovery_point FROM ";

// Answers of one value, in the same columns.
std::string single(const std::string& call) {
    return "SELECT " + call + ", NULL, NULL, NULL, NULL, NULL, NULL";
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
    std::string arguments = names(key) + optional("ttl", plan_.ttl) +
                            optional("lease", plan_.lease) + optional("wait", plan_.wait);
    if (plan_.fingerprint != 0)
        arguments += ", fingerprint => '\\x0" + std::to_string(plan_.fingerprint) + "'";
    question.sql = kClaimColumns + ("idem_begin(" + arguments + ")");
    return question;
}

void Protocol::set_result(Call* call, const std::string& effect) const {
    const std::string body = body_of(effect, plan_.body_size);
    call->asked.status_code = plan_.status_code;
    call->asked.body = digest(body);
    call->asked.too_large = static_cast<std::int64_t>(body.size()) > body_limit_;
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
    if (!completes) arguments += ", error => 'it did not work'";
    question.sql = single((completes ? "idem_complete(" : "idem_fail(") + arguments + ")");
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

Question Protocol::checkpoint(const Key& key, std::int64_t token) const {
    Question question{call_of(Function::Checkpoint, key), {}};
    question.call.asked.token = token;
    question.call.asked.point = "step-" + std::to_string(plan_.status_code);
    question.sql =
        single("idem_checkpoint(" + names(key) + token_argument(token) + ", recovery_point => '" +
               question.call.asked.point + "', state => '{\"n\": 1}')");
    return question;
}

Question Protocol::once(const Key& key, const std::string& effect) const {
    Question question{call_of(Function::Once, key), {}};
    question.call.asked.effect = effect;
    // NULL would wait for ever.
    question.sql = single("idem_once(" + names(key) + ", wait => " + interval(plan_.wait) + ")");
    return question;
}

Question Protocol::execute(const Key& key, const std::string& effect,
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
    const nlohmann::json request = {
        {"id", effect},         {"transaction", transaction},
        {"scope", key.scope},   {"principal", key.principal},
        {"key", key.key},       {"status_code", plan_.status_code},
        {"fails", plan_.fails}, {"body", body_of(effect, plan_.body_size)}};
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

Question Protocol::resolve(const Key& key, const std::string& effect) const {
    Question question{call_of(Function::Resolve, key), {}};
    Call& call = question.call;
    call.asked.action = plan_.action;
    std::string arguments = names(key) + ", action => '" + plan_.action + "'";
    if (plan_.action != "release") {
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
