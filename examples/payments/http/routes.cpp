#include "routes.hpp"

#include <idempotency/problem.hpp>

namespace http {

void Routes::add(const std::string& method, const std::string& path, idempotency::Route route,
                 Lane* lane) {
    entries_.push_back({method, std::regex(path), std::move(route), lane});
}

const Routes::Entry* Routes::find(const std::string& method, const std::string& path) const {
    for (const Entry& entry : entries_) {
        if (entry.method == method && std::regex_match(path, entry.path)) return &entry;
    }
    return nullptr;
}

// A regex recurses with the length of its text, so the length is checked first.
Admission Routes::admit(const Request& head) const {
    constexpr std::size_t kLongestPath = 1000;
    const auto path = path_of(head);
    if (path.size() > kLongestPath) throw Fault{404, "There is nothing here."};
    const Entry* entry = find(head.method == "HEAD" ? "GET" : head.method, path);
    if (entry == nullptr) {
        const auto methods = methods_of(path);
        if (methods.empty()) throw Fault{404, "There is nothing here."};
        const Fault fault{405, "Allow names the methods of this resource."};
        throw idempotency::Refusal(idempotency::with(fault_answer(fault), "Allow", methods));
    }
    if (!entry->route.principal) return {&entry->route, entry->lane, ""};
    auto principal = entry->route.principal(head);
    if (!principal) throw idempotency::Refusal(idempotency::unauthorized());
    return {&entry->route, entry->lane, *std::move(principal)};
}

std::string Routes::methods_of(const std::string& path) const {
    std::string methods;
    for (const Entry& entry : entries_) {
        if (!std::regex_match(path, entry.path)) continue;
        methods += (methods.empty() ? "" : ", ") + entry.method;
        if (entry.method == "GET") methods += ", HEAD";
    }
    return methods;
}

}  // namespace http
