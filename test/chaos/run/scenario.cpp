#include "run/scenario.hpp"

#include <algorithm>
#include <pqxx/pqxx>
#include <stdexcept>

#include "run/database.hpp"
#include "run/tables.hpp"

namespace idem::chaos {
namespace {

void keep_mix(Mix*) {}
void with_foreign(Mix* mix) {
    mix->foreign = true;
}
void keep_server(const Server&, const Options&) {}

void wait(Stage* stage) {
    while (now() < stage->end) rest(20 * kMillisecond);
}

// ---- mixed: some effects are outside the database ----

void prepare_foreign(const Server& server, const Options&) {
    server.query(foreign_table(server.folder(), server.port()));
}

// ---- drop: the extension is dropped and created again ----

Call drop_call(std::int64_t number) {
    Call call;
    call.function = Function::Drop;
    call.transaction = -number;
    call.alone = true;
    return call;
}

bool drop(const Server& server, std::int64_t body_limit) {
    try {
        pqxx::connection connection(server.connection_string());
        pqxx::nontransaction tx(connection);
        tx.exec("SET lock_timeout = '2s'");
        tx.exec(drop_and_create(body_limit));
        return true;
    } catch (const pqxx::failure&) {
        return false;  // a holder sleeps, or they wait for each other: another time
    }
}

void play_drop(Stage* stage) {
    Random random(stage->seed, 0xd209);
    for (std::int64_t number = 1; now() < stage->end; ++number) {
        rest(random.between(100, 600) * kMillisecond);
        Call call = drop_call(number);
        bool done = false;
        for (int tries = 0; !done && tries < 20; ++tries) {
            call.invoked = now();
            done = drop(stage->server, stage->mix.body_limit);
        }
        if (!done) continue;
        call.returned = now();
        stage->calls.push_back(call);
        ++stage->fired["drop extension"];
    }
}

// ---- failover ----

// Half of the time on the primary, half on the standby that was promoted.
void play_failover(Stage* stage, bool forgetful) {
    Server standby = stage->server.clone(stage->server.folder() + "/standby");
    if (!forgetful) stage->server.set("synchronous_standby_names", "standby");
    const Micros half = std::max(2 * kSecond, (stage->end - now()) / 2);
    rest(half);
    if (forgetful) {
        standby.set("primary_conninfo", "");
        rest(kSecond);
    }
    stage->server.stop_immediately();
    if (forgetful) stage->forgetful_failovers.push_back(now());
    standby.promote();
    stage->target.set(standby.connection_string(), "");
    stage->server = standby;
    ++stage->fired["promote"];
    stage->end = now() + half;
    wait(stage);
}

void play_synchronous(Stage* stage) {
    play_failover(stage, false);
}
void play_asynchronous(Stage* stage) {
    play_failover(stage, true);
}

// Prepared transactions in the lost part of the WAL are gone; sessions would look for them in vain.
void without_prepare(Mix* mix) {
    mix->prepare = false;
}

// ---- restore: the database is that of a dump, in a cluster that lacks a role ----

void play_restore(Stage* stage) {
    const Micros half = (stage->end - now()) / 2;
    rest(half);
    stage->server.restore_from_dump("DROP ROLE chaos_keeper");
    ++stage->fired["restore"];
    stage->end = now() + half;
    wait(stage);
}

// ---- disk: the records' disk fills up ----

void prepare_disk(const Server& server, const Options& options) {
    if (options.small_disk.empty()) throw std::invalid_argument("the scenario disk needs --disk");
    server.query("DROP TABLESPACE IF EXISTS small");
    server.query("CREATE TABLESPACE small LOCATION '" + options.small_disk + "'");
    server.query("ALTER TABLE idempotency.record SET TABLESPACE small");
    server.query("ALTER INDEX idempotency.record_pkey SET TABLESPACE small");
}

const std::vector<Scenario>& all() {
    static const std::vector<Scenario> kAll = {
        {"mixed",
         "everything at once, on one server",
         {"cancel", "terminate", "kill", "pause", "crash", "vacuum", "reindex", "sweep", "locks",
          "connections", "triggers", "owner"},
         with_foreign,
         prepare_foreign,
         wait},
        {"drop",
         "DROP EXTENSION and CREATE EXTENSION while everybody works",
         {"cancel", "terminate", "sweep"},
         keep_mix,
         keep_server,
         play_drop},
        // Without "cancel": a client that is cancelled while COMMIT waits for the standby is told
        // of a success that the standby may lack.
        {"sync",
         "the primary crashes, its synchronous standby takes over",
         {"terminate", "sweep"},
         keep_mix,
         keep_server,
         play_synchronous},
        {"async",
         "the primary crashes, a standby takes over that has not got everything",
         {"cancel", "terminate", "sweep"},
         without_prepare,
         keep_server,
         play_asynchronous},
        {"restore",
         "dumped, and restored where the role of a policy does not exist",
         {"terminate", "sweep"},
         without_prepare,
         keep_server,
         play_restore},
        {"disk",
         "the disk that holds the records is full again and again",
         {"disk", "cancel", "terminate", "sweep"},
         keep_mix,
         prepare_disk,
         wait},
    };
    return kAll;
}

}  // namespace

const Scenario& scenario_of(const std::string& name) {
    for (const Scenario& scenario : all())
        if (scenario.name == name) return scenario;
    throw std::invalid_argument("no scenario '" + name + "'");
}

}  // namespace idem::chaos
