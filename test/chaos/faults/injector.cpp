#include "faults/injector.hpp"

#include "clock.hpp"

namespace idem::chaos {

Injector::Injector(const Target& target, Random random, Micros pause)
    : random_(random), pause_(pause), target_(target) {}

void Injector::add(const std::string& kind, int weight, Fault fault) {
    fired_[kind] = 0;
    weights_.emplace_back(kind, weight);
    faults_[kind] = std::move(fault);
}

void Injector::start() {
    if (faults_.empty()) return;
    threads_.emplace_back([this] {
        while (!stop_) {
            rest(random_.between(pause_ / 10, 2 * pause_));
            fire();
        }
    });
}

void Injector::stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    if (!threads_.empty()) heal();
    threads_.clear();
}

void Injector::fire() {
    const std::string kind = draw();
    try {
        if (faults_.at(kind)()) ++fired_[kind];
    } catch (const pqxx::failure&) {
        rest(pause_);  // the server is down, or has not got what the fault needs
    }
}

// Sessions with the lock of a key. With the heap store the lock is released when the record is
// written, so these are before the end of idem_complete. pg_xact_status needs the transaction's
// number with its epoch.
std::vector<Injector::Holder> Injector::holders(const std::string& sessions) {
    const pqxx::result rows = query(
        "SELECT DISTINCT pid, application_name,"
        " ((pg_snapshot_xmax(pg_current_snapshot())::text::bigint >> 32 << 32)"
        "  + backend_xid::text::bigint)::text"
        " FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE locktype = 'advisory' AND 18756 IN (objsubid, classid) AND granted"
        "   AND application_name LIKE '" +
        sessions + "' ORDER BY pid");
    std::vector<Holder> all;
    for (const auto& row : rows)
        all.push_back({row[0].as<int>(), row[1].as<std::string>(), row[2].as<std::string>("")});
    return all;
}

pqxx::result Injector::query(const std::string& sql) {
    try {
        if (!admin_) admin_ = std::make_unique<pqxx::connection>(direct());
        pqxx::nontransaction tx(*admin_);
        return tx.exec(sql);
    } catch (const pqxx::failure&) {
        admin_.reset();
        throw;
    }
}

}  // namespace idem::chaos
