// The routes of a server: by method and path, each with the lane for its work.
#pragma once

#include <idempotency/route.hpp>
#include <string>
#include <vector>

#include "lane.hpp"
#include "message.hpp"

namespace http {

// A request of which only the head has been read.
struct Admission {
    const idempotency::Route* route;
    Lane* lane;  // none: at once, in the thread that reads
    std::string principal;
};

class Routes {
  public:
    // Without a principal the route needs no authentication.
    void add(const std::string& method, const std::string& path, idempotency::Route route,
             Lane* lane = nullptr);

    // Throws Fault (404, 405) or idempotency::Refusal (401).
    Admission admit(const Request& head) const;

  private:
    struct Entry {
        std::string method;
        std::string path;
        idempotency::Route route;
        Lane* lane;
    };

    const Entry* find(const std::string& method, const std::string& path) const;
    // In the form of the header Allow.
    std::string methods_of(const std::string& path) const;

    std::vector<Entry> entries_;
};

}  // namespace http
