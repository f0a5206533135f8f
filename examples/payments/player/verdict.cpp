#include "verdict.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <pqxx/pqxx>
#include <tuple>
#include <utility>

#include "idempotency/bytea.hpp"

namespace payments {
namespace {

// What was paid: no two intents of the input are alike in it.
using Payment = std::tuple<std::string, std::string, std::string, std::string>;

struct BookedCharge {
    std::string id;
    std::string tenant, customer, currency, amount;
    Payment payment() const { return {tenant, customer, currency, amount}; }
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
    for (const auto& row : tx.exec("SELECT id, tenant, customer, currency, amount"
                                   "  FROM payments.charge ORDER BY charged_at")) {
        const auto field = [&row](int i) { return row[i].as<std::string>(); };
        charges.push_back({field(0), field(1), field(2), field(3), field(4)});
    }
    return charges;
}

Intents intents_of(const std::vector<Request>& requests) {
    Intents intents;
    for (const auto& request : requests) {
        if (!refused(request)) intents[{request.tenant, *request.key}].lines.push_back(&request);
    }
    return intents;
}

// Returns the charges that nobody wanted.
std::vector<const BookedCharge*> hand_out(const std::vector<BookedCharge>& charges,
                                          Intents& intents) {
    std::map<Payment, Intent*> wanted;
    for (auto& [name, intent] : intents) {
        const Request& asked = *intent.lines[0];
        wanted[{asked.tenant, asked.customer, asked.currency, asked.amount}] = &intent;
    }
    std::vector<const BookedCharge*> unwanted;
    for (const auto& charge : charges) {
        const auto intent = wanted.find(charge.payment());
        auto& place = intent == wanted.end() ? unwanted : intent->second->charges;
        place.push_back(&charge);
    }
    return unwanted;
}

bool charged_exactly_once(std::ostream& out, const Intents& intents) {
    Check check(out, "each of " + text(intents.size()) + " intents was charged exactly once");
    for (const auto& [name, intent] : intents) {
        check.expect(intent.charges.size() == 1, line_name(*intent.lines[0]) + ": charged " +
                                                     text(intent.charges.size()) + " times");
    }
    return check.conclude();
}

bool nothing_else_was_charged(std::ostream& out, const std::vector<const BookedCharge*>& unwanted) {
    Check check(out, "each charge is one asked for: customer, amount and currency");
    for (const auto* charge : unwanted) {
        check.expect(false, charge->tenant + ' ' + charge->customer + ": charged " +
                                charge->amount + ' ' + charge->currency);
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
    Check check(out,
                "every repeat got the byte-identical first answer, headers and body, and it"
                " names the charge");
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

bool repeats_are_marked(std::ostream& out, const Intents& intents, const Board& board) {
    Check check(out, "of each intent's answers all but the first say Idempotent-Replayed: true");
    for (const auto& [name, intent] : intents) {
        const auto unmarked =
            std::count_if(intent.lines.begin(), intent.lines.end(),
                          [&board](const Request* r) { return !board.line(r->n).answer.replayed; });
        check.expect(unmarked <= 1, line_name(*intent.lines[0]) + ": " + std::to_string(unmarked) +
                                        " answers are not marked as repeats");
    }
    return check.conclude();
}

// A stored header appears as it is, among those that the server adds.
bool carries(const Answer& answer, const nlohmann::json& stored_headers) {
    const std::string headers{answer.headers.view()};
    for (const auto& [name, value] : stored_headers.items()) {
        std::string line = name + ": " + value.get<std::string>() + '\n';
        std::transform(name.begin(), name.end(), line.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        if (headers.find(line) == std::string::npos) return false;
    }
    return true;
}

bool told_what_is_stored(std::ostream& out, pqxx::transaction_base& tx, const Intents& intents,
                         const Board& board) {
    Check check(out, "each record is completed and holds the very answer that was given");
    std::size_t records = 0;
    for (const auto& row : tx.exec("SELECT principal, key, status, status_code, headers,"
                                   "       body"
                                   "  FROM idempotency.records WHERE scope = 'POST /payments'")) {
        const auto intent = intents.find({row[0].as<std::string>(), row[1].as<std::string>()});
        ++records;
        if (intent == intents.end()) {
            check.expect(false, "record of nobody's key \"" + row[1].as<std::string>() + '"');
            continue;
        }
        const Request& request = *intent->second.lines[0];
        const Answer& told = board.line(request.n).answer;
        const bool same =
            row[2].as<std::string>() == "completed" && row[3].as<int>(0) == told.status &&
            idempotency::from_bytea(row[5].as<std::string>("\\x")) == told.body.view() &&
            carries(told, nlohmann::json::parse(row[4].as<std::string>("{}")));
        check.expect(same, line_name(request) + ": the record is another");
    }
    check.expect(records == intents.size(),
                 text(records) + " records of " + text(intents.size()) + " intents");
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

// Otherwise the counts above could hide a request that was never judged. Where an answer was lost,
// nobody can tell whether there was a charge; everywhere else the answers count them.
bool counts_add_up(std::ostream& out, const Board& board, std::size_t charges) {
    Check check(out, "the counts add up: every sending ended in one way, every charge was counted");
    const Endings& e = board.common().endings;
    const int told = e.executed + e.unheard + e.crashed;
    const int untold = e.lost + e.impatient + e.failed;
    const int ends = told + untold + e.replayed + e.in_progress + e.mismatched + e.bad_keys +
                     e.strange + e.unreached;
    const int sent = board.common().sent;
    const auto booked = static_cast<int>(charges);
    check.expect(board.common().answered == board.lines(), "not every request was answered");
    check.expect(sent == ends, std::to_string(sent) + " sent, " + std::to_string(ends) + " ended");
    check.expect(told <= booked && booked <= told + untold,
                 text(charges) + " charges, " + std::to_string(told) + " told of");
    return check.conclude();
}

bool faults_struck(std::ostream& out, const Common& common) {
    Check check(out, "faults of each kind really hit");
    const Blows& blows = common.blows;
    const Endings& endings = common.endings;
    check.expect(blows.died_with_service > 0, "no claim died open with its service process");
    check.expect(blows.died_with_backend > 0, "no claim died open with its connection");
    check.expect(endings.lost > 0, "no client lost its answer to a killed service");
    check.expect(endings.unheard > 0, "no client hung up on an answer");
    check.expect(endings.crashed > 0, "no client was killed before it read its answer");
    check.expect(endings.impatient > 0, "no client hung up while the service was at work");
    return check.conclude();
}

}  // namespace

bool judge(std::ostream& out, const std::string& database, const std::vector<Request>& requests,
           const Board& board) {
    pqxx::connection connection(database);
    pqxx::work tx(connection);
    tx.exec("SET LOCAL client_encoding TO 'UTF8'");
    const auto charges = read_charges(tx);
    auto intents = intents_of(requests);
    const auto unwanted = hand_out(charges, intents);
    const bool held[] = {
        charged_exactly_once(out, intents),
        nothing_else_was_charged(out, unwanted),
        repeats_got_the_first_answer(out, intents, board),
        repeats_are_marked(out, intents, board),
        told_what_is_stored(out, tx, intents, board),
        refused_as_expected(out, requests, board),
        balances_match(out, tx),
        counts_add_up(out, board, charges.size()),
        faults_struck(out, board.common()),
    };
    return std::all_of(std::begin(held), std::end(held), [](bool one) { return one; });
}

}  // namespace payments
