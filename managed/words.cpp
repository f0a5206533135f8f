// Prints the tables of src/core/outcome.hpp, header.hpp and policy.hpp as JSON, for
// managed/generate.
#include <cstdio>
#include <string>

#include "core/header.hpp"
#include "core/outcome.hpp"
#include "core/policy.hpp"

using namespace idem::core;

// The table of columns names them, and this program does not call them: it needs no other source.
namespace idem::core {
bool valid_exclude(std::string_view) noexcept {
    return false;
}
bool is_header_name(std::string_view) noexcept {
    return false;
}
bool may_be_final(std::string_view) noexcept {
    return false;
}
}  // namespace idem::core

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

std::string number(const char* name, std::int64_t value) {
    return quoted(name) + ": " + std::to_string(value);
}

const char* word_of(OptionType type) {
    switch (type) {
        case OptionType::Span:
            return "span";
        case OptionType::Number:
            return "number";
        case OptionType::Word:
            return "word";
        case OptionType::List:
            return "list";
        case OptionType::Map:
            return "map";
        case OptionType::Flag:
            return "flag";
        case OptionType::Role:
            return "role";
        default:
            return "";
    }
}

// Of a span: its longest value in days, and 1 if it may not be zero; its default in microseconds.
std::string option(const PolicyColumn& column) {
    const bool span = column.type == OptionType::Span;
    const char* detail = column.complaint.detail;
    const char* hint = column.complaint.hint;
    return "{" + member("option", column.name) + ", " + member("type", word_of(column.type)) + ", " +
           number("least", span ? !column.range.zero_allowed : column.least) + ", " +
           number("most", span ? column.range.longest / kDay : column.most) + ", " +
           number("default", column.get ? column.get(Policy{}) : 0) + ", " +
           member("words", column.words ? column.words : "") + ", " +
           member("detail", detail ? detail : "") + ", " + member("hint", hint ? hint : "") + "}";
}

std::string in_order(const SpansInOrder& pair) {
    const char* follows = pair.follows == Follows::Neither  ? "neither"
                          : pair.follows == Follows::Longer ? "longer"
                                                            : "either";
    return "{" + member("shorter", kPolicyColumns[pair.shorter].name) + ", " +
           member("longer", kPolicyColumns[pair.longer].name) + ", " + member("follows", follows) +
           ", " + member("blamed", pair.blamed) + ", " + member("detail", pair.complaint.detail) +
           ", " + member("hint", pair.complaint.hint) + "}";
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
        list("policy_columns", kPolicyColumns, option),
        list("spans_in_order", kSpansInOrder, in_order),
        list("safeguards", kSafeguards, [](const Safeguard& one) { return quoted(one.option); }),
        list("dropped_headers", kDroppedHeaders,
             [](std::string_view name) { return quoted(name); }),
        problems + "]"};
    std::string all;
    for (const std::string& table : tables) all += (all.empty() ? "" : ",\n") + table;
    std::puts(("{" + all + "}").c_str());
    return 0;
}
