// What adapters for HTTP libraries have in common.
#pragma once

#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>

#include "problem.hpp"
#include "route.hpp"

namespace idempotency::detail {

// Another server could read another body, or another host.
inline bool is_ambiguous(const Fields& fields) {
    if (values_of(fields, "Host").size() > 1) return true;
    const auto lengths = values_of(fields, "Content-Length").size();
    return lengths > 1 || (lengths == 1 && !values_of(fields, "Transfer-Encoding").empty());
}

inline bool is_longer_than(std::size_t limit, const Fields& fields) {
    return std::strtoull(value_of(fields, "Content-Length").c_str(), nullptr, 10) > limit;
}

inline Answer body_too_large() {
    return too_large("The body is too large.");
}

// A library would send the text of an exception to the client, or end.
inline Answer answer_of(const Route& route, const Request& request,
                        const std::string& principal) try {
    return route.answer(request, principal);
} catch (const Refusal& refusal) {
    return refusal.answer();
} catch (const std::exception& error) {
    std::cerr << std::string("error: ") + error.what() + "\n";
    return half_done();
}

// A request whose head was read, and on whose behalf it is; or the answer that needs no body.
struct Admitted {
    std::string principal;
    std::optional<Answer> refusal;
};

// `decodes`: whether the library decodes bodies with these fields.
inline Admitted admit(const Route& route, const Request& head, bool decodes) {
    if (is_ambiguous(head.headers)) return {"", local_problem("bad_body")};
    const auto principal = route.principal ? route.principal(head) : std::string();
    if (!principal || (route.principal && principal->empty())) return {"", unauthorized()};
    if (route.refuses && route.refuses(head)) {
        return {*principal, answer_of(route, head, *principal)};
    }
    if (is_longer_than(route.max_request_bytes, head.headers))
        return {*principal, body_too_large()};
    if (!decodes) return {*principal, local_problem("content_encoding")};
    return {*principal, std::nullopt};
}

}  // namespace idempotency::detail
