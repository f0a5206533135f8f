#include "answers.hpp"

#include <idempotency/problem.hpp>

namespace payments {

idempotency::Answer json_response(int status, const nlohmann::json& body) {
    return {status, {{"Content-Type", "application/json"}}, body.dump()};
}

idempotency::Answer not_found() {
    return idempotency::problem(404, "/problems/not-found", "Not found",
                                "There is no such payment.");
}

idempotency::Answer declined() {
    return idempotency::problem(402, "/problems/card-declined", "Payment required",
                                "The card is declined.");
}

}  // namespace payments
