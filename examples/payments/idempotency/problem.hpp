// Problem documents (RFC 9457) of what is found before or beside a claim. The outcomes of
// idem_begin bring their own, from idem_problem.
#pragma once

#include <httplib.h>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>

namespace idempotency {

httplib::Response problem(int status, const std::string& type, const std::string& title,
                          const std::string& detail);
httplib::Response problem(const nlohmann::json& document);

httplib::Response bad_json();
httplib::Response unauthorized();
httplib::Response internal_error();
httplib::Response unavailable();  // nothing is known to have happened: the same request, again
httplib::Response claim_lost();   // somebody else is executing the request now

// Ends a request early with an answer that is not stored.
class Refusal : public std::exception {
  public:
    explicit Refusal(httplib::Response answer) : answer_(std::move(answer)) {}
    const httplib::Response& answer() const noexcept { return answer_; }
    const char* what() const noexcept override { return "request refused"; }

  private:
    httplib::Response answer_;
};

}  // namespace idempotency
