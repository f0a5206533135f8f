// The rules that need no server.
#include <gtest/gtest.h>

#include <idempotency/pqxx.hpp>
#include <idempotency/route.hpp>

namespace idempotency {
namespace {

TEST(Key, is_a_string_or_a_bare_value) {
    EXPECT_EQ(parse_key("\"abc\""), "abc");
    EXPECT_EQ(parse_key("abc"), "abc");
    EXPECT_EQ(parse_key(" \t\"a b\" \t"), "a b");
    EXPECT_EQ(parse_key(R"("a\"b\\c")"), R"(a"b\c)");
    EXPECT_EQ(parse_key("\"a,b;c\""), "a,b;c");
    EXPECT_EQ(parse_key(std::string(255, 'k')), std::string(255, 'k'));
}

TEST(Key, is_raw) {
    EXPECT_EQ(parse_key("\"pc%2D1\""), "pc%2D1");
    EXPECT_EQ(parse_key("%22pc-1%22"), "%22pc-1%22");
    EXPECT_EQ(parse_key("a+b"), "a+b");
}

TEST(Key, has_parameters_that_are_checked_and_ignored) {
    for (const char* good : {R"("k";v=1)", R"("k"; a;b=?1;c="x\"y";*d=tok/en;e=1.5;f=:YQ==:;g=-2)",
                             R"("k";t=@1659578233)", R"("k" )"}) {
        EXPECT_EQ(parse_key(good), "k") << good;
    }
    for (const char* bad :
         {R"("k";)", R"("k";V=1)", R"("k"x)", R"("k", "l")", R"("k";a=)", R"("k";a=1.)",
          R"("k";a=1.2345)", R"("k";a=?2)", R"("k";a="x)", R"("k";a=@)"}) {
        EXPECT_EQ(parse_key(bad), std::nullopt) << bad;
    }
}

TEST(Key, is_nothing_else) {
    for (const std::string bad :
         {"", " ", "\"\"", "\"   \"", "\"abc", "abc\"", "a b", "a,b", "a;b", "a\\b", "\"a\\b\"",
          "\"caf\xC3\xA9\"", "caf\xC3\xA9", "\"a\tb\"", "\x01"}) {
        EXPECT_EQ(parse_key(bad), std::nullopt) << bad;
    }
    EXPECT_EQ(parse_key(std::string(256, 'k')), std::nullopt);
    EXPECT_EQ(parse_key(std::string("a\0b", 3)), std::nullopt);
}

TEST(Key, stands_once) {
    EXPECT_EQ(key_of({}, "Idempotency-Key").kind, KeyField::Missing);
    EXPECT_EQ(key_of({{"idempotency-KEY", "a"}}, "Idempotency-Key").key, "a");
    EXPECT_EQ(key_of({{"Idempotency-Key", ""}}, "Idempotency-Key").kind, KeyField::Bad);
    const Fields twice = {{"Idempotency-Key", "a"}, {"idempotency-key", ""}};
    EXPECT_EQ(key_of(twice, "Idempotency-Key").kind, KeyField::Bad);
}

TEST(Key, comes_back_as_it_was) {
    for (const std::string key : {"a", "a\"b\\c", "a b", "%20"}) {
        EXPECT_EQ(parse_key(to_key_field(key)), key);
    }
}

TEST(Depth, is_counted_outside_of_strings) {
    EXPECT_EQ(json_depth(""), 0U);
    EXPECT_EQ(json_depth("[]"), 1U);
    EXPECT_EQ(json_depth(R"([{"a":[1]},[]])"), 3U);
    EXPECT_EQ(json_depth(R"({"[[[\"[[":"\\"})"), 1U);
    EXPECT_EQ(json_depth("]]]["), 1U);
    EXPECT_EQ(json_depth(std::string(100000, '[')), 100000U);
}

TEST(MediaType, is_without_parameters_and_in_lower_case) {
    EXPECT_EQ(media_type({{"Content-Type", "Application/JSON ; charset=utf-8"}}),
              "application/json");
    EXPECT_TRUE(is_json("application/vnd.api+json"));
    EXPECT_FALSE(is_json("+json"));
    EXPECT_FALSE(is_json("text/json"));
}

TEST(Answers, of_failures_are_not_kept) {
    for (const int kept : {200, 201, 204, 400, 402, 404, 409, 422}) {
        EXPECT_TRUE(keep_by_default(kept)) << kept;
    }
    for (const int dropped : {408, 425, 429, 500, 502, 503}) {
        EXPECT_FALSE(keep_by_default(dropped)) << dropped;
    }
}

TEST(Headers, of_one_name_keep_their_order) {
    const auto stored = stored_headers(
        {{"Link", "b"}, {"X", "1"}, {"link", "a"}, {"Set-Cookie", "s"}, {"Content-Length", "1"}});
    EXPECT_EQ(stored, R"({"Link":["b","a"],"X":"1"})");
    const Fields back = {{"Link", "b"}, {"Link", "a"}, {"X", "1"}};
    EXPECT_EQ(fields_of(nlohmann::json::parse(stored)), back);
}

TEST(Headers, that_could_not_be_stored_are_not_sent_either) {
    const auto answer = storable({200,
                                  {{"A", "good"},
                                   {"B", "caf\xE9"},
                                   {"C", "a\r\nD: b"},
                                   {"D e", "x"},
                                   {"F", "caf\xC3\xA9\t"}},
                                  ""});
    const Fields left = {{"A", "good"}, {"F", "caf\xC3\xA9\t"}};
    EXPECT_EQ(answer.headers, left);
}

TEST(Text, is_utf8_or_not) {
    for (const char* good : {"", "a", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x92\xB6"}) {
        EXPECT_TRUE(is_utf8(good)) << good;
    }
    for (const char* bad : {"\xFF", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xE0\x80\x80",
                            "\xF4\x90\x80\x80", "\xC3\x28", "\x80"}) {
        EXPECT_FALSE(is_utf8(bad)) << bad;
    }
    EXPECT_FALSE(is_utf8(std::string_view("a\0", 2)));
}

TEST(Text, has_the_forms_of_the_server) {
    EXPECT_EQ(to_bytea(std::string_view("\0\xFFz", 3)), "\\x00ff7a");
    EXPECT_EQ(from_bytea("\\x00ff7a"), std::string("\0\xFFz", 3));
    EXPECT_EQ(from_bytea("a\\\\b\\000\\377"), std::string("a\\b\0\xFF", 5));
    EXPECT_THROW(from_bytea("a\\08"), std::invalid_argument);
    EXPECT_THROW(from_bytea("\\x0"), std::invalid_argument);
    EXPECT_THROW(from_bytea("\\x0g"), std::invalid_argument);
    EXPECT_EQ(to_array({}), "{}");
    EXPECT_EQ(to_array({"a", R"(b"\c)"}), R"({"a","b\"\\c"})");
}

TEST(Digest, is_that_of_the_page) {
    std::string heading = "idempotency fingerprint 1\n4:POST\n2:/x\n10:text/plain\n3:abc\n";
    EXPECT_EQ(digest_of_bytes("POST", "/x", "text/plain", "abc"), sha256(heading));
}

// The other clients give the same digest, so that a service may move from one to another.
TEST(Digest, has_a_mark_for_a_body_without_a_media_type) {
    const auto expected = sha256("idempotency fingerprint 1\n4:POST\n2:/x\n-\n3:abc\n");
    EXPECT_EQ(digest_of("POST", "/x", {}, "abc"), expected);
    EXPECT_EQ(digest_of("POST", "/x", {{"Content-Type", " ; q=1"}}, "abc"), expected);
}

TEST(Conninfo, gets_keepalives_that_the_callers_words_win_over) {
    EXPECT_EQ(with_keepalives("dbname=x", Milliseconds(1500)).find("connect_timeout=2 "), 0U);
    const auto uri = with_keepalives("postgresql://h/db?connect_timeout=9", Milliseconds(2000));
    EXPECT_NE(uri.find("&tcp_user_timeout="), std::string::npos);
    EXPECT_EQ(uri.find("connect_timeout=2"), std::string::npos);
}

TEST(Watchdog, does_what_is_due_and_nothing_else) {
    Watchdog dog;
    std::atomic<int> done{0};
    {
        const auto never = dog.at(Clock::now() + std::chrono::hours(1), [&] { done += 100; });
        const auto now = dog.at(Clock::now(), [&] { ++done; });
        while (done == 0) std::this_thread::yield();
    }
    EXPECT_EQ(done, 1);
}

// ---- what the types say ----

using Claim = LeasedClaim<Pqxx>;

template <typename C, typename = void>
struct CanFinish : std::false_type {};
template <typename C>
struct CanFinish<C, std::void_t<decltype(std::declval<C>().finish(Answer{}))>> : std::true_type {};

template <typename C, typename = void>
struct CanSayUnknown : std::false_type {};
template <typename C>
struct CanSayUnknown<C,
                     std::void_t<decltype(std::declval<C>().unknown("", std::nullopt, Answer{}))>>
    : std::true_type {};

static_assert(CanFinish<Claim&&>::value, "a claim is ended by giving it away");
static_assert(!CanFinish<Claim&>::value, "a claim that is kept can't be ended");
static_assert(CanSayUnknown<Claim&&>::value && !CanSayUnknown<Claim&>::value, "nor so");
static_assert(!std::is_copy_constructible_v<Claim>, "there is one right to work");
static_assert(!std::is_default_constructible_v<Ended>, "only ending a claim makes its end");
static_assert(!std::is_constructible_v<Ended, Answer>, "only ending a claim makes its end");

TEST(Options, without_a_principal_are_refused) {
    Pool<Pqxx> pool("", {});
    const Idempotent<Pqxx> idempotent(pool);
    const auto handler = [](Pqxx::Transaction&, const Exchange&) { return Answer{}; };
    EXPECT_THROW(idempotent.transactional({}, handler), std::invalid_argument);
    Options open;
    open.principal = [](const Request&) { return std::string(); };
    open.unprotected_without_database = true;
    EXPECT_THROW(idempotent.transactional(open, handler), std::invalid_argument);
}

TEST(Options, that_make_no_sense_are_refused) {
    Pool<Pqxx> pool("", {});
    const Idempotent<Pqxx> idempotent(pool);
    const auto refused = [&](const std::function<void(Options&)>& spoil) {
        Options options;
        options.principal = [](const Request&) { return std::string("me"); };
        const auto handler = [](Pqxx::Transaction&, const Exchange&) { return Answer{}; };
        EXPECT_NO_THROW(idempotent.transactional(options, handler));
        spoil(options);
        EXPECT_THROW(idempotent.transactional(options, handler), std::invalid_argument);
    };
    refused([](Options& options) { options.attempts = 0; });
    refused([](Options& options) { options.wait = Milliseconds(-1); });
    refused([](Options& options) { options.handler_timeout = Milliseconds(0); });
    refused([](Options& options) { options.lease = Milliseconds(0); });
    refused([](Options& options) { options.ttl = Milliseconds(0); });
    refused([](Options& options) { options.window = Milliseconds(0); });
    refused([](Options& options) { options.key_header = "Idempotency Key"; });
    refused([](Options& options) { options.keep = nullptr; });
    refused([](Options& options) { options.statuses = {{"in-progress", 425}}; });
    refused([](Options& options) { options.statuses = {{"in_progress", 200}}; });
}

}  // namespace
}  // namespace idempotency
