// Both stores, driven with the same random calls, give the same answers. Each has a principal of
// its own in the same table, and two sessions that get in each other's way: open transactions,
// savepoints, leases that run out, tokens of former claims.
#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <optional>
#include <random>

#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kRounds = 30;
constexpr int kMostRounds = 300;
constexpr int kSteps = 120;  // of a round
constexpr int kSessions = 2;

// A statement in which @p stands for the principal and @t for a token.
struct Step {
    int session;
    std::string sql;
    std::size_t token;  // which of those handed out so far, counted from the end
    bool may_lease;     // for a moment, after which it is over: both stores are to agree about that
};

// What to do next; the same seed gives the same steps.
class Generator {
  public:
    explicit Generator(std::uint64_t seed) : random_(seed) {}

    Step next() {
        leases_ = false;
        if (after_release_) return after_release();
        const int session = below(kSessions);
        const std::string sql = below(3) == 0 ? control() : call();
        if (sql.find("idem_release") != std::string::npos) after_release_ = session;
        return {session, sql, static_cast<std::size_t>(below(4)), leases_};
    }

  private:
    int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

    std::string pick(const std::vector<std::string>& choices) {
        return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
    }

    // A lease counts from the commit, where its row is written then.
    std::string control() {
        const std::string command =
            pick({"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "COMMIT", "COMMIT", "ROLLBACK",
                  "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"});
        leases_ = command == "COMMIT";
        return command;
    }

    // Where a claim of an open transaction is released, the lock of its key is given back at once
    // by one store and kept until the transaction ends by the other (docs/operations.md, "The two
    // stores"), so that nobody else is to ask meanwhile.
    Step after_release() {
        const int session = *after_release_;
        after_release_.reset();
        leases_ = true;
        return {session, pick({"COMMIT", "ROLLBACK", "ROLLBACK TO s"}), 0, leases_};
    }

    // Whose claim the call speaks of: this transaction's, or the one with a token.
    std::string holder() { return pick({"", ", token => @t"}); }

    std::string named() {
        return pick({"'a'", "'b'", "'c'"}) + ", scope => 'client', principal => '@p'";
    }

    std::string begin_call() {
        const std::string lease = pick({"1 hour", "1 hour", "1 ms"});
        leases_ = lease == "1 ms";
        return "SELECT outcome, token, attempt, status, status_code, headers, body, body_omitted,"
               " error, recovery_point, state, holder, retry_after IS NULL FROM idem_begin(" +
               named() + ", lease => '" + lease + "', request => '" + pick({"1", "1", "1", "2"}) +
               "', wait => '" + pick({"0", "0", "5 ms"}) + "')";
    }

    std::string complete_call() {
        const std::string body = pick({"NULL::text", "''", "'ok'", "repeat('long', 5000)"});
        return "SELECT idem_complete(" + named() + ", status_code => 201, body => " + body +
               ", headers => " + pick({"NULL", R"('{"X": "y"}')"}) + holder() + ")";
    }

    std::string fail_call() {
        return "SELECT idem_fail(" + named() + ", error => 'broken', retryable => " +
               pick({"false", "true, retry_after => '0'", "true, retry_after => '1 hour'"}) +
               holder() + ")";
    }

    // A sign of life begins the claim's own lease anew.
    std::string checkpoint_call() {
        leases_ = true;
        return "SELECT idem_checkpoint(" + named() + ", recovery_point => '" + pick({"p", "q"}) +
               "', state => '{\"n\": 1}'" + holder() + ") IS NULL";
    }

    std::string other_call() {
        const std::string extend = "SELECT idem_extend(" + named() + ", token => @t) IS NULL";
        const std::string call =
            pick({"SELECT idem_release(" + named() + holder() + ")", extend,
                  "SELECT idem_once(" + named() + ", wait => '5 ms')",
                  "SELECT status, attempt, body FROM idem_get(" + named() + ")",
                  "SELECT idem_forget(" + named() + ")",
                  "SELECT idem_resolve(" + named() + ", action => '" +
                      pick({"release", "complete", "fail"}) + "')"});
        leases_ = call == extend;
        return call;
    }

    std::string call() {
        switch (below(8)) {
            case 0:
            case 1:
            case 2:
                return begin_call();
            case 3:
            case 4:
                return complete_call();
            case 5:
                return fail_call();
            case 6:
                return checkpoint_call();
            default:
                return other_call();
        }
    }

    std::mt19937_64 random_;
    bool leases_ = false;
    std::optional<int> after_release_;  // the session that has just released
};

std::string replaced(std::string sql, const std::string& mark, const std::string& value) {
    for (auto at = sql.find(mark); at != std::string::npos; at = sql.find(mark))
        sql.replace(at, mark.size(), value);
    return sql;
}

// The sessions of one store. They are made while the server has that store, and their first call
// makes it theirs for good.
class World {
  public:
    explicit World(const std::string& store) : store_(store) {
        for (Session& session : sessions_) {
            // From libpqxx 8 on a row of a result does not keep it.
            const pqxx::result shown = session.work.exec("SHOW idempotency.store");
            EXPECT_EQ(shown.at(0)[0].as<std::string>(), store);
            session.work.exec("SELECT idem_get('a', 'client', '')");
            session.work.exec("SET lock_timeout = '10 ms'");
        }
    }

