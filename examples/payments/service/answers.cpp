#include "answers.hpp"

#include "idempotency/problem.hpp"

namespace payments {

httplib::Response json_response(int status, const nlohmann::json& body) {
    httplib::Response response;
    response.status = status;
    response.set_content(body.dump(), "application/json");
    return response;
}

httplib::Response not_found() {
    return idempotency::problem(404, "/problems/not-found", "Not found",
                                "There is no such payment.");
}

httplib::Response declined() {
    return idempotency::problem(402, "/problems/card-declined", "Payment required",
                                "The card is declined.");
}

}  // namespace payments
