// Gives any httplib handler the behaviour of the IETF draft "The Idempotency-Key HTTP Header
// Field":
//
//     idempotency::ConnectionPool pool(conninfo, threads, setup);
//     const idempotency::Idempotent idempotent(pool);
//
//     idempotency::Options options;
//     options.scope = "POST /payments";
//     server.Post("/payments", idempotent(create_payment, options));
//
// The signature of the handler says which protection it gets: see flows.hpp.
#pragma once

#include <httplib.h>

#include "connection_pool.hpp"
#include "flows.hpp"
#include "options.hpp"

namespace idempotency {

class Idempotent {
  public:
    // The pool must outlive the handlers.
    explicit Idempotent(ConnectionPool& pool) : pool_(pool) {}

    // Throw std::invalid_argument for options that contradict the kind of handler.
    httplib::Server::Handler operator()(TransactionHandler handler, Options options) const;
    httplib::Server::Handler operator()(LeasedHandler handler, Options options) const;
    httplib::Server::Handler operator()(PlainHandler handler, Options options) const;

  private:
    ConnectionPool& pool_;
};

}  // namespace idempotency
