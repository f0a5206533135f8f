// SQL and the documentation repeat facts of the tables in core/: this reads the install script and
// the documents, and compares them with the tables.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "core/key.hpp"
#include "core/outcome.hpp"
#include "core/policy.hpp"
#include "core/visible.hpp"

namespace idem::core {
namespace {

using Lines = std::vector<std::string>;

std::string contents(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    EXPECT_FALSE(text.str().empty()) << path;
    return text.str();
}

const std::filesystem::path kRoot = IDEM_SOURCE_DIR;

// The script of the version in the control file, with each white space as one blank.
std::string install_script() {
    const std::string control = contents(kRoot / "idempotency.control");
    std::smatch version;
    EXPECT_TRUE(std::regex_search(control, version, std::regex("default_version = '(.*?)'")));
    const auto script = kRoot / "sql" / ("idempotency--" + version[1].str() + ".sql");
    return std::regex_replace(contents(script), std::regex("\\s+"), " ");
}

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
    const std::size_t from = text.find(begin);
    EXPECT_NE(from, std::string::npos) << begin;
    if (from == std::string::npos) return "";
    const std::size_t start = from + begin.size();
    return text.substr(start, text.find(end, start) - start);
}

// All matches of a pattern, first groups joined by a blank.
Lines found(const std::string& text, const char* pattern) {
    const std::regex regex(pattern);
    Lines result;
    for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it) {
        std::string line;
        for (std::size_t i = 1; i < it->size(); ++i) {
            if (!(*it)[i].matched || (*it)[i].length() == 0) continue;
            if (!line.empty()) line += ' ';
            line += (*it)[i].str();
        }
        result.push_back(line);
    }
    return result;
}

// The first cells of the table below a heading, as the words in code marks.
Lines first_cells(const char* document, const char* heading) {
    const std::string section =
        between("\n" + contents(kRoot / document), std::string("\n") + heading + "\n", "\n## ");
    Lines result;
    for (const std::string& cell : found(section, "\n\\| (`[^|]*`) \\|")) {
        for (const std::string& word : found(cell, "`([^`]*)`")) result.push_back(word);
    }
    return result;
}

std::string as_string(std::string_view text) {
    return std::string(text);
}

// ---- outcomes, statuses, counters ----

Lines counter_names() {
    Lines result;
    for (const CounterEntry& entry : kCounters) result.push_back(as_string(entry.name));
    return result;
}

TEST(ScopeStats, HasAColumnForEachCounter) {
    const std::string columns =
        between(install_script(), "CREATE FUNCTION idempotency.scope_stats( OUT scope text,", ")");
    EXPECT_EQ(found(columns, "OUT (\\w+) bigint"), counter_names());
}

// The one column that the view shows under another name, because it divides it.
std::string view_name(const std::string& counter) {
    return counter == "wait_micros" ? "wait_seconds" : counter;
}

TEST(StatsView, SumsEachCounter) {
    Lines expected;
    for (const std::string& name : counter_names()) {
        expected.push_back(name + ' ' + view_name(name));
    }
    const std::string view =
        between(install_script(), "CREATE VIEW idempotency.stats_here AS", ";");
    EXPECT_EQ(found(view, "sum\\((\\w+)\\)[^,]* AS (\\w+),"), expected);
}

TEST(StatsView, IsDocumentedWithEachCounter) {
    Lines documented = first_cells("docs/operations/views.md", "## Statistics");
    for (const std::string& name : counter_names()) {
        EXPECT_NE(std::find(documented.begin(), documented.end(), view_name(name)),
                  documented.end())
            << name;
    }
}

TEST(RecordsView, SpellsEachStatusOut) {
    const std::string view = between(install_script(), "CREATE VIEW idempotency.records AS", ";");
    for (const StatusEntry& entry : kStatuses) {
        const std::string word = "'" + as_string(entry.word) + "'";
        EXPECT_NE(view.find(word), std::string::npos) << word;
        if (entry.status == Status::InProgress) continue;
        const std::string when =
            std::string("WHEN status = '") + static_cast<char>(entry.status) + "' THEN " + word;
        EXPECT_NE(view.find(when), std::string::npos) << when;
    }
}

// A status byte is spelled as 'i'::"char" or, if the column tells its type, as 'i'.
TEST(Views, AskForStatusesThatAreOutstanding) {
    const std::string script =
        between(install_script(), "CREATE VIEW idempotency.records AS", "CREATE TYPE");
    const Lines asked = found(script, "status (?:=|<>) '(.)'(?! THEN)");
    EXPECT_GE(asked.size(), 1u);
    for (const std::string& status : asked) {
        EXPECT_TRUE(is_outstanding(static_cast<Status>(status.front()))) << status;
    }
}

TEST(RecordTable, HasAnIndexOfOutstandingRecords) {
    const std::string index =
        between(install_script(), "CREATE INDEX record_outstanding ON idempotency.record", ";");
    std::string statuses;
    for (const char status : kOutstanding) statuses += std::string(",") + status;
    EXPECT_NE(index.find("ANY ('{" + statuses.substr(1) + "}'::\"char\"[])"), std::string::npos);
}

