#include "idempotent.hpp"

#include <stdexcept>

#include "failure.hpp"
#include "problem.hpp"

namespace idempotency {
namespace {

using Flow = std::function<httplib::Response(Call&)>;

// GET, PUT and DELETE are idempotent by definition; and who may leave the key out, and does, has
// chosen to go without.
bool is_protected(const httplib::Request& request, const Options& options) {
    if (!needs_a_key(request)) return false;
    return options.keys != Keys::Optional || key_field(request, options.strict_keys);
}

// Only what we have to say: httplib has filled in the rest.
void send(httplib::Response&& answer, httplib::Response& response) {
    response.status = answer.status;
    response.headers.merge(answer.headers);
    response.body = std::move(answer.body);
}

// A key as an RFC 8941 String.
std::string quoted(const std::string& key) {
    std::string result = "\"";
    for (const char c : key) {
        if (c == '"' || c == '\\') result += '\\';
        result += c;
    }
    return result + '"';
}

// Tells the client which key its request was given.
void name_generated_key(httplib::Response& response, const Call& call, const Options& options) {
    const bool generated = options.keys == Keys::Generated && !call.key.empty() &&
                           !key_field(call.request, options.strict_keys);
    if (generated) response.set_header("Idempotency-Key", quoted(call.key));
}

httplib::Server::Handler handler_of(Options options, Flow with_key, Flow without_key) {
    return [=](const httplib::Request& request, httplib::Response& response) {
        try {
            Call call = read_call(request, options);
            const bool guarded = is_protected(request, options);
            auto answer = guarded ? with_key(call) : without_key(call);
            if (guarded) name_generated_key(answer, call, options);
            send(std::move(answer), response);
        } catch (...) {
            send(answer_to(std::current_exception()), response);
        }
    };
}

void refuse_fail_open(const Options& options) {
    if (options.without_database == WithoutDatabase::Refuse) return;
    throw std::invalid_argument(options.scope + ": this handler can't do without the database");
}

}  // namespace

httplib::Server::Handler Idempotent::operator()(TransactionHandler handler, Options options) const {
    refuse_fail_open(options);
    auto& pool = pool_;
    const auto with_key = [=, &pool](Call& call) {
        return run_in_transaction(pool, call, options, handler);
    };
    const auto without_key = [=, &pool](Call& call) {
        const auto connection = pool.lend();
        pqxx::work tx(**connection);
        auto response = handler(tx, call);
        if (is_final(response)) tx.commit();
        return response;
    };
    return handler_of(options, with_key, without_key);
}

httplib::Server::Handler Idempotent::operator()(LeasedHandler handler, Options options) const {
    refuse_fail_open(options);
    if (options.keys == Keys::Optional) {
        throw std::invalid_argument(options.scope + ": a leased operation needs a key");
    }
    auto& pool = pool_;
    const auto with_key = [=, &pool](Call& call) {
        return run_leased(pool, call, options, handler);
    };
    const auto without_key = [](Call&) -> httplib::Response {
        throw Refusal(problem(405, "/problems/method-not-allowed", "Method not allowed",
                              "This operation needs POST or PATCH."));
    };
    return handler_of(options, with_key, without_key);
}

httplib::Server::Handler Idempotent::operator()(PlainHandler handler, Options options) const {
    auto& pool = pool_;
    const auto with_key = [=, &pool](Call& call) {
        return run_plain(pool, call, options, handler);
    };
    return handler_of(options, with_key, handler);
}

}  // namespace idempotency
