#include "routes.hpp"

#include <idempotency/problem.hpp>

namespace http {

void Routes::add(const std::string& method, const std::string& path, idempotency::Route route,
                 Lane* lane) {
    entries_.push_back({method, path, std::move(route), lane});
}

const Routes::Entry* Routes::find(const std::string& method, const std::string& path) const {
    for (const Entry& entry : entries_) {
        if (entry.method == method && path == entry.path) return &entry;
    }
    return nullptr;
}

Admission Routes::admit(const Request& head) const {
    const auto path = path_of(head);
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
        if (path != entry.path) continue;
        methods += (methods.empty() ? "" : ", ") + entry.method;
        if (entry.method == "GET") methods += ", HEAD";
    }
    return methods;
}

}  // namespace http
