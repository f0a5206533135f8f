// Whether the steps of one key fit one order of the model within their times: per-key
// linearizability, found by a search that orders steps no earlier than their returns demand
// ("just-in-time linearization"). Unknown steps are tried both ways.
#pragma once

#include <optional>

#include "check/timeline.hpp"

namespace idem::chaos {

struct Verdict {
    bool legal = true;
    int invariant = 0;           // of reliability.md
    std::string explanation;     // the step that nothing explains, and what the key could have been
    std::vector<Record> passed;  // every record that was committed in some order
};

// `initial` are the records that the key may begin with: normally one that is absent.
Verdict linearize(const Timeline& timeline, const Rules& rules, const std::vector<Record>& initial);

}  // namespace idem::chaos
