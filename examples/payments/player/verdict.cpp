#include "verdict.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <pqxx/pqxx>
#include <set>
#include <utility>

namespace payments {
namespace {

struct BookedCharge {
    std::string id;
    int line;
    std::string tenant, key, customer, currency, amount;
};

// What a client wanted once, however often it asked.
struct Intent {
    std::vector<const Request*> lines;
    std::vector<const BookedCharge*> charges;
};

using IntentName = std::pair<std::string, std::string>;  // tenant, key
using Intents = std::map<IntentName, Intent>;

// Prints one line per check, with the first few cases against it.
class Check {
  public:
    Check(std::ostream& out, std::string claim) : out_(out), claim_(std::move(claim)) {}
    void expect(bool holds, const std::string& otherwise) {
        if (holds) return;
        ++violations_;
        if (violations_ <= kShown) cases_ += "        " + otherwise + '\n';
    }
    bool conclude() {
        out_ << (violations_ == 0 ? "ok      " : "FAILED  ") << claim_ << '\n' << cases_;
        if (violations_ > kShown) out_ << "        and " << violations_ - kShown << " more\n";
        return violations_ == 0;
    }

  private:
    static constexpr int kShown = 3;
    std::ostream& out_;
    std::string claim_;
    std::string cases_;
    int violations_ = 0;
};

std::string text(std::size_t n) {
    return std::to_string(n);
}
std::string line_name(const Request& request) {
    return "line " + std::to_string(request.n);
}
bool refused(const Request& request) {
    return request.expect != kCreated;
}

std::vector<BookedCharge> read_charges(pqxx::transaction_base& tx) {
    std::vector<BookedCharge> charges;
    for (const auto& row : tx.exec("SELECT id, line, tenant, coalesce(key, ''), customer, currency,"
                                   "       amount FROM payments.charge ORDER BY charged_at")) {
        const auto field = [&row](int i) { return row[i].as<std::string>(); };
        charges.push_back(
            {field(0), row[1].as<int>(), field(2), field(3), field(4), field(5), field(6)});
    }
    return charges;
}

Intents gather(const std::vector<Request>& requests, const std::vector<BookedCharge>& charges) {
    Intents intents;
    for (const auto& request : requests) {
        if (!refused(request)) intents[{request.tenant, *request.key}].lines.push_back(&request);
    }
    for (const auto& charge : charges) {
        const auto intent = intents.find({charge.tenant, charge.key});
        if (intent != intents.end()) intent->second.charges.push_back(&charge);
    }
    return intents;
}

bool charged_exactly_once(std::ostream& out, const Intents& intents) {
    Check check(out, "each of " + text(intents.size()) + " intents was charged exactly once");
    for (const auto& [name, intent] : intents) {
        check.expect(intent.charges.size() == 1, line_name(*intent.lines[0]) + ": charged " +
                                                     text(intent.charges.size()) + " times");
    }
    return check.conclude();
}

bool charged_as_asked(std::ostream& out, const Intents& intents) {
    Check check(out, "each charge is the one asked for: customer, amount and currency");
    for (const auto& [name, intent] : intents) {
        const Request& asked = *intent.lines[0];
        for (const auto* charge : intent.charges) {
            const bool same = charge->customer == asked.customer &&
                              charge->amount == asked.amount && charge->currency == asked.currency;
            check.expect(same, line_name(asked) + ": charged " + charge->amount);
        }
    }
    return check.conclude();
}

bool same_bytes(const Answer& a, const Answer& b) {
    return a.status == b.status && a.headers.view() == b.headers.view() &&
           a.body.view() == b.body.view();
}

bool names_charge(const Answer& answer, const std::vector<const BookedCharge*>& charges) {
    const auto body = nlohmann::json::parse(answer.body.view(), nullptr, false);
    return body.is_object() && charges.size() == 1 && body.value("id", "") == charges[0]->id;
}

bool repeats_got_the_first_answer(std::ostream& out, const Intents& intents, const Board& board) {
    Check check(out, "every repeat got the byte-identical first answer, and it names the charge");
    for (const auto& [name, intent] : intents) {
        const Answer& first = board.line(intent.lines[0]->n).answer;
        for (const auto* request : intent.lines) {
            const Answer& answer = board.line(request->n).answer;
            check.expect(
                answer.status == kCreated && same_bytes(answer, first),
                line_name(*request) + ": answered otherwise than " + line_name(*intent.lines[0]));
            check.expect(names_charge(answer, intent.charges),
                         line_name(*request) + ": its answer does not name the one charge");
        }
    }
    return check.conclude();
}

bool refused_as_expected(std::ostream& out, const std::vector<Request>& requests,
                         const Board& board) {
    const auto count = std::count_if(requests.begin(), requests.end(), refused);
    Check check(out, "all " + std::to_string(count) + " requests to be refused were refused");
    for (const auto& request : requests) {
        const int status = board.line(request.n).answer.status;
        check.expect(!refused(request) || status == request.expect,
                     line_name(request) + ": answered " + std::to_string(status) + " instead of " +
                         std::to_string(request.expect));
    }
    return check.conclude();
}

bool refused_left_no_trace(std::ostream& out, pqxx::transaction_base& tx,
                           const std::vector<Request>& requests, const Intents& intents,
                           const std::vector<BookedCharge>& charges) {
    Check check(out, "no refused request left a trace: no charge, no record beside the intents'");
    for (const auto& charge : charges) {
        const auto& by = requests.at(static_cast<std::size_t>(charge.line) - 1);
        check.expect(!refused(by), line_name(by) + ": charged " + charge.amount);
    }
    std::size_t records = 0;
    for (const auto& row : tx.exec("SELECT principal, key, status FROM idempotency.records"
                                   " WHERE scope = 'POST /payments'")) {
        const IntentName name{row[0].as<std::string>(), row[1].as<std::string>()};
        ++records;
        check.expect(intents.count(name) == 1, "record of nobody's key \"" + name.second + '"');
        check.expect(row[2].as<std::string>() == "completed",
                     "record left " + row[2].as<std::string>());
    }
    check.expect(records == intents.size(),
                 text(records) + " records of " + text(intents.size()) + " intents");
    return check.conclude();
}

bool balances_match(std::ostream& out, pqxx::transaction_base& tx) {
    Check check(out, "each balance is the sum of its charges");
    for (const auto& row :
         tx.exec("SELECT tenant, customer, currency FROM payments.account"
                 "  FULL JOIN (SELECT tenant, customer, currency, sum(amount) AS total"
                 "               FROM payments.charge GROUP BY tenant, customer, currency) AS c"
                 " USING (tenant, customer, currency) WHERE balance IS DISTINCT FROM total")) {
        check.expect(false, row[0].as<std::string>() + ' ' + row[1].as<std::string>() + ' ' +
                                row[2].as<std::string>());
    }
    return check.conclude();
}

// Otherwise the counts above could hide a request that was never judged.
bool accounts_add_up(std::ostream& out, const Counters& c, const Board& board,
                     std::size_t charges) {
    Check check(out, "the counts add up: every sending ended in one way, every charge was counted");
    const int ends = c.executed + c.replayed + c.in_progress + c.mismatched + c.bad_keys +
                     c.terminated + c.crashed + c.unheard + c.disconnected;
    check.expect(board.common().answered == board.lines(), "not every request was answered");
    check.expect(c.sent == ends,
                 std::to_string(c.sent) + " sent, " + std::to_string(ends) + " ended");
    check.expect(c.disconnected != 0 || text(charges) == std::to_string(c.executed + c.unheard),
                 text(charges) + " charges in the database");
    return check.conclude();
}

bool faults_struck(std::ostream& out, const Counters& c) {
    Check check(out, "faults of each kind met an open claim");
    check.expect(c.terminated > 0, "no backend was terminated between idem_begin and COMMIT");
    check.expect(c.crashed > 0, "no client was killed between idem_begin and COMMIT");
    check.expect(c.unheard > 0, "no answer to a COMMIT was lost");
    return check.conclude();
}

}  // namespace

bool judge(std::ostream& out, const std::string& database, const std::vector<Request>& requests,
           const Board& board) {
    pqxx::connection connection(database);
    pqxx::work tx(connection);
    tx.exec("SET LOCAL client_encoding TO 'UTF8'");
    const auto charges = read_charges(tx);
    const auto intents = gather(requests, charges);
    const Counters& counters = board.common().counters;
    const bool held[] = {
        charged_exactly_once(out, intents),
        charged_as_asked(out, intents),
        repeats_got_the_first_answer(out, intents, board),
        refused_as_expected(out, requests, board),
        refused_left_no_trace(out, tx, requests, intents, charges),
        balances_match(out, tx),
        accounts_add_up(out, counters, board, charges.size()),
        faults_struck(out, counters),
    };
    return std::all_of(std::begin(held), std::end(held), [](bool one) { return one; });
}

}  // namespace payments
