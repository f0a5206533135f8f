// payments_gateway: the external provider of the example, which can be told to misbehave.
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "http/command_line.hpp"
#include "http/server.hpp"
#include "idempotency/json_body.hpp"
#include "ledger.hpp"

namespace gateway {
namespace {

using nlohmann::json;

constexpr std::size_t kThreads = 32;

void answer(httplib::Response& response, int status, const json& body) {
    response.status = status;
    response.set_content(body.dump(),
                         status < 400 ? "application/json" : "application/problem+json");
}

void answer_problem(httplib::Response& response, int status, const char* word, const char* title) {
    const auto type = std::string("/problems/gateway/") + word;
    answer(response, status, {{"type", type}, {"title", title}, {"status", status}});
}

// Nothing that could be taken for an answer: the connection ends before the body does.
void drop(httplib::Response& response) {
    response.status = 500;
    response.set_content_provider(1, "text/plain",
                                  [](std::size_t, std::size_t, auto&) { return false; });
}

void tell(const Verdict& verdict, httplib::Response& response) {
    if (verdict.drop) return drop(response);
    switch (verdict.kind) {
        case Verdict::Charged:
            return answer(response, 201, verdict.charge);
        case Verdict::Declined:
            return answer_problem(response, 402, "declined", "The card is declined");
        case Verdict::OtherBody:
            return answer_problem(response, 422, "mismatch", "The key belongs to another charge");
        case Verdict::Unavailable:
            return answer_problem(response, 503, "unavailable", "Temporarily unavailable");
    }
}

void charge(Ledger& ledger, const httplib::Request& request, httplib::Response& response) {
    const auto order = idempotency::parse_json(request.body);
    if (!order.is_object() || !order.contains("amount") || !order.contains("currency")) {
        return answer_problem(response, 400, "bad-request", "amount and currency are needed");
    }
    const auto verdict = ledger.charge(request.get_header_value("Idempotency-Key"), order);
    std::this_thread::sleep_for(verdict.delay);
    ledger.await(verdict.release);
    tell(verdict, response);
}

int member(const json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number_integer() ? found->get<int>() : 0;
}

void control(Ledger& ledger, const httplib::Request& request, httplib::Response& response) {
    const auto wish = idempotency::parse_json(request.body);
    if (!wish.is_object()) return answer_problem(response, 400, "bad-request", "Not an object");
    ledger.set({std::chrono::milliseconds(member(wish, "delay_ms")), member(wish, "fail_next"),
                member(wish, "drop_next"), member(wish, "hold_next")});
    if (member(wish, "release") > 0) ledger.release();
    response.status = 204;
}

void add_routes(http::Routes& routes, Ledger& ledger) {
    routes.post("/charges", [&](const auto& in, auto& out) { charge(ledger, in, out); });
    routes.post("/control", [&](const auto& in, auto& out) { control(ledger, in, out); });
    routes.get("/charges", [&](const auto&, auto& out) { answer(out, 200, ledger.charges()); });
    routes.get("/healthz", [](const auto&, auto& out) { answer(out, 200, {{"status", "ok"}}); });
    routes.remove("/charges", [&](const auto&, auto& out) {
        ledger.clear();
        out.status = 204;
    });
}

}  // namespace
}  // namespace gateway

int main(int argc, char** argv) try {
    const http::CommandLine arguments(argc, argv, {"--listen"});
    gateway::Ledger ledger;
    http::Server server(gateway::kThreads);
    gateway::add_routes(server.routes(), ledger);
    server.run(http::parse_address(arguments.required("--listen")));
} catch (const std::exception& failure) {
    std::cerr << "payments_gateway: " << failure.what()
              << "\nusage: payments_gateway --listen HOST:PORT\n";
    return 2;
}
