#include "harness/connection.hpp"

#include <stdexcept>

namespace idem::bench {
namespace {

using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

Result owned(PGresult* result) {
    return {result, PQclear};
}

Row row_of(const PGresult* result, int row) {
    Row values;
    for (int i = 0; i < PQnfields(result); i++) values.emplace_back(PQgetvalue(result, row, i));
    return values;
}

std::vector<Row> rows_of(const PGresult* result) {
    std::vector<Row> rows;
    for (int i = 0; i < PQntuples(result); i++) rows.push_back(row_of(result, i));
    return rows;
}

Row answer_of(PGresult* result) {
    if (PQntuples(result) > 0) return row_of(result, 0);
    return {PQresultStatus(result) == PGRES_COMMAND_OK ? PQcmdTuples(result) : ""};
}

bool is_good(const PGresult* result) {
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

std::string conninfo(const std::string& application_name, const Session& session) {
    std::string info = "application_name='" + application_name + "'";
    if (!session.database.empty()) info += " dbname='" + session.database + "'";
    return info;
}

}  // namespace

Connection::Connection(const std::string& application_name, const Session& session)
    : handle_(PQconnectdb(conninfo(application_name, session).c_str()), PQfinish) {
    require(PQstatus(handle_.get()) == CONNECTION_OK);
    query("SET client_min_messages = warning");
    if (!session.durable) query("SET synchronous_commit = off");
}

std::vector<Row> Connection::query(const std::string& sql) {
    Result result = owned(PQexec(handle_.get(), sql.c_str()));
    if (!is_good(result.get())) throw std::runtime_error(PQerrorMessage(handle_.get()) + sql);
    return rows_of(result.get());
}

std::string Connection::text(const std::string& sql) {
    return query(sql).at(0).at(0);
}

double Connection::number(const std::string& sql) {
    return std::stod(text(sql));
}

void Connection::prepare(const char* statement, const std::string& sql) {
    Result result = owned(PQprepare(handle_.get(), statement, sql.c_str(), 0, nullptr));
    require(is_good(result.get()));
}

std::vector<Row> Connection::round_trip(std::initializer_list<Call> calls) {
    send(calls);
    return receive();
}

std::string Connection::ask(const Call& call) {
    return round_trip({call}).front().front();
}

void Connection::send(std::initializer_list<Call> calls) {
    require(PQenterPipelineMode(handle_.get()) == 1);
    for (const Call& call : calls) send(call);
    require(PQpipelineSync(handle_.get()) == 1);
    awaited_ = calls.size();
    round_trips_++;
}

std::vector<Row> Connection::receive() {
    std::vector<Row> answers;
    while (answers.size() < awaited_) answers.push_back(receive_answer());
    Result sync = owned(PQgetResult(handle_.get()));
    require(PQresultStatus(sync.get()) == PGRES_PIPELINE_SYNC);
    require(PQexitPipelineMode(handle_.get()) == 1);
    return answers;
}

void Connection::send(const Call& call) {
    std::vector<const char*> values;
    for (const std::string& argument : call.arguments) values.push_back(argument.c_str());
    require(PQsendQueryPrepared(handle_.get(), call.statement, static_cast<int>(values.size()),
                                values.data(), nullptr, nullptr, /* resultFormat */ 0) == 1);
}

// One answer, and the null that ends it.
Row Connection::receive_answer() {
    Result result = owned(PQgetResult(handle_.get()));
    if (!is_good(result.get())) throw std::runtime_error(PQresultErrorMessage(result.get()));
    Result end = owned(PQgetResult(handle_.get()));
    return answer_of(result.get());
}

void Connection::require(bool ok) const {
    if (!ok) throw std::runtime_error(PQerrorMessage(handle_.get()));
}

}  // namespace idem::bench
