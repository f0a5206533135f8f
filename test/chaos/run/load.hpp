// Sessions at work, and the final look at every key, with any kind of server.
#pragma once

#include <functional>
#include <utility>

#include "check/rules.hpp"
#include "load/session.hpp"
#include "run/options.hpp"

namespace idem::chaos {

class Load {
  public:
    // One session in `pooled_every` goes through the pooler; 0: none.
    Load(const Target& target, const Mix& mix, const Options& options, const Habits& habits,
         int pooled_every);

    // Sessions work until `meanwhile` returns.
    void work(const std::function<void()>& meanwhile);
    // Every key of these calls is read, and every hot one has to give a clear answer.
    std::vector<Violation> look_at_all(const std::vector<Call>& calls);

    // The calls since the last take.
    std::vector<Call> take_calls() { return std::exchange(calls_, {}); }
    // How often sessions have reset their connections, by the kind of reset.
    const std::map<std::string, int>& resets() const { return resets_; }

  private:
    void collect(Session* session);
    void ask(Client* reader, const Key& key, std::int64_t* transaction,
             std::vector<Violation>* found) const;

    Tokens tokens_;
    const Target& target_;
    const Mix& mix_;
    const Options& options_;
    const Habits habits_;
    const int pooled_every_;
    std::vector<Call> calls_;
    std::map<std::string, int> resets_;
};

}  // namespace idem::chaos
