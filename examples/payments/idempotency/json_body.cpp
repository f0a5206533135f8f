#include "json_body.hpp"

#include "problem.hpp"

namespace idempotency {

using nlohmann::json;

json parse_json(const std::string& text) {
    constexpr int kDeepest = 64;
    const auto limit_depth = [](int depth, json::parse_event_t, json&) {
        if (depth > kDeepest) throw Refusal(bad_json());
        return true;
    };
    json parsed = json::parse(text, limit_depth, /* allow_exceptions */ false);
    if (parsed.is_discarded()) throw Refusal(bad_json());
    return parsed;
}

}  // namespace idempotency
