// The application's side of a payment: a connection and the statements of its transaction.
#pragma once

#include <pqxx/pqxx>
#include <string>

#include "input.hpp"

namespace payments {

// What a client is told.
struct Response {
    int status;
    std::string headers;  // JSON with sorted members
    std::string body;
};

struct Claim {
    std::string outcome;  // as idem_begin gives it
    Response response;    // set for the outcome `replay`
};

// A charge about to be made. Its id is random: a second execution would answer other bytes.
struct Charge {
    std::string id;
    Response response;
};

Charge new_charge(const Request& request);

class Session {
  public:
    // Connects and takes the application's role.
    explicit Session(const std::string& database);
    pqxx::connection& connection() { return connection_; }

  private:
    pqxx::connection connection_;
};

// The statements of one payment, each one round trip. They throw what libpqxx throws.
Claim begin_payment(pqxx::work& tx, const Request& request);
void insert_charge(pqxx::work& tx, const Request& request, const Charge& charge);
void book_charge(pqxx::work& tx, const Request& request);
void complete_payment(pqxx::work& tx, const Request& request, const Response& response);

}  // namespace payments