    // The answer as text, without what differs from claim to claim.
    std::string take(const Step& step) {
        std::string sql = replaced(step.sql, "@p", store_);
        sql =
            replaced(sql, "@t",
                     step.token < tokens_.size() ? tokens_[tokens_.size() - 1 - step.token] : "1");
        try {
            return text_of(sessions_[static_cast<std::size_t>(step.session)].work.exec(sql));
        } catch (const pqxx::serialization_failure&) {  // of another family until libpqxx 7
            return "40001";
        } catch (const pqxx::sql_error& error) {
            return std::string(error.sqlstate());
        }
    }

  private:
    struct Session {
        pqxx::connection connection;
        pqxx::nontransaction work{connection};
    };

    std::string text_of(const pqxx::result& rows) {
        std::string text;
        for (const auto row : rows)
            for (const auto field : row) {
                const bool is_token = std::string(field.name()) == "token";
                if (is_token && !field.is_null()) tokens_.push_back(field.c_str());
                text += is_token || field.is_null() ? "-" : field.c_str();
                text += '|';
            }
        return text;
    }

    const std::string store_;
    std::array<Session, kSessions> sessions_;
    std::vector<std::string> tokens_;
};

class Stores : public ClientTest {
  protected:
    void SetUp() override {
        ClientTest::SetUp();
        run(admin_, "SELECT idem_policy_set('client', on_lease_expiry => 'takeover')");
    }

    void TearDown() override {
        set_store("ALTER SYSTEM RESET idempotency.store", configured_);
        ClientTest::TearDown();
    }

    // Connections made from now on have it. A backend learns of a reload after the postmaster has.
    void set_store(const std::string& command, const std::string& store) {
        run(admin_, command);
        run(admin_, "SELECT pg_reload_conf()");
        wait_until("the server has another store", [&] { return store_of(admin_) == store; });
    }

    static std::string store_of(pqxx::connection& connection) {
        return value<std::string>(connection, "SHOW idempotency.store");
    }

    World world_of(const std::string& store) {
        set_store("ALTER SYSTEM SET idempotency.store = " + store, store);
        return World(store);
    }

    // The records that a store's calls have left behind.
    std::string left_by(const std::string& store) {
        return value<std::string>(
            admin_,
            "SELECT coalesce(string_agg(concat_ws('|', key, status, attempt, status_code,"
            "  md5(body), headers, error, recovery_point, state, resolved_by, fingerprint), ';'"
            "  ORDER BY key), '') FROM idempotency.records"
            " WHERE scope = 'client' AND principal = $1",
            store);
    }

    int records() {
        return value<int>(admin_, "SELECT count(*) FROM idempotency.record WHERE scope = 'client'");
    }

    void expect_same_round(std::uint64_t seed, std::map<std::string, int>* answers);

    const std::string configured_ = store_of(admin_);
};

void Stores::expect_same_round(std::uint64_t seed, std::map<std::string, int>* answers) {
    World sql = world_of("sql");
    World heap = world_of("heap");
    Generator generator(seed);
    for (int i = 0; i < kSteps; ++i) {
        const Step step = generator.next();
        const std::string expected = sql.take(step);
        ASSERT_EQ(heap.take(step), expected) << "seed " << seed << ", step " << i << ", session "
                                             << step.session << ": " << step.sql;
        ++(*answers)[expected.substr(0, expected.find('|'))];
        if (step.may_lease) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
}

// What the steps have to meet, or the comparison says little.
constexpr const char* kWanted[] = {"execute", "replay", "in_progress", "mismatch", "retry_later",
                                   "ID404",   "ID409",  "55P03",       "t",        "f"};

bool all_met(const std::map<std::string, int>& answers) {
    return std::all_of(std::begin(kWanted), std::end(kWanted),
                       [&answers](const char* wanted) { return answers.count(wanted) > 0; });
}

// Some answers are rare, so a seed may need more rounds than others.
TEST_F(Stores, AnswerTheSame) {
    const std::uint64_t seed = std::random_device{}();
    std::map<std::string, int> answers;
    const auto goes_on = [&answers](std::uint64_t round) {
        return round < kRounds || (round < kMostRounds && !all_met(answers));
    };
    for (std::uint64_t round = 0; goes_on(round) && !HasFatalFailure(); ++round) {
        run(admin_, "DELETE FROM idempotency.record WHERE scope = 'client'");
        expect_same_round(seed + round, &answers);
        ASSERT_EQ(left_by("heap"), left_by("sql")) << "seed " << seed + round;
    }
    std::cout << "seed " << seed << ":";
    for (const auto& [answer, times] : answers) std::cout << ' ' << answer << '=' << times;
    std::cout << '\n';
    for (const char* wanted : kWanted) EXPECT_GT(answers[wanted], 0) << "never met: " << wanted;
    EXPECT_EQ(answers["42883"], 0) << "a step calls what does not exist";
}

}  // namespace
}  // namespace idem::client
