// Prints the tables of src/core/outcome.hpp, header.hpp and policy.hpp as JSON, for
// managed/generate.
#include <cstdio>
#include <string>

#include "core/header.hpp"
#include "core/outcome.hpp"
#include "core/policy.hpp"

using namespace idem::core;

namespace {

std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

std::string member(const char* name, std::string_view value) {
    return quoted(name) + ": " + quoted(value);
}

std::string problem(std::string_view word, const Problem* problem) {
    std::string result = "{" + member("word", word) + ", ";
    if (problem == nullptr)
        return result + "\"status\": null, \"type\": null, \"title\": null, \"detail\": null}";
    return result + "\"status\": " + std::to_string(problem->http_status) + ", " +
           member("type", problem->type) + ", " + member("title", problem->title) + ", " +
           member("detail", problem->detail) + "}";
}

template <typename Table, typename Print>
std::string list(const char* name, const Table& table, Print print) {
    std::string result;
    for (const auto& entry : table) result += (result.empty() ? "" : ",\n  ") + print(entry);
    return quoted(name) + ": [\n  " + result + "]";
}

}  // namespace

int main() {
    std::string problems = list("problems", kOutcomes, [](const OutcomeEntry& entry) {
        return problem(entry.word, entry.problem ? &*entry.problem : nullptr);
    });
    problems.pop_back();
    for (const WordProblem& entry : kOtherProblems)
        problems += ",\n  " + problem(entry.word, &entry.problem);
    const std::string tables[] = {
        list("statuses", kStatuses,
             [](const StatusEntry& entry) {
                 return "{" + member("byte", std::string(1, static_cast<char>(entry.status))) +
                        ", " + member("word", entry.word) + ", " +
                        member("repeat", entry_of(entry.repeat).word) + "}";
             }),
        list("reasons", kReasons,
             [](const ReasonEntry& entry) {
                 return "{" + member("word", entry.word) + ", " +
                        member("outcome", entry_of(entry.outcome).word) + ", " +
                        member("why", entry.why) + ", " + member("next", entry.next) + "}";
             }),
        list("safeguards", kSafeguards, [](const Safeguard& one) { return quoted(one.option); }),
        list("dropped_headers", kDroppedHeaders,
             [](std::string_view name) { return quoted(name); }),
        problems + "]"};
    std::string all;
    for (const std::string& table : tables) all += (all.empty() ? "" : ",\n") + table;
    std::puts(("{" + all + "}").c_str());
    return 0;
}
