// Did it hold? Judged from the database, read with plain SQL, against the input and the answers.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "board.hpp"
#include "input.hpp"

namespace payments {

// Prints a line for each check. True if all hold.
bool judge(std::ostream& out, const std::string& database, const std::vector<Request>& requests,
           const Board& board);

}  // namespace payments