TEST(RecordTable, HasAnIndexOfDueRecords) {
    const std::string index =
        between(install_script(), "CREATE INDEX record_due ON idempotency.record", ";");
    EXPECT_EQ(found(index, "WHERE (.*)"),
              Lines{std::string("status = '") + static_cast<char>(Status::Retryable) + "'"});
}

TEST(AbandonedView, SpellsEachStatusOut) {
    const std::string view =
        between(install_script(), "CREATE VIEW idempotency.abandoned_here AS", ";");
    EXPECT_EQ(found(view,
                    "CASE if_silent WHEN '(\\w)' THEN '(\\w+)' WHEN '(\\w)' THEN '(\\w+)'"
                    " ELSE '(\\w+)' END AS status"),
              Lines{std::string(1, static_cast<char>(IfSilent::Takeover)) + ' ' +
                    as_string(entry_of(Status::InProgress).word) + ' ' +
                    static_cast<char>(IfSilent::Exhausted) + ' ' +
                    as_string(entry_of(Status::Exhausted).word) + ' ' +
                    as_string(entry_of(Status::Unknown).word)});
}

TEST(Resolve, IsCommentedWithEachAction) {
    Lines words;
    for (const ResolutionEntry& entry : kResolutions) words.push_back(as_string(entry.word));
    const std::string comment =
        between(install_script(), "waits for its holder or for an operator: ", "'");
    EXPECT_EQ(found(comment, "(release|\\w+)(?:,| or|$)"), words);
}

// ---- names that the server shows ----

TEST(InFlightView, KnowsTheLocksOfClaims) {
    const std::string view =
        between(install_script(), "CREATE VIEW idempotency.in_flight_here AS", ";");
    EXPECT_EQ(found(view, "objsubid = (\\d+)"), Lines{std::to_string(kClaimLockClass)});
}

TEST(SweeperView, KnowsTheLauncher) {
    const std::string view =
        between(install_script(), "CREATE VIEW idempotency.sweeper_here AS", ";");
    EXPECT_EQ(found(view, "backend_type = '([^']*)'"), Lines{kLauncherType});
}

TEST(Architecture, HasTheClassesOfLocks) {
    const Lines expected = {std::to_string(kClaimLockClass), std::to_string(kWorkerLockClass)};
    EXPECT_EQ(found(contents(kRoot / "docs/architecture.md"), "\n\\| (\\d+) \\|"), expected);
}

TEST(BadKey, NamesTheLongestKey) {
    bool known = false;
    const Problem* problem = problem_of("bad_key", &known);
    ASSERT_NE(problem, nullptr);
    const std::string length = " 1 to " + std::to_string(kMaxNameChars) + " ";
    EXPECT_NE(problem->detail.find(length), std::string::npos) << problem->detail;
}

TEST(Readme, ListsEachOutcomeWithItsHttpStatus) {
    Lines expected;
    for (const OutcomeEntry& entry : kOutcomes) {
        expected.push_back(
            as_string(entry.word) + ' ' +
            (entry.problem ? std::to_string(entry.problem->http_status) : "its own"));
    }
    const std::string section = between(contents(kRoot / "README.md"), "\n## Outcomes\n", "\n## ");
    EXPECT_EQ(found(section, "\n\\| `(\\w+)` \\| ([^|]+) \\|"), expected);
}

// ---- explanations ----

TEST(Explain, HasEachReasonDocumented) {
    Lines expected;
    for (const ReasonEntry& entry : kReasons) {
        expected.push_back(as_string(entry.word) + ' ' + as_string(entry_of(entry.outcome).word) +
                           ' ' + as_string(entry.why));
    }
    const std::string section =
        between(contents(kRoot / "docs/explain.md"), "\n## Reasons\n", "\n## ");
    EXPECT_EQ(found(section, "\n\\| `(\\w+)` \\| `(\\w+)` \\| ([^|]+) \\|"), expected);
}

TEST(Explain, HasEachFieldDocumented) {
    const std::string type =
        between(install_script(), "CREATE TYPE @extschema@.idem_explanation AS (", ");");
    EXPECT_EQ(first_cells("docs/explain.md", "## The answer"), found(type, " (\\w+) [a-z ]+"));
}

// The ends of sentences occur in each.
TEST(Explain, SpeaksInSentences) {
    for (const ReasonEntry& entry : kReasons) {
        EXPECT_EQ(entry.why.back(), '.') << entry.word;
        EXPECT_EQ(entry.next.back(), '.') << entry.word;
    }
}

// ---- policies ----

std::string sql_type(OptionType type) {
    switch (type) {
        case OptionType::Pattern:
        case OptionType::Word:
            return "text";
        case OptionType::Span:
            return "interval";
        case OptionType::Number:
            return "integer";
        case OptionType::List:
            return "text[]";
        case OptionType::Map:
            return "jsonb";
        case OptionType::Flag:
            return "boolean";
        case OptionType::Role:
            return "name";
        case OptionType::Moment:
            return "timestamptz";
    }
    return "";
}

