#include "error_documents.hpp"

#include "idempotency/failure.hpp"
#include "idempotency/problem.hpp"

namespace http {
namespace {

using HandlerResponse = httplib::Server::HandlerResponse;

void take_over(const httplib::Response& document, httplib::Response& response) {
    response.status = document.status;
    response.body = document.body;
    response.headers = document.headers;
}

httplib::Response document_for(int status) {
    const auto type = "/problems/http-" + std::to_string(status);
    switch (status) {
        case 404:
            return idempotency::problem(404, "/problems/not-found", "Not found",
                                        "There is nothing here.");
        case 405:
            return idempotency::problem(405, "/problems/method-not-allowed", "Method not allowed",
                                        "Allow names the methods of this resource.");
        case 413:
            return idempotency::problem(413, type, "Content too large",
                                        "A body has at most 2 MiB.");
        default:
            return idempotency::problem(status, type, "Request not understood",
                                        "The request is not valid HTTP or exceeds a limit.");
    }
}

// A handler's own error has a body already.
HandlerResponse complete_error(const Routes& routes, const httplib::Request& request,
                               httplib::Response& response) {
    if (!response.body.empty()) return HandlerResponse::Unhandled;
    const std::string methods = routes.methods_of(request.path);
    const bool other_method = response.status == 404 && !methods.empty();
    take_over(document_for(other_method ? 405 : response.status), response);
    if (other_method) response.set_header("Allow", methods);
    return HandlerResponse::Handled;
}

// What httplib gets wrong about a request, put right before it goes on. It hands out its own object
// as const, so the cast is sound.
// - Without a length and a transfer coding there is no body; httplib would wait for one.
// - A Range asks for a part of what GET answers; httplib would cut any answer.
void mend(const httplib::Request& request) {
    auto& own = const_cast<httplib::Request&>(request);
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding")) {
        own.headers.emplace("Content-Length", "0");
    }
    if (request.method != "GET") own.ranges.clear();
}

}  // namespace

void answer_errors_with_documents(httplib::Server& server, const Routes& routes, AccessLog& log) {
    server.set_pre_routing_handler([&log](const auto& request, auto&) {
        log.begin();
        mend(request);
        return HandlerResponse::Unhandled;
    });
    server.set_error_handler(
        httplib::Server::HandlerWithResponse([&routes](const auto& request, auto& response) {
            return complete_error(routes, request, response);
        }));
    server.set_exception_handler([](const auto&, auto& response, std::exception_ptr failure) {
        take_over(idempotency::answer_to(failure), response);
    });
}

}  // namespace http
