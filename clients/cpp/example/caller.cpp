// Executes COUNT orders by the helper for callers, and prints each key with the last answer's
// status.
#include <httplib.h>

#include <atomic>
#include <idempotency/caller.hpp>
#include <iostream>
#include <thread>
#include <vector>

namespace {

using idempotency::Answer;

std::string order(const std::string& url, const std::string& token) {
    const auto path = url.find('/', url.find("://") + 3);
    const httplib::Headers fields = {{"Authorization", "Bearer " + token}};
    idempotency::CallerOptions options;
    options.attempts = 30;
    options.base = std::chrono::milliseconds(20);
    options.cap = std::chrono::milliseconds(500);
    const auto send = [&](const idempotency::Fields& key_field) {
        httplib::Client client(url.substr(0, path));
        client.set_read_timeout(5);
        auto all = fields;
        all.insert(key_field.begin(), key_field.end());
        const auto response =
            client.Post(url.substr(path), all, R"({"effect": "called"})", "application/json");
        if (!response) throw std::runtime_error(httplib::to_string(response.error()));
        return Answer{
            response->status, {response->headers.begin(), response->headers.end()}, response->body};
    };
    const auto key = idempotency::new_key();
    const auto answer = idempotency::send_until_final(key, send, options);
    return key + ' ' + std::to_string(answer.status) + '\n';
}

}  // namespace

int main(int, char** arguments) {
    std::atomic<int> left = std::stoi(arguments[3]);
    std::vector<std::thread> workers;
    for (int i = 0; i < 4; ++i) {
        workers.emplace_back([&] {
            while (left-- > 0) std::cout << order(arguments[1], arguments[2]) << std::flush;
        });
    }
    for (auto& worker : workers) worker.join();
}