constexpr int kOptions = policy_column("since");

Lines column_names(int count) {
    Lines result;
    for (int i = 0; i < count; ++i) result.push_back(kPolicyColumns[i].name);
    return result;
}

std::string policy_table() {
    return between(install_script(), "CREATE TABLE idempotency.policy (", ");");
}

TEST(PolicyTable, HasTheColumns) {
    Lines expected;
    for (const PolicyColumn& column : kPolicyColumns) {
        expected.push_back(column.name + (" " + sql_type(column.type)));
    }
    const std::string table = policy_table();
    const std::string columns = table.substr(0, table.find("CONSTRAINT"));
    EXPECT_EQ(found(columns,
                    "(\\w+) (\\w+(?:\\[\\])?)(?: COLLATE \"C\")?(?: NOT NULL)?"
                    "(?: DEFAULT false)?,"),
              expected);
}

Lines options_as_arguments() {
    Lines expected;
    for (int i = 0; i < kOptions; ++i) {
        const bool is_role = kPolicyColumns[i].type == OptionType::Role;
        expected.push_back(kPolicyColumns[i].name + std::string(" ") +
                           (is_role ? "regrole" : sql_type(kPolicyColumns[i].type)));
    }
    return expected;
}

Lines arguments_of(const std::string& function) {
    const std::string arguments =
        between(install_script(), "CREATE FUNCTION @extschema@." + function + "(", ") RETURNS");
    return found(arguments, "(\\w+) (\\w+(?:\\[\\])?)(?: DEFAULT (?:NULL|false))?(?:,|\\s*$)");
}

TEST(PolicySet, HasTheOptionsAsArguments) {
    Lines expected = options_as_arguments();
    expected.push_back("reason text");
    expected.push_back("replace boolean");
    EXPECT_EQ(arguments_of("idem_policy_set"), expected);
}

TEST(PolicyAlter, HasTheOptionsAndUnsetAsArguments) {
    Lines expected = options_as_arguments();
    expected.push_back("unset text[]");
    expected.push_back("reason text");
    EXPECT_EQ(arguments_of("idem_policy_alter"), expected);
}

TEST(PoliciesView, ShowsAllButTraces) {
    const std::string view = between(install_script(), "CREATE VIEW idempotency.policies AS", ";");
    EXPECT_EQ(found(between(view, "SELECT", "CASE"), "(\\w+),"),
              column_names(policy_column("dropped")));
}

// One constraint checks the values of one column.
std::string range_of(const PolicyColumn& column) {
    const std::string name = column.name;
    const auto compare = [&name](const char* with, const std::string& value) {
        return name + " " + with + " " + value;
    };
    switch (column.type) {
        case OptionType::Span: {
            const auto days = column.range.longest / kDay;
            return compare(column.range.zero_allowed ? ">=" : ">", "'0'::interval") + " AND " +
                   compare("<=", "'" + std::to_string(days) + (days == 1 ? " day" : " days") +
                                     "'::interval");
        }
        case OptionType::Number:
            if (column.most == INT32_MAX) return compare(">", std::to_string(column.least - 1));
            return compare(">=", std::to_string(column.least)) + " AND " +
                   compare("<=", std::to_string(column.most));
        case OptionType::Word:
            return compare("=", "ANY ('{" + std::regex_replace(column.words, std::regex(" "), "") +
                                    "}'::text[])");
        case OptionType::Pattern:
        case OptionType::List:
        case OptionType::Map:
        case OptionType::Flag:
        case OptionType::Role:
        case OptionType::Moment:
            break;
    }
    return "";
}

TEST(PolicyTable, ChecksTheSameRanges) {
    const std::string table = policy_table();
    for (const PolicyColumn& column : kPolicyColumns) {
        const std::string range = range_of(column);
        if (range.empty()) continue;
        EXPECT_NE(table.find("CHECK (" + range + ")"), std::string::npos) << range;
    }
}

TEST(PolicyTable, ChecksTheOrderOfTheSameSpans) {
    const std::string table = policy_table();
    for (const SpansInOrder& spans : kSpansInOrder) {
        const std::string shorter = kPolicyColumns[spans.shorter].name;
        const std::string longer = kPolicyColumns[spans.longer].name;
        const auto upwards = table.find("CHECK (" + shorter + " <= " + longer);
        const auto downwards = table.find("CHECK (" + longer + " >= " + shorter);
        EXPECT_NE(std::min(upwards, downwards), std::string::npos) << shorter;
    }
    EXPECT_EQ(found(table, "CHECK \\((\\w+) [<>]= [a-z_]+\\)").size(), std::size(kSpansInOrder));
}

TEST(PolicyTable, ChecksTheLengthOfAPattern) {
    EXPECT_EQ(found(policy_table(), "octet_length\\(scope_pattern\\) <= (\\d+)"),
              Lines{std::to_string(kMaxNameBytes)});
}

TEST(Policies, AreDocumentedWithEachOption) {
    EXPECT_EQ(first_cells("docs/policies.md", "## Options"), column_names(kOptions));
}

}  // namespace
}  // namespace idem::core
