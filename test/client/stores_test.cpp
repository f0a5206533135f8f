// Both stores, driven with the same random calls, give the same answers. Each has its own database,
// and two sessions that interfere: open transactions of all isolation levels, savepoints, leases
// that expire, tokens of former claims, decisions about keys that the same
// transaction claims, and work that depends on what it reads.
#include <algorithm>
#include <array>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kRounds = 30;
constexpr int kMostRounds = 300;
constexpr int kSteps = 120;  // of a round
constexpr int kSessions = 2;
constexpr std::size_t kStateLength = 5;  // of a SQLSTATE; an answer ends with a bar

// A statement in which @p stands for the principal and @t for a token.
struct Step {
    int session;
    std::string sql;
    std::size_t token;  // which of those handed out so far, counted from the end
    bool may_lease;     // briefly, then it expires: both stores have to agree about that
};

// What to do next; the same seed gives the same steps.
class Generator {
  public:
    explicit Generator(std::uint64_t seed) : random_(seed) {}

    Step next() {
        leases_ = false;
        if (after_release_) return after_release();
        if (script_.empty() && below(12) == 0) write_script();
        // The other session may come between two steps of a script.
        if (!script_.empty() && below(4) != 0) return next_of_script();
        const int session = script_.empty() ? below(kSessions) : 1 - script_session_;
        const std::string sql = below(3) == 0 ? control() : call();
        if (sql.find("SELECT idem_release") == 0) after_release_ = session;
        return {session, sql, static_cast<std::size_t>(below(4)), leases_};
    }

    // A script stops when its transaction has failed.
    void failed(int session) {
        if (script_.empty() || session != script_session_) return;
        script_ = {{session, "ROLLBACK", 0, false}};
    }

  private:
    int below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

    std::string pick(const std::vector<std::string>& choices) {
        return choices[static_cast<std::size_t>(below(static_cast<int>(choices.size())))];
    }

    // A lease counts from the commit, if its row is written then.
    std::string control() {
        const std::string command = pick({"BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ",
                                          "BEGIN ISOLATION LEVEL SERIALIZABLE", "COMMIT", "COMMIT",
                                          "ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"});
        leases_ = command == "COMMIT";
        return command;
    }

    // Where a claim is released whose transaction has written nothing, the key is free at once by
    // one store and when the transaction ends by the other (docs/operations/sizing.md, "The two
    // stores"), so that no other session may ask meanwhile.
    Step after_release() {
        const int session = *after_release_;
        after_release_.reset();
        leases_ = true;
        return {session, pick({"COMMIT", "ROLLBACK", "ROLLBACK TO s"}), 0, leases_};
    }

