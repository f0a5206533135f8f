// A libpq connection that is closed at its end, and throws what the server refuses.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace idem::bench {

using Row = std::vector<std::string>;  // SQL null is ''

// A prepared statement with its arguments, all as text.
struct Call {
    const char* statement;
    std::vector<std::string> arguments;
};

// What a connection has of its own; all else is as libpq's environment says.
struct Session {
    std::string database;  // '': that of the environment
    bool durable = true;   // false: synchronous_commit = off
};

class Connection {
  public:
    // The name is seen in pg_stat_activity.
    explicit Connection(const std::string& application_name, const Session& session = {});

    // Runs SQL, several statements too, and returns the rows of the last one.
    std::vector<Row> query(const std::string& sql);
    double number(const std::string& sql);
    std::string text(const std::string& sql);

    void prepare(const char* statement, const std::string& sql);

    // Sends the calls together and waits for all answers: one round trip. The answer to a call is
    // its first row, or, where it returns none, the number of rows that it has changed.
    std::vector<Row> round_trip(std::initializer_list<Call> calls);
    // A round trip of a single call; the first value of its answer.
    std::string ask(const Call& call);

    // The two halves of a round trip, for who has something else to do meanwhile.
    void send(std::initializer_list<Call> calls);
    std::vector<Row> receive();

    std::uint64_t round_trips() const { return round_trips_; }

  private:
    void send(const Call& call);
    Row receive_answer();
    void require(bool ok) const;

    std::unique_ptr<PGconn, decltype(&PQfinish)> handle_;
    std::size_t awaited_ = 0;  // answers to calls that are sent
    std::uint64_t round_trips_ = 0;
};

}  // namespace idem::bench
