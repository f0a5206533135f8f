// Routes, by either driver; what they do over HTTP the conformance suite tries.
#include <idempotency/route.hpp>

#include "support.hpp"

namespace idempotency {
namespace {

template <typename Driver>
class Routes : public testing::Test {
  protected:
    static void SetUpTestSuite() { prepare_database(); }

    Route route(Options options = {}) {
        options.scope = "test";
        options.principal = [](const Request&) { return std::string("me"); };
        return Idempotent<Driver>(pool).transactional(
            options, [this](auto& tx, const Exchange& exchange) {
                ++runs;
                Driver::run(tx, kEffect, {exchange.key});
                return Answer{201, {}, exchange.request.body};
            });
    }

    Request request(const std::string& body = "{}", const std::string& type = "application/json") {
        return {"POST", "/test?a=1", {{"Idempotency-Key", key}, {"Content-Type", type}}, body};
    }

    Answer send(const Route& to, const Request& sent) { return to.answer(sent, "me"); }

    int runs = 0;
    Pool<Driver> pool{"", {}};
    std::string key = unique("route");
};

using Drivers = testing::Types<Pqxx, Libpq>;
TYPED_TEST_SUITE(Routes, Drivers);

TYPED_TEST(Routes, repeat_is_replayed) {
    const auto route = this->route();
    const auto first = this->send(route, this->request(R"({"a":1,"b":2})"));
    EXPECT_EQ(first.status, 201);
    EXPECT_EQ(value_of(first.headers, "Idempotent-Replayed"), "");
    const auto again = this->send(route, this->request(R"({"b":2, "a":1.0})"));
    EXPECT_EQ(again.status, 201);
    EXPECT_EQ(again.body, first.body);
    EXPECT_EQ(value_of(again.headers, "Idempotent-Replayed"), "true");
    EXPECT_EQ(this->runs, 1);
}

TYPED_TEST(Routes, identity_is_method_target_and_body) {
    const auto route = this->route();
    const auto first = this->request("abc", "text/plain; charset=utf-8");
    EXPECT_EQ(this->send(route, first).status, 201);
    EXPECT_EQ(this->send(route, this->request("abc", "TEXT/plain")).status, 201);
    EXPECT_EQ(this->send(route, this->request("abd", "text/plain")).status, 422);
    EXPECT_EQ(this->send(route, this->request("abc", "text/html")).status, 422);
    auto other = first;
    other.target = "/test?a=2";
    EXPECT_EQ(this->send(route, other).status, 422);
    other = first;
    other.method = "PATCH";
    EXPECT_EQ(this->send(route, other).status, 422);
    EXPECT_EQ(this->runs, 1);
}

TYPED_TEST(Routes, body_that_is_no_json_is_400_and_one_without_a_canonical_form_413) {
    const auto route = this->route();
    for (const std::string& body : {std::string("{"), std::string("\"\xFF\""),
                                    std::string("{}\0x", 4), std::string("\"\\ud800\"")}) {
        EXPECT_EQ(this->send(route, this->request(body)).status, 400) << body;
    }
    const auto deep = std::string(1001, '[') + std::string(1001, ']');
    EXPECT_EQ(this->send(route, this->request(deep)).status, 413);
    const auto large = '"' + std::string(17 << 20, 'x') + '"';
    EXPECT_EQ(this->send(route, this->request(large)).status, 413);
    EXPECT_EQ(this->runs, 0);
}

TYPED_TEST(Routes, body_that_jsonb_refuses_is_compared_as_bytes) {
    const auto route = this->route();
    for (const std::string odd : kNulOrTooLarge) {
        this->key = unique("odd");
        const auto first = this->send(route, this->request(odd));
        EXPECT_EQ(first.status, 201);
        EXPECT_EQ(first.body, odd);
        EXPECT_EQ(value_of(this->send(route, this->request(odd)).headers, "Idempotent-Replayed"),
                  "true");
        EXPECT_EQ(this->send(route, this->request(" " + odd)).status, 422);
    }
    EXPECT_EQ(this->runs, 2);
}

TYPED_TEST(Routes, empty_body_is_one_whatever_its_type) {
    const auto route = this->route();
    EXPECT_EQ(this->send(route, this->request("")).status, 201);
    EXPECT_EQ(value_of(this->send(route, this->request("")).headers, "Idempotent-Replayed"),
              "true");
    EXPECT_EQ(this->send(route, this->request("{}")).status, 422);
    EXPECT_EQ(this->runs, 1);
}

TYPED_TEST(Routes, form_is_its_parts) {
    const auto route = this->route();
    const auto form = [this](const std::string& boundary, const std::string& value) {
        return this->request("--" + boundary +
                                 "\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n" + value +
                                 "\r\n--" + boundary + "--\r\n",
                             "multipart/form-data; boundary=" + boundary);
    };
    EXPECT_EQ(this->send(route, form("one", "1")).status, 201);
    EXPECT_EQ(value_of(this->send(route, form("two", "1")).headers, "Idempotent-Replayed"), "true");
    EXPECT_EQ(this->send(route, form("one", "2")).status, 422);
    EXPECT_EQ(this->runs, 1);
}

TYPED_TEST(Routes, refusals_are_documents_with_the_routes_status) {
    Options options;
    options.statuses = {{"mismatch", 400}};
    const auto route = this->route(options);
    this->send(route, this->request("1"));
    const auto refused = this->send(route, this->request("2"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(media_type(refused.headers), "application/problem+json");
    EXPECT_EQ(nlohmann::json::parse(refused.body).at("status"), 400);
}

TYPED_TEST(Routes, missing_key_is_what_the_route_says) {
    auto without = this->request();
    without.headers.erase(without.headers.begin());
    EXPECT_EQ(this->send(this->route(), without).status, 400);
    Options options;
    options.missing_key = MissingKey::Pass;
    EXPECT_EQ(this->send(this->route(options), without).status, 201);
    options.missing_key = MissingKey::Generate;
    const auto named = this->send(this->route(options), without);
    const auto key = parse_key(value_of(named.headers, "Idempotency-Key"));
    ASSERT_TRUE(key);
    EXPECT_EQ(effects(*key), 1);
    options.missing_key = MissingKey::Derive;
    without.body = "\"" + this->key + "\"";
    const auto derived = this->route(options);
    const auto first = this->send(derived, without);
    EXPECT_EQ(first.status, 201);
    EXPECT_EQ(parse_key(value_of(first.headers, "Idempotency-Key"))->size(), 64U);
    const auto again = this->send(derived, without);
    EXPECT_EQ(value_of(again.headers, "Idempotent-Replayed"), "true");
    EXPECT_EQ(value_of(again.headers, "Idempotency-Key"),
              value_of(first.headers, "Idempotency-Key"));
}

TYPED_TEST(Routes, leased_work_says_whether_anything_happened) {
    Options options;
    options.scope = "unsure";
    options.principal = [](const Request&) { return std::string("me"); };
    bool nothing = true;
    const auto route = Idempotent<TypeParam>(this->pool)
                           .leased(options, [&](LeasedClaim<TypeParam>, const Exchange&) -> Ended {
                               ++this->runs;
                               if (nothing) throw NothingHappened("refused");
                               throw std::runtime_error("no answer");
                           });
    const auto refused = this->send(route, this->request());
    EXPECT_EQ(refused.status, 500);
    EXPECT_EQ(refused.body, rolled_back().body);
    EXPECT_EQ(status(this->key, "unsure"), "retryable");
    nothing = false;
    ask("SELECT idem_resolve($1, 'release', 'unsure', 'me', even_if_running => true)", {this->key});
    EXPECT_EQ(this->send(route, this->request()).body, half_done().body);
    const auto unknown = this->send(route, this->request());
    EXPECT_EQ(unknown.status, 409);
    EXPECT_NE(value_of(unknown.headers, "Retry-After"), "");
    EXPECT_EQ(this->runs, 2);
}

TYPED_TEST(Routes, hidden_error_is_no_success_with_a_claim_or_without) {
    Options options;
    options.scope = "test";
    options.principal = [](const Request&) { return std::string("me"); };
    options.missing_key = MissingKey::Pass;
    const auto route =
        Idempotent<TypeParam>(this->pool).transactional(options, [this](auto& tx, const Exchange&) {
            ++this->runs;
            try {
                TypeParam::run(tx, "SELECT 1/0", {});
            } catch (const std::exception&) {
            }
            return Answer{201, {}, ""};
        });
    auto request = this->request();
    EXPECT_EQ(this->send(route, request).status, 500);
    EXPECT_EQ(status(this->key), "");
    request.headers.erase(request.headers.begin());
    EXPECT_EQ(this->send(route, request).status, 500);
    EXPECT_EQ(this->runs, 2);
}

TYPED_TEST(Routes, database_away_is_503_and_nothing_runs) {
    Pool<TypeParam> nowhere("host=127.0.0.1 port=1", {});
    Options options;
    options.principal = [](const Request&) { return std::string("me"); };
    int runs = 0;
    const auto closed = Idempotent<TypeParam>(nowhere).transactional(options, [&](auto&, auto&) {
        ++runs;
        return Answer{};
    });
    const auto answer = closed.answer(this->request(), "me");
    EXPECT_EQ(answer.status, 503);
    EXPECT_EQ(value_of(answer.headers, "Retry-After"), "1");
    EXPECT_EQ(runs, 0);
    options.unprotected_without_database = true;
    const auto open = Idempotent<TypeParam>(nowhere).plain(options, [&](auto* tx, auto&) {
        EXPECT_EQ(tx, nullptr);
        return Answer{200, {}, ""};
    });
    EXPECT_EQ(open.answer(this->request(), "me").status, 200);
}

TYPED_TEST(Routes, late_handler_is_503_with_a_claim_or_without) {
    Options options;
    options.scope = "test";
    options.principal = [](const Request&) { return std::string("me"); };
    options.missing_key = MissingKey::Pass;
    options.handler_timeout = Milliseconds(200);
    const auto route = Idempotent<TypeParam>(this->pool)
                           .transactional(options, [this](auto& tx, const Exchange& exchange) {
                               ++this->runs;
                               TypeParam::run(tx, kEffect, {this->key});
                               EXPECT_LE(exchange.deadline, Clock::now() + Milliseconds(200));
                               std::this_thread::sleep_until(exchange.deadline + Milliseconds(100));
                               return Answer{201, {}, ""};
                           });
    auto request = this->request();
    const auto late = this->send(route, request);
    EXPECT_EQ(late.status, 503);
    EXPECT_EQ(nlohmann::json::parse(late.body).at("type"), "/problems/idempotency/handler-late");
    request.headers.erase(request.headers.begin());
    EXPECT_EQ(this->send(route, request).status, 503);
    EXPECT_EQ(effects(this->key), 0);
    EXPECT_EQ(this->runs, 2);
}

TYPED_TEST(Routes, failing_hook_is_no_failure) {
    Options options;
    std::string heard;
    options.on_execute = [](const Event&) { throw std::runtime_error("hook"); };
    options.on_replay = [&](const Event& event) { heard = event.key; };
    const auto route = this->route(options);
    EXPECT_EQ(this->send(route, this->request()).status, 201);
    EXPECT_EQ(this->send(route, this->request()).status, 201);
    EXPECT_EQ(heard, this->key);
}

}  // namespace
}  // namespace idempotency