    // A transaction that looks first, then decides about a key, claims it, and does what it has not
    // seen done; the other session has claimed the key before, and does its work meanwhile.
    void write_script() {
        script_session_ = below(kSessions);
        const int other = 1 - script_session_;
        key_ = pick({"'a'", "'b'", "'c'"});
        const auto add = [this](int session, const std::string& sql) {
            script_.push_back({session, sql, static_cast<std::size_t>(below(2)), true});
        };
        const bool has_holder = below(2) == 0;
        add(script_session_, "ROLLBACK");
        if (has_holder) add(other, "ROLLBACK");
        if (has_holder) add(other, begin_call());
        add(script_session_,
            "BEGIN ISOLATION LEVEL " + pick({"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}));
        add(script_session_, "SELECT count(*) FROM client_test.effect");
        if (has_holder) add(other, work_call());
        if (has_holder && below(2) == 0) add(other, decision_call());
        const bool undone = below(5) == 0;
        if (undone) add(script_session_, "SAVEPOINT s");
        if (below(3) == 0) add(script_session_, begin_call());
        if (below(3) == 0) add(script_session_, work_call());
        add(script_session_, decision_call());
        if (undone) add(script_session_, "ROLLBACK TO s");
        add(script_session_, begin_call());
        add(script_session_, work_call());
        if (below(2) == 0) add(script_session_, call());
        add(script_session_, pick({"COMMIT", "COMMIT", "ROLLBACK"}));
        key_.clear();
    }

    Step next_of_script() {
        const Step step = script_.front();
        script_.pop_front();
        return step;
    }

    // With work done in the same transaction. A script, whose steps do not follow each other at
    // once, has no other release.
    std::string worked_and_released() {
        return "WITH work AS (INSERT INTO client_test.work VALUES (1) RETURNING 1) SELECT"
               " idem_release(" +
               named() + holder() + ") FROM work";
    }

    std::string released() {
        if (!key_.empty() || below(2) == 0) return worked_and_released();
        return "SELECT idem_release(" + named() + holder() + ")";
    }

    std::string decision_call() {
        return pick(
            {worked_and_released(),
             "SELECT idem_fail(" + named() +
                 ", retryable => true, retry_after => '0', token => @t)",
             "SELECT idem_resolve(" + named() + ", action => 'release', even_if_running => true)",
             unknown_call(), "SELECT idem_forget(" + named() + ")",
             "SELECT idem_erase(" + named() + ")", "SELECT idem_cleanup()"});
    }

    // Once for each key, as far as its transaction can see.
    std::string work_call() {
        const std::string key = key_.empty() ? pick({"'a'", "'b'", "'c'"}) : key_;
        return "INSERT INTO client_test.effect SELECT " + key +
               " WHERE NOT EXISTS (SELECT FROM client_test.effect WHERE key = " + key +
               ") RETURNING key";
    }

    // Whose claim the call speaks of: this transaction's, or the one with a token.
    std::string holder() { return pick({"", ", token => @t"}); }

    std::string named() {
        const std::string key = key_.empty() ? pick({"'a'", "'b'", "'c'"}) : key_;
        return key + ", scope => 'client', principal => '@p'";
    }

    std::string begin_call() {
        const std::string lease = pick({"1 hour", "1 hour", "1 ms"});
        leases_ = lease == "1 ms";
        return "SELECT outcome, token, attempt, status, status_code, headers, body, body_omitted,"
               " error, reference, recovery_point, state, holder, retry_after IS NULL FROM "
               "idem_begin(" +
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
               pick({"false", "true, retry_after => '0'", "true, retry_after => '1 hour'",
                     "true, uncertain => true, retry_after => '0'"}) +
               holder() + ")";
    }

    std::string unknown_call() {
        return "SELECT idem_unknown(" + named() + ", error => 'timeout', reference => " +
               pick({"NULL", "'ch_1'"}) + holder() + ")";
    }

    std::string resolve_call() {
        return "SELECT idem_resolve(" + named() + ", action => '" +
               pick({"release", "complete", "fail", "reopen"}) + "', reason => 'decided')";
    }

    // A heartbeat restarts the claim's own lease.
    std::string checkpoint_call() {
        leases_ = true;
        return "SELECT idem_checkpoint(" + named() + ", recovery_point => '" + pick({"p", "q"}) +
               "', state => '{\"n\": 1}'" + holder() + ") IS NULL";
    }

    std::string other_call() {
        const std::string extend = "SELECT idem_extend(" + named() + ", token => @t) IS NULL";
        const std::string call =
            pick({released(), extend, "SELECT idem_once(" + named() + ", wait => '5 ms')",
                  "SELECT status, attempt, body FROM idem_get(" + named() + ")",
                  "SELECT idem_forget(" + named() + ")", "SELECT idem_erase(" + named() + ")",
                  "SELECT idem_cleanup()", unknown_call(), resolve_call(), resolve_call()});
        leases_ = call == extend;
        return call;
    }

    std::string call() {
        switch (below(9)) {
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
            case 7:
                return work_call();
            default:
                return other_call();
        }
    }

    std::mt19937_64 random_;
    bool leases_ = false;
    std::optional<int> after_release_;  // the session that has just released
    std::deque<Step> script_;
    int script_session_ = 0;
    std::string key_;  // of the script that is being written
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
    World(const std::string& store, const std::string& database) : store_(store) {
        for (Session& session : sessions_) {
            session.open(database);
            // From libpqxx 8 on a row of a result does not keep it.
            const pqxx::result shown = session.work().exec("SHOW idempotency.store");
            EXPECT_EQ(shown.at(0)[0].as<std::string>(), store);
            session.work().exec("SELECT idem_get('a', 'client', '')");
            session.work().exec("SET lock_timeout = '10 ms'");
        }
    }

    // Of the transaction that is open, also if it has failed.
    bool is_serializable(const Step& step) { return session(step).serializable; }

    // The answer as text, without what differs from claim to claim.
    std::string take(const Step& step) {
        std::string sql = replaced(step.sql, "@p", store_);
        sql =
            replaced(sql, "@t",
                     step.token < tokens_.size() ? tokens_[tokens_.size() - 1 - step.token] : "1");
        if (sql.find("SERIALIZABLE") != std::string::npos) session(step).serializable = true;
        if (sql == "COMMIT" || sql == "ROLLBACK") session(step).serializable = false;
        try {
            return text_of(session(step).work().exec(sql));
        } catch (const pqxx::serialization_failure&) {  // of another family until libpqxx 7
            return "40001";
        } catch (const pqxx::sql_error& error) {
            return std::string(error.sqlstate());
        }
    }

  private:
    struct Session {
        void open(const std::string& database) {
            connection_ = std::make_unique<pqxx::connection>("dbname=" + database);
            work_ = std::make_unique<pqxx::nontransaction>(*connection_);
        }
        pqxx::nontransaction& work() { return *work_; }
        bool serializable = false;

      private:
        std::unique_ptr<pqxx::connection> connection_;
        std::unique_ptr<pqxx::nontransaction> work_;
    };

    Session& session(const Step& step) { return sessions_[static_cast<std::size_t>(step.session)]; }

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

constexpr const char* kStores[] = {"sql", "heap"};

class Stores : public ClientTest {
  protected:
    void SetUp() override {
        ClientTest::SetUp();
        // Claims are abandoned only where a step says so.
        run(admin_, "ALTER SYSTEM SET idempotency.cleanup_interval = 0");
        for (const std::string store : kStores) create_database(database_of(store));
    }

    void TearDown() override {
        run(admin_, "ALTER SYSTEM RESET idempotency.cleanup_interval");
        set_store("ALTER SYSTEM RESET idempotency.store", configured_);
        for (const std::string store : kStores) drop_database(database_of(store));
        ClientTest::TearDown();
    }

    static std::string database_of(const std::string& store) { return "client_" + store; }

    void create_database(const std::string& name) {
        drop_database(name);
        run(admin_, "CREATE DATABASE " + name);
        pqxx::connection connection("dbname=" + name);
        run(connection, "CREATE EXTENSION idempotency");
        run(connection, "CREATE SCHEMA client_test");
        run(connection, "CREATE TABLE client_test.effect (key text NOT NULL)");
        run(connection, "CREATE TABLE client_test.work (done int)");
        run(connection,
            "SELECT idem_policy_set('client', on_lease_expiry => 'takeover', store_request => true,"
            " keep_history => true, abandon_after => '1 ms', on_abandon => 'release',"
            " max_attempts => 3)");
    }

    void drop_database(const std::string& name) {
        run(admin_, "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)");
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
        return World(store, database_of(store));
    }

    // The state that a store's calls have left behind.
    static std::string left_by(const std::string& store) {
        pqxx::connection connection("dbname=" + database_of(store));
        return value<std::string>(
            connection,
            "SELECT coalesce(string_agg(concat_ws('|', key, status, attempt, status_code,"
            "  md5(body), headers, error, reference, recovery_point, state, resolved_by, "
            "fingerprint), ';'"
            "  ORDER BY key), '') || (SELECT count(*) FROM client_test.effect)"
            " FROM idempotency.records WHERE scope = 'client'");
    }

    static void empty(const std::string& store) {
        pqxx::connection connection("dbname=" + database_of(store));
        run(connection, "DELETE FROM idempotency.record");
        run(connection, "DELETE FROM client_test.effect");
    }

    void expect_same_round(std::uint64_t seed, std::map<std::string, int>* answers);

    const std::string configured_ = store_of(admin_);
};

// A serialization failure that the SQL store meets in a SERIALIZABLE transaction may be a false one
// (docs/operations/sizing.md, "The two stores"): there both roll back.
void Stores::expect_same_round(std::uint64_t seed, std::map<std::string, int>* answers) {
    World sql = world_of("sql");
    World heap = world_of("heap");
    Generator generator(seed);
    for (int i = 0; i < kSteps; ++i) {
        const Step step = generator.next();
        const bool serializable = sql.is_serializable(step);
        const std::string expected = sql.take(step);
        const Step rollback{step.session, "ROLLBACK", 0, false};
        const bool may_be_false = serializable && expected == "40001";
        const std::string answer = heap.take(may_be_false ? rollback : step);
        if (may_be_false) {
            (void)sql.take(rollback);
            continue;
        }
        if (expected.size() == kStateLength) generator.failed(step.session);
        ASSERT_EQ(answer, expected) << "seed " << seed << ", step " << i << ", session "
                                    << step.session << ": " << step.sql;
        ++(*answers)[expected.substr(0, expected.find('|'))];
        if (step.may_lease) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
}

// The cases that the steps have to reach; otherwise the comparison proves little.
constexpr const char* kWanted[] = {"execute",     "replay", "in_progress", "mismatch",
                                   "retry_later", "ID404",  "ID409",       "55P03",
                                   "t",           "f",      "40001",       "done",
                                   "running",     "passed", "unknown",     "exhausted"};

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
        for (const std::string store : kStores) empty(store);
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
