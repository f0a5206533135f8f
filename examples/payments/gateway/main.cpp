// payments_gateway: the external provider of the example, which can simulate failures.
#include <condition_variable>
#include <idempotency/problem.hpp>
#include <iostream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "http/command_line.hpp"
#include "http/server.hpp"

namespace {

using http::Answer;
using http::Request;
using nlohmann::json;

constexpr std::size_t kThreads = 64;
constexpr std::size_t kLargestBody = 1 << 16;

Answer problem(int status, const char* word, const char* title) {
    return idempotency::problem(status, std::string("/problems/gateway/") + word, title);
}

// Honours keys itself; without that no service could call it twice. /control sets how many of the
// next requests fail (503, without a charge), get no answer, or are answered after a release.
class Gateway {
  public:
    // One lock around look-up and charge: two requests with one key cannot both find no charge.
    Answer charge(const Request& request) {
        const auto order = json::parse(request.body, nullptr, /* allow_exceptions */ false);
        if (!order.is_object()) return problem(400, "bad-request", "Not an object");
        const auto key = idempotency::value_of(request.headers, "Idempotency-Key");
        std::unique_lock<std::mutex> lock(mutex_);
        if (take("fail_next")) return problem(503, "unavailable", "Temporarily unavailable");
        const auto known = orders_.find(key);
        if (known != orders_.end() && known->second.first != order) {
            return problem(422, "mismatch", "The key belongs to another charge");
        }
        if (order.value("card", json()) == "tok_declined") {
            return problem(402, "declined", "The card is declined");
        }
        const json charge = known != orders_.end() ? known->second.second : new_charge(key, order);
        if (take("drop_next")) shutdown(idempotency::detail::httplib_stream->socket(), SHUT_RDWR);
        if (take("hold_next")) {
            released_.wait(lock, [&, release = releases_] { return releases_ > release; });
        }
        return {201, {{"Content-Type", "application/json"}}, charge.dump()};
    }

    Answer control(const Request& request) {
        const std::lock_guard<std::mutex> lock(mutex_);
        mood_ = json::parse(request.body, nullptr, /* allow_exceptions */ false);
        if (mood_.contains("release")) release();
        return {204, {}, ""};
    }

    Answer charges() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return {200, {{"Content-Type", "application/json"}}, charges_.dump()};
    }

    Answer clear() {
        const std::lock_guard<std::mutex> lock(mutex_);
        release();
        charges_ = json::array();
        orders_.clear();
        mood_ = json::object();
        return {204, {}, ""};
    }

  private:
    bool take(const char* what) {
        const int left = mood_.is_object() ? mood_.value(what, 0) : 0;
        if (left > 0) mood_[what] = left - 1;
        return left > 0;
    }

    void release() {
        ++releases_;
        released_.notify_all();
    }

    json new_charge(const std::string& key, const json& order) {
        json charge = order;
        charge["id"] = "gch_" + std::to_string(charges_.size() + 1);
        charge["key"] = key;
        charges_.push_back(charge);
        orders_[key] = {order, charge};
        return charge;
    }

    std::mutex mutex_;
    std::condition_variable released_;
    long releases_ = 0;
    json mood_ = json::object(), charges_ = json::array();
    std::map<std::string, std::pair<json, json>> orders_;  // by key: what was asked, and charged
};

void serve(const http::CommandLine& arguments) {
    http::Server server(kThreads);
    Gateway gateway;
    const auto with_body = [](auto handler) {
        return idempotency::protect(
            {nullptr, kLargestBody,
             [handler](const Request& request, const std::string&) { return handler(request); }});
    };
    const auto without = [](auto handler) {
        return [handler](const httplib::Request&, httplib::Response& response) {
            idempotency::detail::send(handler(), response);
        };
    };
    server.Post("/charges",
                with_body([&](const Request& request) { return gateway.charge(request); }));
    server.Post("/control",
                with_body([&](const Request& request) { return gateway.control(request); }));
    server.Get("/charges", without([&] { return gateway.charges(); }));
    server.Delete("/charges", without([&] { return gateway.clear(); }));
    server.run(arguments.required("--listen"));
}

}  // namespace

int main(int argc, char** argv) try {
    serve({argc, argv, {"--listen"}});
} catch (const std::exception& failure) {
    std::cerr << "payments_gateway: " << failure.what()
              << "\nusage: payments_gateway --listen HOST:PORT\n";
    return 2;
}
