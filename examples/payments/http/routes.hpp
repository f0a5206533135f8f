// The routes of a server. httplib knows handlers only by method; this also knows which methods a
// path has, for an honest 405.
#pragma once

#include <httplib.h>

#include <regex>
#include <string>
#include <vector>

namespace http {

class Routes {
  public:
    explicit Routes(httplib::Server& server) : server_(server) {}

    void get(const std::string& path, httplib::Server::Handler handler);
    void post(const std::string& path, httplib::Server::Handler handler);
    void patch(const std::string& path, httplib::Server::Handler handler);
    void remove(const std::string& path, httplib::Server::Handler handler);

    // As the header Allow wants it; empty if there is no such path.
    std::string methods_of(const std::string& path) const;

  private:
    struct Route {
        std::string method;
        std::regex path;
    };

    httplib::Server& server_;
    std::vector<Route> routes_;
};

}  // namespace http
