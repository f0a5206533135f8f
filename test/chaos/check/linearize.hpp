// Whether the steps of one key fit one order of the model within their times. The search is that of
// Wing and Gong ("Testing and verifying concurrent objects"), just in time and with a memory of
// tried states as in Lowe's "Testing for linearizability", and key by key as in Porcupine
// (P-compositionality, Horn and Kroening). Unanswered calls are skipped first, and taken if an
// answer needs it; equal ones stand in for each other.
#pragma once

#include <optional>

#include "check/timeline.hpp"

namespace idem::chaos {

enum class Fit {
    Legal,      // an order was found
    Illegal,    // every order was tried
    Undecided,  // the search was cut off before it had found one
};

struct Verdict {
    Fit fit = Fit::Legal;
    int invariant = 0;           // of reliability.md, if illegal
    std::string explanation;     // the step that nothing explains, and what the key could have been
    bool cut_off = false;        // orders were left out, also if it is legal
    std::vector<Record> passed;  // every record that was committed in some order, unless cut off
};

// `initial` are the records that the key may begin with: normally one that is absent.
Verdict linearize(const Timeline& timeline, const Rules& rules, const std::vector<Record>& initial);

}  // namespace idem::chaos
