// Routes behind cpp-httplib, by requests as they are on the wire.
#include <arpa/inet.h>

#include <idempotency/httplib.hpp>
#include <thread>

#include "support.hpp"

namespace idempotency {
namespace {

class Httplib : public testing::Test {
  protected:
    static void SetUpTestSuite() { prepare_database(); }

    void SetUp() override {
        Options options;
        options.scope = "httplib";
        options.max_request_bytes = 1000;
        options.principal = [](const Request& head) {
            const auto tenant = value_of(head.headers, "X-Tenant");
            return tenant.empty() ? std::nullopt : std::make_optional(tenant);
        };
        const auto route = Idempotent<Pqxx>(pool).transactional(
            options, [this](Pqxx::Transaction& tx, const Exchange& exchange) {
                ++runs;
                tx.exec_params(kEffect, exchange.key);
                return Answer{201,
                              {{"Content-Type", "text/x-run"}, {"Link", "a"}, {"Link", "b"}},
                              exchange.key + " " + exchange.request.body};
            });
        server.Post("/payments", protect(route));
        server.Post("/throws", protect({nullptr, 1000, [](const auto&, const auto&) -> Answer {
                                            throw std::runtime_error("secret");
                                        }}));
        port = server.bind_to_any_port("127.0.0.1");
        thread = std::thread([this] { server.listen_after_bind(); });
    }

    void TearDown() override {
        server.stop();
        thread.join();
    }

    int connect() const {
        const int number = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::connect(number, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
        return number;
    }

    // What comes until the connection is closed, or until the words have come.
    static std::string talk(int number, const std::string& said, const std::string& until = "") {
        EXPECT_EQ(send(number, said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
        std::string heard;
        std::array<char, 4096> part{};
        ssize_t count = 0;
        while ((until.empty() || heard.find(until) == heard.npos) &&
               (count = recv(number, part.data(), part.size(), 0)) > 0) {
            heard.append(part.data(), static_cast<std::size_t>(count));
        }
        return heard;
    }

    std::string head(const std::string& fields) const {
        return "POST /payments HTTP/1.1\r\nHost: x\r\n" + fields + "\r\n";
    }

    std::string request(const std::string& sent_key, const std::string& body = "{}",
                        const std::string& more = "Connection: close\r\n",
                        const std::string& type = "application/json") const {
        return head("X-Tenant: me\r\nIdempotency-Key: " + sent_key + "\r\nContent-Type: " + type +
                    "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more) +
               body;
    }

    std::string ask_once(const std::string& said) const {
        const int number = connect();
        auto heard = talk(number, said);
        close(number);
        return heard;
    }

    static bool has(const std::string& text, const std::string& part) {
        return text.find(part) != text.npos;
    }

    Pool<Pqxx> pool{"", {}};
    HttplibServer server;
    std::atomic<int> runs{0};
    int port = 0;
    std::thread thread;
    const std::string key = unique("httplib");
};

TEST_F(Httplib, repeat_is_replayed) {
    const auto first = ask_once(request('"' + key + '"'));
    EXPECT_TRUE(has(first, "HTTP/1.1 201")) << first;
    EXPECT_TRUE(has(first, key + " {}")) << first;
    const auto again = ask_once(request('"' + key + '"'));
    EXPECT_TRUE(has(again, "HTTP/1.1 201")) << again;
    EXPECT_TRUE(has(again, "Idempotent-Replayed: true")) << again;
    EXPECT_TRUE(has(again, "Link: a\r\nLink: b")) << again;
    EXPECT_TRUE(has(again, "text/x-run") && has(again, key + " {}")) << again;
    EXPECT_EQ(runs, 1);
}

TEST_F(Httplib, percent_escapes_are_part_of_the_key) {
    EXPECT_TRUE(has(ask_once(request('"' + key + "%2D1\"")), key + "%2D1 {}"));
    EXPECT_TRUE(has(ask_once(request('"' + key + "-1\"")), key + "-1 {}"));
    EXPECT_EQ(runs, 2);
}

TEST_F(Httplib, body_is_not_read_before_the_principal_is_known) {
    const auto heard = ask_once(head("Content-Length: 1000\r\nIdempotency-Key: k\r\n"));
    EXPECT_TRUE(has(heard, "HTTP/1.1 401")) << heard;
    EXPECT_TRUE(has(heard, "Connection: close")) << heard;
    EXPECT_TRUE(has(ask_once(head("X-Tenant: me\r\nContent-Length: 1000\r\n")), "HTTP/1.1 400"));
}

TEST_F(Httplib, unread_body_is_no_next_request) {
    const auto inner = request('"' + key + '"');
    const auto heard = ask_once(
        head("Content-Length: " + std::to_string(inner.size()) + "\r\nIdempotency-Key: k\r\n") +
        inner);
    EXPECT_TRUE(has(heard, "HTTP/1.1 401")) << heard;
    EXPECT_EQ(runs, 0);
}

TEST_F(Httplib, large_body_is_refused) {
    EXPECT_TRUE(has(ask_once(request("k", '"' + std::string(998, 'x') + '"')), "HTTP/1.1 201"));
    EXPECT_TRUE(has(ask_once(request("l", '"' + std::string(999, 'x') + '"')), "HTTP/1.1 413"));
}

TEST_F(Httplib, two_lengths_are_refused) {
    const auto heard = ask_once(request("k", "{}", "Content-Length: 2\r\nConnection: close\r\n"));
    EXPECT_TRUE(has(heard, "HTTP/1.1 400")) << heard;
    EXPECT_EQ(runs, 0);
}

TEST_F(Httplib, two_hosts_are_refused) {
    const auto heard = ask_once(request("k", "{}", "Host: y\r\nConnection: close\r\n"));
    EXPECT_TRUE(has(heard, "HTTP/1.1 400")) << heard;
    EXPECT_EQ(runs, 0);
}

TEST_F(Httplib, text_of_an_exception_is_not_sent) {
    const auto heard = ask_once("POST /throws HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(has(heard, "HTTP/1.1 500")) << heard;
    EXPECT_FALSE(has(heard, "secret")) << heard;
}

TEST_F(Httplib, form_comes_whole) {
    const std::string form = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--";
    const auto heard = ask_once(
        request('"' + key + '"', form, "Connection: close\r\n", "multipart/form-data; boundary=b"));
    EXPECT_TRUE(has(heard, "HTTP/1.1 201") && has(heard, form)) << heard;
}

TEST_F(Httplib, chunks_are_a_body) {
    const auto heard =
        ask_once(head("X-Tenant: me\r\nIdempotency-Key: " + key +
                      "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
                      "Connection: close\r\n") +
                 "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
    EXPECT_TRUE(has(heard, key + " {}")) << heard;
}

TEST_F(Httplib, connection_serves_several_requests) {
    const int number = connect();
    for (const std::string each : {"-a", "-b"}) {
        const auto heard = talk(number, request('"' + key + each + '"', "{}", ""), " {}");
        EXPECT_TRUE(has(heard, key + each + " {}")) << heard;
        EXPECT_TRUE(has(heard, "Content-Length: ")) << heard;
    }
    close(number);
    EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace idempotency
