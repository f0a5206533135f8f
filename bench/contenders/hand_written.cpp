// The table of keys that every payments service writes sooner or later.

#include "contenders/business.hpp"
#include "contenders/contenders.hpp"

namespace idem::bench {
namespace {

void prepare(Connection& sql) {
    prepare_business(sql);
    sql.prepare("claim",
                "INSERT INTO bench.request_key (key) VALUES ($1) ON CONFLICT (key) DO NOTHING");
    sql.prepare("paid", "UPDATE bench.request_key SET recovery_point = 'paid' WHERE key = $1");
    sql.prepare("finish",
                "UPDATE bench.request_key SET recovery_point = 'finished', status_code = 201,"
                " body = $2 WHERE key = $1");
}

}  // namespace

Work keys_table(Client& client) {
    prepare(client.sql);
    return [&sql = client.sql] {
        std::string key = random_key();
        sql.ask(start());
        expect(sql.ask({"claim", {key}}), "1");
        expect(sql.ask(pay()), "1");
        expect(sql.ask({"finish", {key, response_body()}}), "1");
        sql.ask(commit());
    };
}

Work keys_table_pipelined(Client& client) {
    prepare(client.sql);
    return [&sql = client.sql] {
        std::string key = random_key();
        expect(sql.round_trip({start(), {"claim", {key}}}).back().front(), "1");
        expect(sql.ask(pay()), "1");
        expect(sql.round_trip({{"finish", {key, response_body()}}, commit()}).front().front(), "1");
    };
}

// Without the recovery point, a crash between the second commit and the third would be followed by
// a second payment.
Work keys_table_in_three_commits(Client& client) {
    prepare(client.sql);
    return [&sql = client.sql] {
        std::string key = random_key();
        expect(sql.ask({"claim", {key}}), "1");
        sql.ask(start());
        expect(sql.ask(pay()), "1");
        expect(sql.ask({"paid", {key}}), "1");
        sql.ask(commit());
        expect(sql.ask({"finish", {key, response_body()}}), "1");
    };
}

}  // namespace idem::bench
