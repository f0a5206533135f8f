// Routes behind each HTTP library, by requests as they are on the wire.
#include <arpa/inet.h>

#include <idempotency/beast.hpp>
#include <idempotency/httplib.hpp>
#include <thread>

#include "support.hpp"

namespace idempotency {
namespace {

struct OnHttplib {
    HttplibServer server;
    void post(const std::string& path, Route route) {
        server.Post(path, protect(std::move(route)));
    }
    int bind() { return server.bind_to_any_port("127.0.0.1"); }
    void listen() { server.listen_after_bind(); }
};

struct OnBeast {
    BeastServer server;
    void post(const std::string& path, Route route) {
        server.route("POST", path, std::move(route));
    }
    int bind() { return server.bind("127.0.0.1", 0); }
    void listen() { server.listen(); }
};

constexpr auto kLinks = "Link: a\r\nLink: b\r\n";

template <typename Front>
class Adapter : public testing::Test {
  protected:
    static void SetUpTestSuite() { prepare_database(); }

    void SetUp() override {
        Options options;
        options.scope = "adapter";
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
                              {{"Link", "a"}, {"Content-Type", "text/x-run"}, {"Link", "b"}},
                              exchange.key + " " + exchange.request.body};
            });
        front.post("/payments", route);
        front.post("/throws", {nullptr, 1000, [](const auto&, const auto&) -> Answer {
                                   throw std::runtime_error("secret");
                               }});
        port = front.bind();
        thread = std::thread([this] { front.listen(); });
    }

    void TearDown() override {
        front.server.stop();
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
    Front front;
    std::atomic<int> runs{0};
    int port = 0;
    std::thread thread;
    const std::string key = unique("adapter");
};

using Fronts = testing::Types<OnHttplib, OnBeast>;
TYPED_TEST_SUITE(Adapter, Fronts);

TYPED_TEST(Adapter, repeat_is_replayed) {
    const auto first = this->ask_once(this->request('"' + this->key + '"'));
    EXPECT_TRUE(this->has(first, "HTTP/1.1 201")) << first;
    EXPECT_TRUE(this->has(first, this->key + " {}")) << first;
    EXPECT_TRUE(this->has(first, kLinks)) << first;
    const auto again = this->ask_once(this->request('"' + this->key + '"'));
    EXPECT_TRUE(this->has(again, "HTTP/1.1 201")) << again;
    EXPECT_TRUE(this->has(again, "Idempotent-Replayed: true")) << again;
    EXPECT_TRUE(this->has(again, kLinks)) << again;
    EXPECT_TRUE(this->has(again, "text/x-run") && this->has(again, this->key + " {}")) << again;
    EXPECT_EQ(this->runs, 1);
}

TYPED_TEST(Adapter, percent_escapes_are_part_of_the_key) {
    EXPECT_TRUE(this->has(this->ask_once(this->request('"' + this->key + "%2D1\"")),
                          this->key + "%2D1 {}"));
    EXPECT_TRUE(
        this->has(this->ask_once(this->request('"' + this->key + "-1\"")), this->key + "-1 {}"));
    EXPECT_EQ(this->runs, 2);
}

TYPED_TEST(Adapter, body_is_not_read_before_the_principal_is_known) {
    const auto heard = this->ask_once(this->head("Content-Length: 1000\r\nIdempotency-Key: k\r\n"));
    EXPECT_TRUE(this->has(heard, "HTTP/1.1 401")) << heard;
    EXPECT_TRUE(this->has(heard, "Connection: close")) << heard;
    EXPECT_TRUE(this->has(this->ask_once(this->head("X-Tenant: me\r\nContent-Length: 1000\r\n")),
                          "HTTP/1.1 400"));
}

TYPED_TEST(Adapter, unread_body_is_no_next_request) {
    const auto inner = this->request('"' + this->key + '"');
    const auto heard = this->ask_once(this->head("Content-Length: " + std::to_string(inner.size()) +
                                                 "\r\nIdempotency-Key: k\r\n") +
                                      inner);
    EXPECT_TRUE(this->has(heard, "HTTP/1.1 401")) << heard;
    EXPECT_EQ(this->runs, 0);
}

TYPED_TEST(Adapter, large_body_is_refused) {
    EXPECT_TRUE(this->has(this->ask_once(this->request("k", '"' + std::string(998, 'x') + '"')),
                          "HTTP/1.1 201"));
    EXPECT_TRUE(this->has(this->ask_once(this->request("l", '"' + std::string(999, 'x') + '"')),
                          "HTTP/1.1 413"));
}

TYPED_TEST(Adapter, two_lengths_are_refused) {
    const auto heard =
        this->ask_once(this->request("k", "{}", "Content-Length: 2\r\nConnection: close\r\n"));
    EXPECT_TRUE(this->has(heard, "HTTP/1.1 400")) << heard;
    EXPECT_EQ(this->runs, 0);
}

TYPED_TEST(Adapter, two_hosts_are_refused) {
    const auto heard = this->ask_once(this->request("k", "{}", "Host: y\r\nConnection: close\r\n"));
    EXPECT_TRUE(this->has(heard, "HTTP/1.1 400")) << heard;
    EXPECT_EQ(this->runs, 0);
}

TYPED_TEST(Adapter, text_of_an_exception_is_not_sent) {
    const auto heard =
        this->ask_once("POST /throws HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    EXPECT_TRUE(this->has(heard, "HTTP/1.1 500")) << heard;
    EXPECT_FALSE(this->has(heard, "secret")) << heard;
}

TYPED_TEST(Adapter, form_comes_whole) {
    const std::string form = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--";
    const auto heard = this->ask_once(this->request(
        '"' + this->key + '"', form, "Connection: close\r\n", "multipart/form-data; boundary=b"));
    EXPECT_TRUE(this->has(heard, "HTTP/1.1 201") && this->has(heard, form)) << heard;
}

TYPED_TEST(Adapter, chunks_are_a_body) {
    const auto heard = this->ask_once(
        this->head("X-Tenant: me\r\nIdempotency-Key: " + this->key +
                   "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
                   "Connection: close\r\n") +
        "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n");
    EXPECT_TRUE(this->has(heard, this->key + " {}")) << heard;
}

TYPED_TEST(Adapter, connection_serves_several_requests) {
    const int number = this->connect();
    for (const std::string each : {"-a", "-b"}) {
        const auto heard =
            this->talk(number, this->request('"' + this->key + each + '"', "{}", ""), " {}");
        EXPECT_TRUE(this->has(heard, this->key + each + " {}")) << heard;
        EXPECT_TRUE(this->has(heard, "Content-Length: ")) << heard;
    }
    close(number);
    EXPECT_EQ(this->runs, 2);
}

TEST(Httplib, fields_follow_those_of_the_server) {
    httplib::Response response;
    response.headers.emplace("Link", "server");
    detail::send({200, {{"Link", "a"}, {"Vary", "x"}, {"link", "b"}, {"Link", "c"}}, ""}, response);
    std::vector<std::string> values;
    const auto [begin, end] = response.headers.equal_range("Link");
    for (auto at = begin; at != end; ++at) values.push_back(at->second);
    EXPECT_EQ(values, (std::vector<std::string>{"server", "a", "b", "c"}));
}

}  // namespace
}  // namespace idempotency
