// For programs that call a service with idempotency keys: one key for all sendings of a request,
// until its answer is final. No HTTP library is needed.
#pragma once

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "http.hpp"

namespace idempotency {

// A UUID of version 7: keys of one moment lie together in an index. Store it before the first
// sending, beside what the request is for.
inline std::string new_key() {
    std::array<unsigned char, 16> bytes{};
    if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
        throw std::runtime_error("there are no random numbers");
    }
    using std::chrono::milliseconds;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    auto moment =
        static_cast<unsigned long long>(std::chrono::duration_cast<milliseconds>(now).count());
    for (std::size_t i = 6; i-- > 0; moment >>= 8) bytes[i] = moment & 0xFF;
    bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0F) | 0x70);
    bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3F) | 0x80);
    std::string key;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (i == 4 || i == 6 || i == 8 || i == 10) key += '-';
        key += "0123456789abcdef"[bytes[i] >> 4];
        key += "0123456789abcdef"[bytes[i] & 0x0F];
    }
    return key;
}

struct CallerOptions {
    std::string key_header = "Idempotency-Key";
    int attempts = 8;                                  // how often the request is sent
    std::chrono::milliseconds base{200};               // the longest first pause; then twice that,
    std::chrono::milliseconds cap{30000};              // and so on, up to here
    std::chrono::milliseconds give_up_after{300'000};  // no pause begins that would end later
};

// The answer is not known yet. A later call with the same key goes on; another key could do the
// work twice.
class NotFinal : public std::runtime_error {
  public:
    NotFinal(std::string key, std::optional<Answer> answer)
        : std::runtime_error("no final answer under the key " + key),
          key_(std::move(key)),
          answer_(std::move(answer)) {}
    const std::string& key() const noexcept { return key_; }
    // The last one, if there was one.
    const std::optional<Answer>& answer() const noexcept { return answer_; }

  private:
    std::string key_;
    std::optional<Answer> answer_;
};

namespace detail {

// "in-progress" of a problem document of the extension; "" of any other answer.
inline std::string problem_word(const Answer& answer) {
    constexpr std::string_view kType = "/problems/idempotency/";
    if (media_type(answer.headers) != "application/problem+json") return "";
    const auto document = nlohmann::json::parse(answer.body, nullptr, false);
    if (!document.is_object() || !document.contains("type") || !document["type"].is_string()) {
        return "";
    }
    const auto type = document["type"].get<std::string>();
    const auto at = type.rfind(kType);
    return at == type.npos ? "" : type.substr(at + kType.size());
}

inline std::chrono::milliseconds retry_after(const Answer& answer) {
    const auto field = value_of(answer.headers, "Retry-After");
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (!field.empty() && field.size() < 10 && std::all_of(field.begin(), field.end(), is_digit)) {
        return std::chrono::seconds(std::stol(field));
    }
    std::tm parts{};
    if (strptime(field.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == nullptr) return {};
    return std::chrono::seconds(std::max<std::time_t>(0, timegm(&parts) - std::time(nullptr)));
}

}  // namespace detail

// Whether a repeat with the same key would get this answer again.
inline bool is_final(const Answer& answer) {
    if (value_of(answer.headers, "Idempotent-Replayed") == "true") return true;
    const auto word = detail::problem_word(answer);
    for (const char* open :
         {"in-progress", "unknown", "retry-later", "unavailable", "handler-late"}) {
        if (word == open) return false;
    }
    return word == "failed" || word == "exhausted" || keep_by_default(answer.status);
}

// Sends a request until its answer is final: exponential backoff with full jitter, and no pause
// shorter than Retry-After. `send` gets the key's field, makes the same request each time, and
// throws where there is no answer. Give it a time limit.
inline Answer send_until_final(const std::string& key,
                               const std::function<Answer(const Fields& key_field)>& send,
                               const CallerOptions& options = {}) {
    using std::chrono::milliseconds;
    if (options.attempts < 1 || options.base < milliseconds(0) || options.cap < milliseconds(0)) {
        throw std::invalid_argument("a request is sent at least once, and no pause is negative");
    }
    thread_local std::mt19937_64 random{std::random_device{}()};
    const auto end = std::chrono::steady_clock::now() + options.give_up_after;
    for (int sent = 1;; ++sent) {
        std::optional<Answer> answer;
        try {
            answer = send({{options.key_header, to_key_field(key)}});
            if (is_final(*answer)) return *answer;
        } catch (const std::exception&) {  // no answer: it may have taken effect
        }
        const auto longest =
            std::min(static_cast<double>(options.cap.count()),
                     static_cast<double>(options.base.count()) * std::pow(2.0, sent - 1));
        const auto jitter = std::uniform_real_distribution<double>(0, longest)(random);
        auto pause = milliseconds(static_cast<long long>(jitter));
        if (answer) pause += detail::retry_after(*answer);
        if (sent >= options.attempts || std::chrono::steady_clock::now() + pause > end) {
            throw NotFinal(key, std::move(answer));
        }
        std::this_thread::sleep_for(pause);
    }
}

}  // namespace idempotency
