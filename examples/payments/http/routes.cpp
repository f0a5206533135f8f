#include "routes.hpp"

namespace http {

void Routes::get(const std::string& path, httplib::Server::Handler handler) {
    routes_.push_back({"GET, HEAD", std::regex(path)});
    server_.Get(path, std::move(handler));
}

void Routes::post(const std::string& path, httplib::Server::Handler handler) {
    routes_.push_back({"POST", std::regex(path)});
    server_.Post(path, std::move(handler));
}

void Routes::patch(const std::string& path, httplib::Server::Handler handler) {
    routes_.push_back({"PATCH", std::regex(path)});
    server_.Patch(path, std::move(handler));
}

void Routes::remove(const std::string& path, httplib::Server::Handler handler) {
    routes_.push_back({"DELETE", std::regex(path)});
    server_.Delete(path, std::move(handler));
}

std::string Routes::methods_of(const std::string& path) const {
    std::string methods;
    for (const Route& route : routes_) {
        if (!std::regex_match(path, route.path)) continue;
        methods += (methods.empty() ? "" : ", ") + route.method;
    }
    return methods;
}

}  // namespace http
