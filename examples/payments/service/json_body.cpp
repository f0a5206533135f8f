#include "json_body.hpp"

#include <idempotency/problem.hpp>

namespace payments {
namespace {

using idempotency::Refusal;
using nlohmann::json;

void refuse_depth(const std::string& text) {
    constexpr std::size_t kDeepest = 64;
    if (idempotency::json_depth(text) <= kDeepest) return;
    throw Refusal(idempotency::too_large("The body is nested too deeply."));
}

idempotency::Answer unsupported_media_type() {
    return idempotency::problem(415, "/problems/unsupported-media-type", "Unsupported media type",
                                "Send the body as application/json.");
}

// A text of PostgreSQL cannot contain a NUL, and libpq would take the part before it for the whole
// string.
bool has_nul(const std::string& text) {
    if (text.find("\\u0000") == text.npos) return false;
    bool found = false;
    const auto look = [&](int, json::parse_event_t, const json& part) {
        found |= part.is_string() && part.get_ref<const std::string&>().find('\0') != text.npos;
        return true;
    };
    return !json::parse(text, look, /* allow_exceptions */ false).is_discarded() && found;
}

}  // namespace

json parse_json(const std::string& text) {
    refuse_depth(text);
    json parsed = json::parse(text, nullptr, /* allow_exceptions */ false);
    if (parsed.is_discarded()) throw Refusal(idempotency::bad_json());
    return parsed;
}

idempotency::Route json_only(idempotency::Route route) {
    route.answer = [answer = std::move(route.answer), refuses = route.refuses](
                       const auto& request, const auto& principal) {
        if (refuses && refuses(request)) return answer(request, principal);
        const auto type = idempotency::media_type(request.headers);
        if (!idempotency::is_json(type)) return unsupported_media_type();
        refuse_depth(request.body);
        if (!json::accept(request.body) || has_nul(request.body)) return idempotency::bad_json();
        return answer(request, principal);
    };
    return route;
}

}  // namespace payments
