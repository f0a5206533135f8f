#include "contenders/business.hpp"
#include "contenders/contenders.hpp"

namespace idem::bench {
namespace {

void prepare_protocol(Connection& sql) {
    prepare_business(sql);
    sql.prepare("claim", "SELECT outcome FROM idem_begin($1, scope => 'bench')");
    sql.prepare("complete", "SELECT idem_complete($1, 201, $2::text, scope => 'bench')");
}

void prepare_once(Connection& sql) {
    prepare_business(sql);
    sql.prepare("once", "SELECT idem_once($1, scope => 'bench')");
}

std::string as_json(const std::vector<std::string>& payment) {
    return R"({"account": )" + payment.at(0) + R"(, "amount": )" + payment.at(1) + "}";
}

}  // namespace

Work ours(Client& client) {
    prepare_protocol(client.sql);
    return [&sql = client.sql] {
        std::string key = random_key();
        sql.ask(start());
        expect(sql.ask({"claim", {key}}), "execute");
        expect(sql.ask(pay()), "1");
        expect(sql.ask({"complete", {key, response_body()}}), "t");
        sql.ask(commit());
    };
}

Work ours_pipelined(Client& client) {
    prepare_protocol(client.sql);
    return [&sql = client.sql] {
        std::string key = random_key();
        expect(sql.round_trip({start(), {"claim", {key}}}).back().front(), "execute");
        expect(sql.ask(pay()), "1");
        expect(sql.round_trip({{"complete", {key, response_body()}}, commit()}).front().front(),
               "t");
    };
}

Work ours_leased(Client& client) {
    prepare_business(client.sql);
    client.sql.prepare("claim", "SELECT outcome, token FROM idem_begin($1, scope => 'bench')");
    client.sql.prepare("complete",
                       "SELECT idem_complete($1, 201, $2::text, scope => 'bench', token => $3)");
    return [&sql = client.sql] {
        std::string key = random_key();
        Row claim = sql.round_trip({{"claim", {key}}}).front();
        expect(claim.at(0), "execute");
        sql.ask(start());
        expect(sql.ask(pay()), "1");
        expect(sql.ask({"complete", {key, response_body(), claim.at(1)}}), "t");
        sql.ask(commit());
    };
}

Work ours_execute(Client& client) {
    client.sql.prepare("execute",
                       "SELECT outcome FROM idem_execute($1, 'bench.pay(jsonb)', $2::jsonb,"
                       " scope => 'bench')");
    return [&sql = client.sql] {
        expect(sql.ask({"execute", {random_key(), as_json(random_payment())}}), "execute");
    };
}

Work ours_once(Client& client) {
    prepare_once(client.sql);
    return [&sql = client.sql] {
        sql.ask(start());
        expect(sql.ask({"once", {random_key()}}), "t");
        expect(sql.ask(pay()), "1");
        sql.ask(commit());
    };
}

Work ours_once_pipelined(Client& client) {
    prepare_once(client.sql);
    return [&sql = client.sql] {
        expect(sql.round_trip({start(), {"once", {random_key()}}}).back().front(), "t");
        expect(sql.ask(pay()), "1");
        sql.ask(commit());
    };
}

Work ours_once_statement(Client& client) {
    client.sql.prepare("pay_once",
                       "INSERT INTO bench.payment (account, amount)"
                       " SELECT $1::bigint, $2::bigint"
                       " FROM idem_once($3, scope => 'bench', same_statement => true) AS first"
                       " WHERE first");
    return [&sql = client.sql] {
        auto arguments = random_payment();
        arguments.push_back(random_key());
        expect(sql.ask({"pay_once", arguments}), "1");
    };
}

WorkFactory ours_without_business(const std::string& ttl) {
    return [ttl](Client& client) -> Work {
        prepare_protocol(client.sql);
        client.sql.prepare(
            "claim_for_ttl",
            "SELECT outcome FROM idem_begin($1, scope => 'bench', ttl => '" + ttl + "')");
        return [&sql = client.sql] {
            std::string key = random_key();
            expect(sql.round_trip({start(), {"claim_for_ttl", {key}}}).back().front(), "execute");
            expect(sql.ask({"complete", {key, response_body()}}), "t");
            sql.ask(commit());
        };
    };
}

}  // namespace idem::bench
