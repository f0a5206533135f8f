// Bodies come back as they were given, byte for byte, on another connection.
#include <random>

#include "support.hpp"

namespace idem::client {
namespace {

constexpr std::size_t kMegabyte = 1 << 20;

// Every byte value, in an order without a period that a lost or doubled block could hide in.
std::string noise(std::size_t size) {
    std::mt19937 random(1);
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
    while (bytes.size() < size) bytes += static_cast<char>(random() & 0xff);
    return bytes;
}

class Bodies : public ClientTest {
  protected:
    // `type` chooses the overload; the body is in that type's text form.
    void store(const std::string& type, const std::string& body) {
        pqxx::work tx(writer_);
        ASSERT_EQ(begin(tx, "key").outcome, "execute");
        tx.exec_params("SELECT idem_complete('key', 200, $1::" + type + ", scope => 'client')",
                       body);
        tx.commit();
    }

    std::string replayed() {
        const Claim claim = begin(reader_, "key");
        EXPECT_EQ(claim.outcome, "replay");
        return claim.body.value_or("no body");
    }

    pqxx::connection writer_;
    pqxx::connection reader_;
};

TEST_F(Bodies, AMegabyteOfAllByteValues) {
    const std::string body = hex(noise(kMegabyte));
    store("bytea", body);
    const std::string answer = replayed();
    EXPECT_EQ(answer.size(), 2 + 2 * kMegabyte);
    EXPECT_TRUE(answer == body);  // not EXPECT_EQ, which would print both
}

TEST_F(Bodies, AMegabyteOfALeasedClaim) {
    const std::string body = hex(noise(kMegabyte));
    const std::int64_t token = *begin(writer_, "key").token;
    run(reader_, "SELECT idem_complete('key', 200, $1::bytea, scope => 'client', token => $2)",
        body, token);
    EXPECT_TRUE(replayed() == body);
}

TEST_F(Bodies, TextKeepsItsSpelling) {
    const std::string body = " {\"a\":1.50, \"a\": \"\u00e4\u20ac\"}\r\n\t\\x00 ";
    store("text", body);
    EXPECT_EQ(replayed(), hex(body));
}

TEST_F(Bodies, EmptyIsNotAbsent) {
    store("bytea", "\\x");
    EXPECT_EQ(replayed(), "\\x");
}

TEST_F(Bodies, JsonIsItsTextForm) {
    store("jsonb", R"({"b":1.50,"a":[1,2]})");
    EXPECT_EQ(replayed(), hex(R"({"a": [1, 2], "b": 1.50})"));
}

}  // namespace
}  // namespace idem::client
