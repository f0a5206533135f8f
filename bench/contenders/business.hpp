// What every contender's request does, and what all of them need for it.
#pragma once

#include <string>

#include "harness/connection.hpp"

namespace idem::bench {

// Bytes of a response's body, and the body.
constexpr int kBodyBytes = 200;
const std::string& response_body();

// As long as a UUID, and as random: neighbours in time are none in an index.
std::string random_key();

// Throws unless the answer is the wanted one.
void expect(const std::string& answer, const char* wanted);

// The tables of all contenders but ours, in schema `bench`.
void create_tables(Connection& admin);
// Empties them, and the records.
void empty_tables(Connection& admin);

// Prepares the statements of the calls below.
void prepare_business(Connection& sql);
Call start();
Call commit();
// Inserts a payment of a random account.
Call pay();
// The account and the amount of a payment, as arguments of a statement.
std::vector<std::string> random_payment();

}  // namespace idem::bench
