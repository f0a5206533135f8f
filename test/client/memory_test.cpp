// A backend that has served many keys is no larger than one that has served a few.
#include "support.hpp"

namespace idem::client {
namespace {

constexpr int kWarmUp = 500;
constexpr int kCycles = 20'000;
constexpr int kOtherCycles = 5'000;
// Allowed to grow: one block of a context that was nearly full. Four bytes a cycle would be more.
constexpr std::int64_t kBound = 64 * 1024;

class Memory : public ClientTest {
  protected:
    std::int64_t in_use() {
        return value<std::int64_t>(
            backend_, "SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts");
    }

    // Caches are filled before the first look.
    template <typename Cycle>
    void expect_flat(int cycles, Cycle cycle) {
        for (int i = 0; i < kWarmUp; ++i) cycle(i);
        const std::int64_t before = in_use();
        for (int i = kWarmUp; i < kWarmUp + cycles; ++i) cycle(i);
        EXPECT_LT(in_use() - before, kBound);
    }

    // Several statements in one message; their results are not wanted.
    void send(const std::string& statements) {
        pqxx::nontransaction tx(backend_);
        tx.exec(statements);
    }

    static std::string begin_sql(int key) {
        return "SELECT outcome FROM idem_begin('" + std::to_string(key) + "', scope => 'client');";
    }

    static std::string complete_sql(int key) {
        return "SELECT idem_complete('" + std::to_string(key) + "', 200, 'ok', scope => 'client');";
    }

    int completed() {
        return value<int>(admin_,
                          "SELECT count(*) FROM idempotency.records"
                          " WHERE scope = 'client' AND status = 'completed'");
    }

    pqxx::connection backend_;
};

TEST_F(Memory, FlatOverTransactions) {
    expect_flat(kCycles,
                [&](int i) { send("BEGIN;" + begin_sql(i) + complete_sql(i) + "COMMIT"); });
    EXPECT_EQ(completed(), kWarmUp + kCycles);
}

TEST_F(Memory, FlatOverReplays) {
    send("BEGIN;" + begin_sql(0) + complete_sql(0) + "COMMIT");
    expect_flat(kOtherCycles, [&](int) { send(begin_sql(0)); });
    EXPECT_EQ(completed(), 1);
}

TEST_F(Memory, FlatOverLeasedClaims) {
    expect_flat(kOtherCycles, [&](int i) {
        const std::string key = std::to_string(i);
        complete(backend_, key, "ok", *begin(backend_, key, {nullptr, nullptr, true}).token);
    });
    EXPECT_EQ(completed(), kWarmUp + kOtherCycles);
}

TEST_F(Memory, FlatOverErrors) {
    expect_flat(kOtherCycles, [&](int i) {
        EXPECT_EQ(sqlstate_of([&] { send("BEGIN;" + begin_sql(i) + "SELECT 1 / 0"); }), "22012");
        send("ROLLBACK");
    });
    EXPECT_EQ(completed(), 0);
}

// The fingerprint's memory belongs to the server and must be released. Memory contexts do not show
// allocations outside of them, so the operating system is asked. Another connection makes the
// request, which is some 20 MB as stored.
TEST_F(Memory, AFingerprintFreesItsMemory) {
    constexpr std::int64_t kMegabyte = 1024;  // in the unit of the answer
    const auto kilobytes = [&](const std::string& what) {
        return value<std::int64_t>(
            backend_, "SELECT substring(pg_read_file('/proc/self/status') from '" + what +
                          R"(:\s*(\d+)')::bigint)");
    };
    run(admin_,
        "CREATE TABLE IF NOT EXISTS client_request AS SELECT jsonb_agg("
        "jsonb_build_object('id', i, 'b', true, 'c', 'x')) AS request"
        " FROM generate_series(1, 400000) i");
    const std::string digest = "SELECT length(idem_fingerprint(request)) FROM client_request";
    EXPECT_EQ(value<int>(backend_, "SELECT length(idem_fingerprint('{}'))"), 32);
    const std::int64_t peak = kilobytes("VmHWM");
    const std::int64_t own = kilobytes("RssAnon");
    EXPECT_EQ(value<int>(backend_, digest), 32);
    EXPECT_LT(kilobytes("VmHWM") - peak, 128 * kMegabyte);
    EXPECT_LT(kilobytes("RssAnon") - own, 64 * kMegabyte);
    run(admin_, "DROP TABLE client_request");
}

}  // namespace
}  // namespace idem::client
