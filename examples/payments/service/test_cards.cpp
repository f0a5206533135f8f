#include "test_cards.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace payments {
namespace {

constexpr char kSlow[] = "tok_slow_";
constexpr std::size_t kLargeBody = 1 << 20;
constexpr int kLongestSleep = 60000;

// True if this call has created the file.
bool create(const std::filesystem::path& file) {
    const int descriptor = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (descriptor >= 0) close(descriptor);
    return descriptor >= 0;
}

std::string all_byte_values() {
    std::string bytes;
    for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
    return bytes;
}

}  // namespace

void TestCards::sleep_if_slow(const std::string& card) const {
    const std::string beginning = kSlow;
    if (!enabled_ || card.compare(0, beginning.size(), beginning) != 0) return;
    const int milliseconds = std::atoi(card.c_str() + beginning.size());
    std::this_thread::sleep_for(
        std::chrono::milliseconds(std::clamp(milliseconds, 0, kLongestSleep)));
}

void TestCards::throw_if_asked(const std::string& card) const {
    if (is(card, "tok_throw")) throw std::runtime_error("test card tok_throw");
}

void TestCards::crash_once(const std::string& card, const std::string& tenant,
                           const std::string& key) const {
    if (!is(card, "tok_crash")) return;
    const auto number = std::hash<std::string>()(tenant + '\n' + key);
    if (create(crash_dir_ / ("crashed-" + std::to_string(number)))) raise(SIGKILL);
}

void TestCards::crash_at_first(const std::string& card, int attempt) const {
    if (is(card, "tok_crash") && attempt == 1) raise(SIGKILL);
}

void TestCards::disguise(const std::string& card, idempotency::Answer& response) const {
    if (is(card, "tok_cookie"))
        response.headers.emplace_back("Set-Cookie", "session=secret; HttpOnly");
    if (is(card, "tok_large")) {
        idempotency::set(response.headers, "Content-Type", "text/plain");
        response.body = std::string(kLargeBody, 'x');
    }
    if (is(card, "tok_binary")) {
        idempotency::set(response.headers, "Content-Type", "application/octet-stream");
        response.body = all_byte_values();
    }
}

}  // namespace payments
