#include "load/client.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "check/branches.hpp"
#include "digest.hpp"

namespace idem::chaos {
namespace {

// The server shuts down, or the connection fails: the fate of the call is unknown.
bool means_lost(const std::string& sqlstate) {
    return sqlstate.empty() || sqlstate == kNotReplicated || sqlstate.compare(0, 2, "08") == 0 ||
           sqlstate.compare(0, 4, "57P0") == 0;
}

// The server's own message (XX000) if a function, its type or a table is dropped between parsing
// and use: it locks none. A call of the module would add a context; the edition without C has
// functions in PL/pgSQL, which add theirs.
bool is_dropped(const pqxx::sql_error& error) {
    const std::string text = error.what();
    const auto has = [&](const char* words) { return text.find(words) != std::string::npos; };
    return (has("cache lookup failed for function") || has("cache lookup failed for type") ||
            has("could not open relation with OID")) &&
           (!has("CONTEXT:") || has("PL/pgSQL function idempotency.") ||
            has("PL/pgSQL function idem_") || has("PL/pgSQL function public.idem_") ||
            has("compilation of PL/pgSQL function"));
}

// Internal errors of Citus: another node did not answer, for instance to COMMIT or PREPARE, or this
// node's server was killed while it waited for another.
bool is_doubtful(const pqxx::sql_error& error) {
    static const char* const kWords[] = {
        "could not commit transaction for shard", "failure on connection marked as essential",
        "server closed the connection unexpectedly", "postmaster was shut down"};
    const std::string text = error.what();
    return std::any_of(std::begin(kWords), std::end(kWords),
                       [&](const char* words) { return text.find(words) != std::string::npos; });
}

// Another node has sent the call to a server that is no primary any more. In one isolation level
// the server reports that as a missing feature (0A000).
bool is_on_standby(const pqxx::sql_error& error) {
    return std::string(error.what()).find("in a hot standby") != std::string::npos;
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

// libpqxx 6 identifies some errors only by their class.
std::string state_of(const pqxx::sql_error& error) {
    if (is_dropped(error)) return "42883";
    if (is_on_standby(error)) return "25006";
    if (!error.sqlstate().empty()) return std::string(error.sqlstate());
    if (dynamic_cast<const pqxx::insufficient_privilege*>(&error) != nullptr) return "42501";
    if (dynamic_cast<const pqxx::undefined_function*>(&error) != nullptr) return "42883";
    if (dynamic_cast<const pqxx::undefined_table*>(&error) != nullptr) return "42P01";
    return {};
}

template <typename Field>
std::string text_of(const Field& field) {
    return field.is_null() ? "" : field.c_str();
}

template <typename T, typename Field>
T number_of(const Field& field) {
    return field.is_null() ? T{} : field.template as<T>();
}

// The timeline of a primary. The control file may still have the one before.
constexpr const char* kTimeline =
    "('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int";

int timeline_of(pqxx::connection& connection) {
    pqxx::nontransaction tx(connection);
    return tx.exec(std::string("SELECT ") + kTimeline)[0][0].as<int>();
}

}  // namespace

Client::Client(const Target& target, int session, bool pooled, const Habits& habits)
    : target_(target), session_(session), pooled_(pooled), habits_(habits) {}

std::unique_ptr<pqxx::connection> Client::open(const std::string& where, const std::string& name) {
    return std::make_unique<pqxx::connection>(where + " connect_timeout=10 application_name='" +
                                              name + "'");
}

bool Client::connect(const std::atomic<bool>& give_up) {
    // Between two turns no call is running on a node that is to leave.
    if (connected() && habits_.any_node && !target_.is_asked(where_)) lose();
    while (!connected() && !give_up) {
        try {
            application_ =
                "chaos " + std::to_string(session_) + "." + std::to_string(++connections_);
            where_ = habits_.any_node
                         ? target_.node(static_cast<std::size_t>(session_ + connections_))
                     : pooled_ ? target_.pooled()
                               : target_.direct();
            connection_ = open(where_, application_);
            warnings_ = std::make_unique<Warnings>(*connection_);
            if (habits_.failover) timeline_ = timeline_of(*connection_);
            if (habits_.any_node) learn_traces();
        } catch (const pqxx::failure&) {
            lose();
            rest(20 * kMillisecond);
        }
    }
    return connected();
}

// A broken connection is never used again: libpqxx would silently reopen it.
void Client::lose() {
    warnings_.reset();
    connection_.reset();
}

void Client::receive(const pqxx::result& rows) {
    answer_ = Answer{};
    if (rows.columns() > 0 && rows.column_name(0) == std::string("forgotten"))
        answer_.yes = rows.at(0)["complete"].as<bool>();
    if (rows.empty() || rows.columns() < 9) return;
    const auto row = rows[0];
    answer_.outcome = text_of(row[0]);
    answer_.yes = answer_.outcome == "t";
    answer_.token = number_of<std::int64_t>(row[1]);
    answer_.attempt = number_of<int>(row[2]);
    answer_.found = !row[2].is_null();
    answer_.status = text_of(row[3]);
    answer_.status_code = number_of<int>(row[4]);
    answer_.body = digest(text_of(row[5]));
    answer_.point = text_of(row[6]);
    if (answer_.outcome == "execute") answer_.generation = text_of(row[7]);
    answer_.error = text_of(row[8]);
}

Client::Status Client::silently(const std::string& sql) {
    sqlstate_.clear();
    message_.clear();
    try {
        pqxx::nontransaction tx(*connection_);
        const Patience patience(*connection_, habits_.patience);
        receive(tx.exec(sql));
        if (!warnings_->not_replicated() || habits_.trusts_warnings) return Status::Ok;
        // Only this server may have the commit; another one may be the primary by now.
        sqlstate_ = kNotReplicated;
    } catch (const pqxx::serialization_failure&) {
        sqlstate_ = "40001";  // libpqxx 6 does not count these two among SQL errors
    } catch (const pqxx::deadlock_detected&) {
        sqlstate_ = "40P01";
    } catch (const pqxx::sql_error& error) {
        sqlstate_ = habits_.any_node && is_doubtful(error) ? "08006" : state_of(error);
        if (sqlstate_ == "XX000") message_ = first_line(error.what());
    } catch (const pqxx::failure&) {
    }
    // A call cancelled here may have been completed on another node.
    const bool cancelled = habits_.any_node && sqlstate_ == "57014";
    if (!means_lost(sqlstate_) && !cancelled && connection_->is_open()) return Status::Refused;
    lose();
    return Status::Lost;
}

void Client::sign(Call* call) const {
    call->session = session_;
    call->connection = connections_;
    call->timeline = timeline_;
    call->node = node_;
}

Client::Status Client::run(Call call, const std::string& sql) {
    sign(&call);
    call.invoked = now();
    const Status status = silently(sql);
    // Committed, but a node that did not hear of it keeps it prepared until Citus repeats the
    // commit.
    if (status == Status::Ok && habits_.any_node && warnings_->heard())
        while (!is_settled()) rest(20 * kMillisecond);
    call.returned = now();
    call.sqlstate = sqlstate_;
    call.message = message_;
    call.result = status == Status::Ok        ? Result::Ok
                  : status == Status::Refused ? Result::Error
                                              : Result::Info;
    if (status == Status::Ok) call.answer = answer_;
    if (status == Status::Lost) {
        call.returned = kNever;
        unanswered_.push_back(calls_.size());
    }
    calls_.push_back(std::move(call));
    return status;
}

// At the level of the wire protocol, because libpqxx cancels a statement whose answer it does not
// read, and that would end at once a commit that waits for a standby. A failed send is a hang-up,
// too.
void Client::send_and_hang_up(Call call, const std::string& sql) {
    sign(&call);
    call.invoked = now();
    call.result = Result::Info;
    const auto length = htonl(static_cast<std::uint32_t>(sizeof(std::uint32_t) + sql.size() + 1));
    std::string message = "Q";
    message.append(reinterpret_cast<const char*>(&length), sizeof length);
    message.append(sql.c_str(), sql.size() + 1);
    (void)::send(connection_->sock(), message.data(), message.size(), MSG_NOSIGNAL);
    (void)::shutdown(connection_->sock(), SHUT_RDWR);
    lose();
    unanswered_.push_back(calls_.size());
    calls_.push_back(std::move(call));
}

void Client::note(Call call) {
    sign(&call);
    const bool unanswered = call.returned == kNever;
    if (unanswered) unanswered_.push_back(calls_.size());
    calls_.push_back(std::move(call));
}

std::string Client::quote(const std::string& text) const {
    return connection_->quote(text);
}

pqxx::result Client::ask_directly(const std::string& sql) {
    for (;;) {
        try {
            auto connection = open(target_.direct(), "chaos-witness");
            pqxx::nontransaction tx(*connection);
            return tx.exec(sql);
        } catch (const pqxx::failure&) {
            rest(20 * kMillisecond);
        }
    }
}

// A pooler keeps its connections, and names them after the client that they serve.
void Client::await_end_of_lost() {
    while (!is_gone()) rest((habits_.any_node ? 50 : 5) * kMillisecond);
    for (const std::size_t index : unanswered_) calls_[index].returned = now();
    unanswered_.clear();
}

// As Citus names its backends and prepared transactions: after the client that asked for them.
void Client::learn_traces() {
    pqxx::nontransaction tx(*connection_);
    const auto row = tx.exec(
        "SELECT citus_backend_gpid(), groupid, pg_backend_pid() FROM pg_dist_local_group")[0];
    node_ = row[1].as<int>();
    traces_ = std::string("citus_internal gpid=") + row[0].c_str();
    prepared_ = std::string("citus\\_") + row[1].c_str() + "\\_" + row[2].c_str() + "\\_%";
}

// The backends first: the transactions that they prepare are there when they are gone.
bool Client::is_gone_everywhere() {
    try {
        for (const std::string& node : target_.all_nodes()) {
            auto connection = open(node, "chaos-witness");
            pqxx::nontransaction tx(*connection);
            if (!tx.exec("SELECT FROM pg_stat_activity WHERE application_name IN ('" +
                         application_ + "', '" + traces_ + "')")
                     .empty())
                return false;
        }
        return is_settled();
    } catch (const pqxx::failure&) {
        return false;
    }
}

bool Client::is_settled() {
    try {
        for (const std::string& node : target_.all_nodes()) {
            auto connection = open(node, "chaos-witness");
            pqxx::nontransaction tx(*connection);
            if (!tx.exec("SELECT FROM pg_prepared_xacts WHERE gid LIKE '" + prepared_ + "'")
                     .empty())
                return false;
        }
        return true;
    } catch (const pqxx::failure&) {
        return false;
    }
}

bool Client::is_gone() {
    if (habits_.any_node) return is_gone_everywhere();
    const std::string served = "SELECT FROM pg_stat_activity WHERE application_name = '" +
                               application_ + "'" + (pooled_ ? " AND state <> 'idle'" : "");
    if (!habits_.failover) return ask_directly(served).empty();
    const pqxx::result rows =
        ask_directly(std::string("SELECT ") + kTimeline + ", EXISTS (" + served + ")");
    const int now = rows[0][0].as<int>();
    return now > timeline_ || (now == timeline_ && !rows[0][1].as<bool>());
}

bool Client::is_prepared(const std::string& name) {
    return !ask_directly("SELECT FROM pg_prepared_xacts WHERE gid = '" + name + "'").empty();
}

void Client::end_prepared(Call call, const std::string& name, bool commit) {
    sign(&call);
    call.function = commit ? Function::CommitPrepared : Function::RollbackPrepared;
    call.invoked = now();
    const std::string sql = (commit ? "COMMIT PREPARED '" : "ROLLBACK PREPARED '") + name + "'";
    // A client that did not hear of the success is told that there is no such transaction.
    while (is_prepared(name)) {
        try {
            auto connection = open(target_.direct(), "chaos-witness");
            pqxx::nontransaction tx(*connection);
            tx.exec(sql);
        } catch (const pqxx::failure&) {
            rest(5 * kMillisecond);
        }
    }
    call.returned = now();
    calls_.push_back(std::move(call));
}

}  // namespace idem::chaos
