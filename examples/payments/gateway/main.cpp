// payments_gateway: the external provider of the example, which can be told to misbehave.
#include <unistd.h>

#include <idempotency/problem.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "http/command_line.hpp"
#include "http/server.hpp"
#include "ledger.hpp"

namespace gateway {
namespace {

using http::Answer;
using http::Request;
using nlohmann::json;

constexpr std::size_t kThreads = 32;

Answer answer(int status, const json& body) {
    const auto* type = status < 400 ? "application/json" : "application/problem+json";
    return {status, {{"Content-Type", type}}, body.dump()};
}

Answer problem(int status, const char* word, const char* title) {
    return idempotency::problem(status, std::string("/problems/gateway/") + word, title);
}

Answer tell(const Verdict& verdict) {
    if (verdict.drop) return http::hang_up();
    switch (verdict.kind) {
        case Verdict::Charged:
            return answer(201, verdict.charge);
        case Verdict::Declined:
            return problem(402, "declined", "The card is declined");
        case Verdict::OtherBody:
            return problem(422, "mismatch", "The key belongs to another charge");
        default:
            return problem(503, "unavailable", "Temporarily unavailable");
    }
}

json parse(const Request& request) {
    return json::parse(request.body, nullptr, /* allow_exceptions */ false);
}

Answer charge(Ledger& ledger, const Request& request) {
    const auto order = parse(request);
    if (!order.is_object() || !order.contains("amount") || !order.contains("currency")) {
        return problem(400, "bad-request", "amount and currency are needed");
    }
    const auto key = idempotency::value_of(request.headers, "Idempotency-Key");
    const auto verdict = ledger.charge(key, order);
    std::this_thread::sleep_for(verdict.delay);
    ledger.await(verdict.release);
    return tell(verdict);
}

int member(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
}

Answer control(Ledger& ledger, const Request& request) {
    const auto wish = parse(request);
    if (!wish.is_object()) return problem(400, "bad-request", "Not an object");
    ledger.set({std::chrono::milliseconds(member(wish, "delay_ms")), member(wish, "fail_next"),
                member(wish, "drop_next"), member(wish, "hold_next")});
    if (member(wish, "release") > 0) ledger.release();
    return {204, {}, ""};
}

using Handler = std::function<Answer(const Request&)>;

idempotency::Route open_to_all(Handler handler) {
    constexpr std::size_t kLargestBody = 1 << 16;
    return {nullptr, kLargestBody,
            [handler](const Request& request, const std::string&) { return handler(request); }};
}

void add_routes(http::Routes& routes, Ledger& ledger, http::Lane& lane) {
    const auto add = [&](const char* method, const char* path, Handler handler,
                         http::Lane* where = nullptr) {
        routes.add(method, path, open_to_all(std::move(handler)), where);
    };
    add(
        "POST", "/charges", [&](const auto& request) { return charge(ledger, request); }, &lane);
    add("POST", "/control", [&](const auto& request) { return control(ledger, request); });
    add("GET", "/charges", [&](const auto&) { return answer(200, ledger.charges()); });
    add("GET", "/healthz", [](const auto&) { return answer(200, {{"status", "ok"}}); });
    add("DELETE", "/charges", [&](const auto&) {
        ledger.clear();
        return Answer{204, {}, ""};
    });
}

}  // namespace
}  // namespace gateway

int main(int argc, char** argv) try {
    const http::CommandLine arguments(argc, argv, {"--listen"});
    http::Server server;
    gateway::Ledger ledger;
    http::Lane lane(gateway::kThreads);
    gateway::add_routes(server.routes(), ledger, lane);
    if (!server.run(http::parse_address(arguments.required("--listen")))) _exit(0);
} catch (const std::exception& failure) {
    std::cerr << "payments_gateway: " << failure.what()
              << "\nusage: payments_gateway --listen HOST:PORT\n";
    return 2;
}
