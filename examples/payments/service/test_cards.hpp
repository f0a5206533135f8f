// Cards that make a handler misbehave, for the tests. Without --test-cards they are ordinary cards.
#pragma once

#include <filesystem>
#include <idempotency/http.hpp>
#include <string>

namespace payments {

class TestCards {
  public:
    TestCards(bool enabled, std::filesystem::path crash_dir)
        : enabled_(enabled), crash_dir_(std::move(crash_dir)) {}

    void sleep_if_slow(const std::string& card) const;   // tok_slow_<ms>
    void throw_if_asked(const std::string& card) const;  // tok_throw

    // tok_crash: SIGKILL, once for each tenant and key; a file in crash_dir remembers it.
    void crash_once(const std::string& card, const std::string& tenant,
                    const std::string& key) const;
    // The same for a caller that knows the number of its attempt.
    void crash_at_first(const std::string& card, int attempt) const;

    // tok_cookie, tok_large, tok_binary: another kind of answer.
    void disguise(const std::string& card, idempotency::Answer& response) const;

  private:
    bool is(const std::string& card, const char* name) const { return enabled_ && card == name; }

    const bool enabled_;
    const std::filesystem::path crash_dir_;
};

}  // namespace payments
