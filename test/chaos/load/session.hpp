// One of the sessions: in each turn it draws a plan and executes it against the server.
#pragma once

#include <mutex>

#include "load/client.hpp"
#include "load/plan.hpp"
#include "load/protocol.hpp"

namespace idem::chaos {

// Tokens of committed claims that any session may continue, as one worker for another.
class Tokens {
  public:
    void put(const Key& key, std::int64_t token) {
        const std::lock_guard<std::mutex> guard(mutex_);
        tokens_[key] = token;
    }
    // 0: none is known.
    std::int64_t of(const Key& key) const {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto found = tokens_.find(key);
        return found == tokens_.end() ? 0 : found->second;
    }

  private:
    mutable std::mutex mutex_;
    std::map<Key, std::int64_t> tokens_;
};

// How planted bugs of the client's side change the work; see test/chaos/bugs.
struct Sabotage {
    bool effect_outside = false;    // the effect in a transaction of its own
    bool weaker_isolation = false;  // REPEATABLE READ instead of SERIALIZABLE
};

class Session {
  public:
    Session(const Target& target, const Mix& mix, Tokens& tokens, std::uint64_t seed, int number,
            bool pooled, Sabotage sabotage, Habits habits = {});

    // Until `stop` is set and its turn has ended.
    void work(const std::atomic<bool>& stop);
    std::vector<Call>& calls() { return client_.calls(); }
    // How often it has reset its connection, by the kind of reset.
    const std::map<std::string, int>& resets() const { return resets_; }

  private:
    using Status = Client::Status;

    void take_turn();
    void transactional();
    void leased();
    void once();
    void execute();
    void look();
    void operate();
    void stale();
    void decide();
    void forget_all();

    void reset();
    bool claim_all();
    bool claim(const Key& key);
    bool settle(const Key& key);
    bool claim_and_release(const Key& key);
    static Answer of_no_generation(Answer grant);
    bool end_for_another(const Key& key, Ending ending);
    bool work_on(const Key& key, const Answer& grant);
    bool take_part(const Key& key, const Answer& grant);
    bool write_abroad(const Key& key);
    bool sum_up();
    bool checkpoint(const Key& key, const Answer& grant, std::int64_t token);
    bool checkpoint_committed(const Key& key, const Answer& grant);
    void knock();
    bool end(const Key& key, std::int64_t token);
    bool learn(const Key& key, std::int64_t token);
    bool end_undone(const Key& key, std::int64_t token);
    bool take_effect(const Key& key, const std::string& effect);

    void next_transaction();
    bool open_transaction();
    bool commit();
    void finish();
    void finish_prepared(bool commit);
    void control(Function function, const std::string& sql, int savepoint = 0);
    // Runs a query in the open transaction, or as a separate one. False if the query has ended the
    // transaction.
    bool ask(Question question);
    bool savepoint();
    bool back_to_savepoint();
    void abandon();
    Micros undone_since() const;
    std::string new_name(const char* kind);
    std::string new_effect() { return new_name("e"); }

    // Each call has a different secret.
    Protocol protocol() {
        plan_.secret = new_secret();
        return {plan_, client_, mix_};
    }
    std::string new_secret();

    const Target& target_;
    const Mix mix_;
    Tokens& tokens_;
    const std::uint64_t seed_;
    const int number_;
    const Sabotage sabotage_;
    Client client_;
    Plan plan_;
    std::int64_t turn_ = 0;
    std::int64_t transaction_ = 0;
    std::int64_t transactions_ = 0;
    std::int64_t names_ = 0;
    bool open_ = false;
    Micros opened_ = 0;
    int savepoints_ = 0;
    std::map<Key, std::int64_t> old_tokens_;
    std::map<Key, Answer> claimed_;  // in this turn
    std::map<std::string, int> resets_;
};

}  // namespace idem::chaos
