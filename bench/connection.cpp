#include "connection.hpp"

#include <stdexcept>

namespace idem::bench {
namespace {

using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

Result owned(PGresult* result) {
    return {result, PQclear};
}

std::vector<Row> rows_of(const PGresult* result) {
    std::vector<Row> rows(static_cast<std::size_t>(PQntuples(result)));
    for (int i = 0; i < PQntuples(result); i++)
        for (int j = 0; j < PQnfields(result); j++)
            rows[static_cast<std::size_t>(i)].emplace_back(PQgetvalue(result, i, j));
    return rows;
}

bool is_good(const PGresult* result) {
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

}  // namespace

Connection::Connection(const std::string& application_name)
    : handle_(PQconnectdb(("application_name='" + application_name + "'").c_str()), PQfinish) {
    require(PQstatus(handle_.get()) == CONNECTION_OK);
    query("SET client_min_messages = warning");
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

std::string Connection::round_trip(std::initializer_list<Call> calls) {
    require(PQenterPipelineMode(handle_.get()) == 1);
    for (const Call& call : calls) send(call);
    require(PQpipelineSync(handle_.get()) == 1);
    std::string answer;
    for (std::size_t i = 0; i < calls.size(); i++) answer = receive();
    Result sync = owned(PQgetResult(handle_.get()));
    require(PQresultStatus(sync.get()) == PGRES_PIPELINE_SYNC);
    require(PQexitPipelineMode(handle_.get()) == 1);
    return answer;
}

void Connection::send(const Call& call) {
    std::vector<const char*> values;
    for (const std::string& argument : call.arguments) values.push_back(argument.c_str());
    require(PQsendQueryPrepared(handle_.get(), call.statement, static_cast<int>(values.size()),
                                values.data(), nullptr, nullptr, /* resultFormat */ 0) == 1);
}

// One answer, and the null that ends it.
std::string Connection::receive() {
    Result result = owned(PQgetResult(handle_.get()));
    if (!is_good(result.get())) throw std::runtime_error(PQresultErrorMessage(result.get()));
    Result end = owned(PQgetResult(handle_.get()));
    bool has_value = PQntuples(result.get()) > 0 && PQnfields(result.get()) > 0;
    return has_value ? PQgetvalue(result.get(), 0, 0) : "";
}

void Connection::require(bool ok) const {
    if (!ok) throw std::runtime_error(PQerrorMessage(handle_.get()));
}

}  // namespace idem::bench
