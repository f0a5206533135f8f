// payments_client: the client library on the command line.
#include <iostream>
#include <string>

#include "client.hpp"
#include "options.hpp"

namespace {

using namespace payments::client;

constexpr int kAnswered = 0, kRefused = 1, kError = 2;
constexpr int kFirstRefusal = 400;

std::string what_came(const Attempt& attempt) {
    if (attempt.answer) return "answered " + std::to_string(attempt.answer->status);
    return attempt.silence == Silence::Unreached ? "not reached" : "no answer";
}

void show_attempt(int number, const Attempt& attempt, std::optional<Milliseconds> pause) {
    std::cerr << "attempt " << number << ": " << what_came(attempt);
    if (pause) std::cerr << ", again in " << pause->count() << " ms";
    std::cerr << std::endl;
}

void print(const Answer& answer) {
    std::cout << answer.status << '\n';
    for (const char* name : {"content-type", "location", "retry-after", "idempotency-key",
                             "idempotent-replayed", "set-cookie", "allow"}) {
        const auto field = answer.headers.find(name);
        if (field != answer.headers.end()) std::cout << name << ": " << field->second << '\n';
    }
    std::cout << '\n' << answer.body << std::flush;
}

int run(const Options& options) {
    HttpTransport transport(options.patience);
    Client client({options.server}, transport, options.rules);
    client.observe(show_attempt);
    const Attempt attempt = client.send(options.request);
    if (!attempt.answer) return kError;
    print(*attempt.answer);
    return attempt.answer->status < kFirstRefusal ? kAnswered : kRefused;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(parse_options(argc, argv));
    } catch (const std::exception& e) {
        std::cerr << "payments_client: " << e.what() << std::endl;
        return kError;
    }
}
