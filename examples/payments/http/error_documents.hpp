// Whatever goes wrong outside of the handlers is answered with a problem document too.
#pragma once

#include <httplib.h>

#include "access_log.hpp"
#include "routes.hpp"

namespace http {

// `routes` and `log` must outlive the server's work.
void answer_errors_with_documents(httplib::Server& server, const Routes& routes, AccessLog& log);

}  // namespace http
