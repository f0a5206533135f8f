// A libpq connection that is closed at its end, and throws what the server refuses.
#pragma once

#include <libpq-fe.h>

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

class Connection {
  public:
    // Connects as libpq's environment says; the name is seen in pg_stat_activity.
    explicit Connection(const std::string& application_name);

    // Runs SQL, several statements too, and returns the rows of the last one.
    std::vector<Row> query(const std::string& sql);
    double number(const std::string& sql);
    std::string text(const std::string& sql);

    void prepare(const char* statement, const std::string& sql);
    // Sends the calls together and waits for all answers: one round trip. Returns the first column
    // of the first row of the last call.
    std::string round_trip(std::initializer_list<Call> calls);

  private:
    void send(const Call& call);
    std::string receive();
    void require(bool ok) const;

    std::unique_ptr<PGconn, decltype(&PQfinish)> handle_;
};

}  // namespace idem::bench
