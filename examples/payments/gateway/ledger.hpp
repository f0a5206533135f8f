// The charges that the provider has made, by its own idempotency keys; and how it misbehaves.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gateway {

struct Mood {
    std::chrono::milliseconds delay{0};  // before each answer
    int fail_next = 0;                   // requests that are answered 503 and do not charge
    int drop_next = 0;                   // requests that charge and get no answer
    int hold_next = 0;                   // requests that charge and are answered after a release
};

struct Verdict {
    enum Kind { Charged, Declined, OtherBody, Unavailable } kind;
    nlohmann::json charge;
    std::chrono::milliseconds delay{0};
    bool drop = false;
    std::uint64_t release = 0;  // the release that the answer waits for; 0: none
};

class Ledger {
  public:
    // An empty key gives no protection.
    Verdict charge(const std::string& key, const nlohmann::json& order);
    void set(const Mood& mood);
    // Sends all answers that are held.
    void release();
    void await(std::uint64_t release);
    nlohmann::json charges() const;
    void clear();

  private:
    nlohmann::json new_charge(const std::string& key, const nlohmann::json& order);
    bool take(int& count) { return count > 0 && count-- > 0; }

    mutable std::mutex mutex_;
    std::condition_variable released_;
    std::uint64_t releases_ = 0;
    Mood mood_;
    std::vector<nlohmann::json> charges_;
    std::map<std::string, std::size_t> by_key_;
    std::vector<nlohmann::json> orders_;
};

}  // namespace gateway
