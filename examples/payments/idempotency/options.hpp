// What a route wants of the middleware. Every field has a default that is safe.
#pragma once

#include <httplib.h>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace idempotency {

enum class Keys {
    Required,   // a request without a key is refused
    Generated,  // it gets a key, and is told which in the header Idempotency-Key
    Optional,   // it runs unprotected, as the client asked for
};

enum class WithoutDatabase {
    Refuse,   // fail closed: 503, the client repeats the request later
    Proceed,  // fail open: run unprotected; only for handlers that can do without the database
};

// On whose behalf a request comes, from its authentication; nothing: it is answered 401.
using Principal = std::function<std::optional<std::string>(const httplib::Request&)>;

inline std::optional<std::string> anybody(const httplib::Request&) {
    return "";
}

struct Options {
    std::string scope;  // the operation, as policies and statistics know it: "POST /payments"
    Principal principal = anybody;
    Keys keys = Keys::Required;
    bool strict_keys = false;          // accept only the quoted string of the IETF draft
    std::vector<std::string> exclude;  // fields that may differ between two sendings of a request
    std::optional<std::chrono::milliseconds>
        ttl;                                 // how long answers are replayed; else the policy's
    std::chrono::milliseconds wait{0};       // for a running duplicate; 0: answer 409 at once
    std::chrono::milliseconds lease{30000};  // leased routes: silence after which others go on
    WithoutDatabase without_database = WithoutDatabase::Refuse;
};

}  // namespace idempotency
