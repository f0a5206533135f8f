// The requests, as their clients sent them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace payments {

// HTTP status codes that a line can expect. generate-requests says what each stands for.
inline constexpr int kCreated = 201;
inline constexpr int kBadRequest = 400;
inline constexpr int kMismatch = 422;

struct Request {
    int n;  // line number, from 1
    std::string tenant;
    std::string method, path;
    std::optional<std::string> key;    // none: the line has no usable one
    std::optional<std::string> field;  // the Idempotency-Key as it is sent; none: it is not
    std::string body;                  // the very bytes of the line
    std::string customer, currency, amount;
    int expect;
    int after;  // line that must have been answered first; 0: none
    int twin;   // line to be sent at the same moment; 0: none. Set on both lines
};

// Request n stands at position n - 1. Throws std::runtime_error naming the line it can't read.
std::vector<Request> read_requests(const std::string& file);

}  // namespace payments
