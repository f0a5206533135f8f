// A thousand keys, each requested twice, on eight connections whose backends are killed at every
// stage of the work. Each key must have had its effect exactly once.
#include <array>
#include <atomic>
#include <memory>

#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kKeys = 1000;
constexpr int kDeliveries = 2 * kKeys;
constexpr int kWorkers = 8;
constexpr int kTries = 50;          // of one delivery, before its failure is the test's
constexpr int kSurpriseEvery = 25;  // deliveries

// The point between BEGIN and COMMIT at which a worker is hit.
enum class Stage { Begun, Effective, Completed };
constexpr std::array<const char*, 3> kStageNames = {"begun", "effective", "completed"};

// State that workers share. Kills count only if the victim was seen in its transaction and, before
// it had completed, with its claim's lock.
struct Field {
    std::atomic<int> next_delivery{0};
    std::array<std::atomic<bool>, kKeys> had_accident{};
    std::array<std::atomic<int>, 3> hits{};
    std::array<std::atomic<int>, kWorkers> backends{};
};

std::string name_of(int key) {
    return "key " + std::to_string(key);
}

// Three keys of ten have an accident, one at each stage.
bool accident_planned(int key, Stage stage) {
    return key % 10 == static_cast<int>(stage);
}

class Worker {
  public:
    Worker(Field& field, int number) : field_(field), number_(number) { reconnect(); }

    // The body that the client of a delivery receives.
    std::string deliver(int key) {
        for (int tries = 1;; ++tries) {
            try {
                if (const auto body = attempt(key)) return *body;
            } catch (const pqxx::failure&) {
                if (connection_->is_open()) throw;
                reconnect();
            }
            if (tries == kTries) throw std::runtime_error(name_of(key) + " is never answered");
        }
    }

    // Kills another worker's backend at any moment, COMMIT included.
    void surprise_a_colleague(int delivery) {
        const int victim = (number_ + 1 + delivery / kSurpriseEvery % (kWorkers - 1)) % kWorkers;
        run(executioner_, "SELECT pg_terminate_backend($1)", field_.backends[victim].load());
    }

  private:
    void reconnect() {
        connection_ = std::make_unique<pqxx::connection>();
        field_.backends[number_] = connection_->backendpid();
    }

    // Empty if another connection still had the key when the wait expired.
    std::optional<std::string> attempt(int key) {
        pqxx::work tx(*connection_);
        const Claim claim = begin(tx, name_of(key), {"5 s"});
        if (claim.outcome == "execute") return execute(tx, key, *claim.token);
        tx.commit();
        if (claim.outcome == "in_progress") return std::nullopt;
        if (claim.outcome != "replay") throw std::runtime_error("outcome " + claim.outcome);
        return claim.body;
    }

    std::string execute(pqxx::work& tx, int key, std::int64_t token) {
        const std::string body = "answer of claim " + std::to_string(token);
        maybe_die(key, Stage::Begun);
        take_effect(tx, name_of(key));
        maybe_die(key, Stage::Effective);
        complete(tx, name_of(key), body);
        maybe_die(key, Stage::Completed);
        tx.commit();
        return hex(body);
    }

    void maybe_die(int key, Stage stage) {
        if (!accident_planned(key, stage) || field_.had_accident[key].exchange(true)) return;
        const bool with_lock = stage != Stage::Completed;
        field_.hits[static_cast<int>(stage)] += kill(field_.backends[number_], with_lock);
    }

    // True if the victim was in a transaction, with a claim's lock if asked, and is gone now. False
    // if another kill came first.
    bool kill(int victim, bool with_lock) {
        return value<bool>(executioner_,
                           "SELECT EXISTS (SELECT FROM pg_stat_activity a"
                           "  WHERE pid = $1 AND state = 'idle in transaction'"
                           "    AND (NOT $2::boolean OR EXISTS (SELECT FROM pg_locks l"
                           "         WHERE l.pid = a.pid AND locktype = 'advisory'"
                           "           AND 18756 IN (objsubid, classid) AND granted)))"
                           "  AND pg_terminate_backend($1, 10000)",
                           victim, with_lock);
    }

    Field& field_;
    const int number_;
    std::unique_ptr<pqxx::connection> connection_;
    pqxx::connection executioner_;
};

// The two deliveries of a key follow each other, so that two connections have it at once.
std::vector<std::pair<int, std::string>> work_through(Field& field, int number) {
    Worker worker(field, number);
    std::vector<std::pair<int, std::string>> answers;
    for (int i; (i = field.next_delivery++) < kDeliveries;) {
        const int key = i / 2;
        answers.emplace_back(key, worker.deliver(key));
        if (i % kSurpriseEvery == 0) worker.surprise_a_colleague(i);
    }
    return answers;
}

class KilledBackends : public ClientTest {
  protected:
    void expect_one_answer_per_key() {
        std::array<std::string, kKeys> first;
        int answers = 0;
        for (const auto& of_worker : collect(workers_)) {
            for (const auto& [key, body] : of_worker) {
                if (first[key].empty()) first[key] = body;
                EXPECT_EQ(body, first[key]) << name_of(key);
                ++answers;
            }
        }
        EXPECT_EQ(answers, kDeliveries);
    }

    Field field_;
    std::vector<std::future<std::vector<std::pair<int, std::string>>>> workers_;
};

TEST_F(KilledBackends, EffectsEqualKeys) {
    workers_ = start_all(kWorkers, [&](int number) { return work_through(field_, number); });
    expect_one_answer_per_key();
    for (std::size_t stage = 0; stage < kStageNames.size(); ++stage) {
        EXPECT_GT(field_.hits[stage], 0) << "no kill hit a claim that was " << kStageNames[stage];
        RecordProperty(kStageNames[stage], field_.hits[stage]);
    }
    EXPECT_EQ(effects(), kKeys);
    EXPECT_EQ(value<int>(admin_, "SELECT count(DISTINCT key) FROM client_test.effect"), kKeys);
    EXPECT_EQ(value<int>(admin_,
                         "SELECT count(*) FROM idempotency.records"
                         " WHERE scope = 'client' AND status = 'completed'"),
              kKeys);
    EXPECT_EQ(our_locks(true), 0);
}

}  // namespace
}  // namespace idem::client
