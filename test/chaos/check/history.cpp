#include "check/history.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace idem::chaos {

using nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(Function, {{Function::Begin, "begin"},
                                        {Function::Complete, "complete"},
                                        {Function::Fail, "fail"},
                                        {Function::Unknown, "unknown"},
                                        {Function::Release, "release"},
                                        {Function::Extend, "extend"},
                                        {Function::Checkpoint, "checkpoint"},
                                        {Function::Once, "once"},
                                        {Function::Execute, "execute"},
                                        {Function::Get, "get"},
                                        {Function::Forget, "forget"},
                                        {Function::Resolve, "resolve"},
                                        {Function::Erase, "erase"},
                                        {Function::Cleanup, "cleanup"},
                                        {Function::Drop, "drop"},
                                        {Function::ForgetAll, "forget all"},
                                        {Function::Scan, "scan"},
                                        {Function::Work, "work"},
                                        {Function::Foreign, "foreign"},
                                        {Function::Effect, "effect"},
                                        {Function::Savepoint, "savepoint"},
                                        {Function::RollbackTo, "rollback to"},
                                        {Function::Commit, "commit"},
                                        {Function::Rollback, "rollback"},
                                        {Function::Prepare, "prepare"},
                                        {Function::CommitPrepared, "commit prepared"},
                                        {Function::RollbackPrepared, "rollback prepared"}})

NLOHMANN_JSON_SERIALIZE_ENUM(Result,
                             {{Result::Ok, "ok"}, {Result::Error, "error"}, {Result::Info, "info"}})

NLOHMANN_JSON_SERIALIZE_ENUM(PartKind, {{PartKind::Once, "once"},
                                        {PartKind::Point, "point"},
                                        {PartKind::Alone, "alone"},
                                        {PartKind::Other, "other"}})

NLOHMANN_JSON_SERIALIZE_ENUM(OnAbandon, {{OnAbandon::Unknown, "unknown"},
                                         {OnAbandon::Release, "release"},
                                         {OnAbandon::Fail, "fail"}})

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Key, scope, principal, key)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Asked, fingerprint, token, ttl, lease, retry_after, retryable,
                                   too_large, status_code, body, point, action, effect, part,
                                   secret, savepoint, hold)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Answer, outcome, yes, found, token, attempt, status, status_code,
                                   body, point, error, generation)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Call, session, connection, timeline, node, transaction, alone,
                                   function, key, asked, result, sqlstate, message, answer,
                                   invoked, returned)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Effect, id, transaction, key)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Part, number, id, transaction, key, generation, token, kind)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Look, transaction, key, token, latest, point, point_seen)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Read, transaction, object, ordered, writers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ForeignRow, id, transaction)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ShardMove, from, to)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Rules, ttl, retention, lease, max_attempts, unknown_on_expiry,
                                   closed, abandon_after, on_abandon, personal)

namespace {

// Default values are omitted: histories are long, and people read them.
json without_defaults(const json& value, const json& defaults) {
    json result = json::object();
    for (const auto& [name, member] : value.items()) {
        const json& usual = defaults.at(name);
        if (member == usual) continue;
        result[name] = member.is_object() ? without_defaults(member, usual) : member;
    }
    return result;
}

template <typename Row>
void save_rows(std::ostream& out, const char* name, const std::vector<Row>& rows) {
    for (const Row& row : rows)
        out << json{{name, row}}.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
}

// Whether the entry is one of these rows.
template <typename Row>
bool load_row(const json& entry, const char* name, std::vector<Row>* rows) {
    if (!entry.contains(name)) return false;
    rows->push_back(entry[name].get<Row>());
    return true;
}

json with_defaults(const json& value, json defaults) {
    defaults.merge_patch(value);
    return defaults;
}

}  // namespace

const char* name_of(Function function) {
    static std::map<Function, std::string> names;
    auto& name = names[function];
    if (name.empty()) name = json(function).get<std::string>();
    return name.c_str();
}

std::string describe(const Call& call) {
    return without_defaults(call, Call{}).dump(-1, ' ', false, json::error_handler_t::replace);
}

void save(const History& history, const std::string& file) {
    std::ofstream out(file);
    out << json{{"scopes", history.scopes},
                {"forgetful_failovers", history.forgetful_failovers},
                {"takeovers", history.takeovers},
                {"effects_known", history.effects_known},
                {"early_rows", history.early_rows}}
        << '\n';
    save_rows(out, "effect", history.effects);
    save_rows(out, "part", history.parts);
    save_rows(out, "look", history.looks);
    save_rows(out, "read", history.reads);
    save_rows(out, "foreign", history.foreign);
    save_rows(out, "move", history.moves);
    for (const Call& call : history.calls)
        out << json{{"call", without_defaults(call, Call{})}}.dump(-1, ' ', false,
                                                                   json::error_handler_t::replace)
            << '\n';
    if (!out) throw std::runtime_error("cannot write " + file);
}

History load_history(const std::string& file) {
    std::ifstream in(file);
    if (!in) throw std::runtime_error("cannot read " + file);
    History history;
    for (std::string line; std::getline(in, line);) {
        const json entry = json::parse(line);
        if (entry.contains("call")) {
            history.calls.push_back(with_defaults(entry["call"], Call{}).get<Call>());
        } else if (entry.contains("scopes")) {
            for (const auto& [scope, rules] : entry.at("scopes").items())
                history.scopes[scope] = with_defaults(rules, Rules{}).get<Rules>();
            history.forgetful_failovers =
                entry.value("forgetful_failovers", history.forgetful_failovers);
            history.takeovers = entry.value("takeovers", history.takeovers);
            history.effects_known = entry.at("effects_known").get<bool>();
            history.early_rows = entry.at("early_rows").get<bool>();
        } else if (!load_row(entry, "effect", &history.effects) &&
                   !load_row(entry, "part", &history.parts) &&
                   !load_row(entry, "look", &history.looks) &&
                   !load_row(entry, "read", &history.reads) &&
                   !load_row(entry, "foreign", &history.foreign) &&
                   !load_row(entry, "move", &history.moves)) {
            throw std::runtime_error("not a line of a history: " + line);
        }
    }
    return history;
}

}  // namespace idem::chaos
