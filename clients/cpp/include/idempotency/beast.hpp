// The adapter for Boost.Beast, 1.74 or newer:
//
//     idempotency::BeastServer server;
//     server.route("POST", "/payments", payments);
//     server.listen("127.0.0.1", 8080);
//
// Beast hands out header fields as they were sent. It decodes no bodies: encoded ones are refused.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "adapter.hpp"

namespace idempotency {

// By method and path.
using BeastRoutes = std::map<std::pair<std::string, std::string>, Route>;

namespace detail {

namespace http = boost::beast::http;

// A connected socket as a stream of Beast, whose reads and writes end in time.
class BeastStream {
  public:
    BeastStream(int number, Milliseconds patience) : number_(number), patience_(patience) {}

    template <typename Buffers>
    std::size_t read_some(const Buffers& buffers, boost::system::error_code& error) {
        const auto into = boost::asio::buffer(*boost::asio::buffer_sequence_begin(buffers));
        if (into.size() == 0) return done(0, error);
        if (!wait(POLLIN, patience_)) return late(error);
        const auto count = recv(number_, into.data(), into.size(), 0);
        if (count == 0) return fail(boost::asio::error::eof, error);
        return done(count, error);
    }

    template <typename Buffers>
    std::size_t write_some(const Buffers& buffers, boost::system::error_code& error) {
        std::size_t sent = 0;
        const auto end = boost::asio::buffer_sequence_end(buffers);
        for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
            const boost::asio::const_buffer from(*at);
            if (from.size() == 0) continue;
            if (!wait(POLLOUT, patience_)) return late(error);
            const auto count = send(number_, from.data(), from.size(), MSG_NOSIGNAL);
            if (count < 0) return done(count, error);
            sent += static_cast<std::size_t>(count);
            if (static_cast<std::size_t>(count) < from.size()) break;
        }
        return done(static_cast<ssize_t>(sent), error);
    }

    // Beast asks for these, too.
    template <typename Buffers>
    std::size_t read_some(const Buffers& buffers) {
        return or_throw([&](auto& error) { return read_some(buffers, error); });
    }
    template <typename Buffers>
    std::size_t write_some(const Buffers& buffers) {
        return or_throw([&](auto& error) { return write_some(buffers, error); });
    }

    // The client may still be sending: a close now would take the answer away from it.
    void linger() {
        shutdown(number_, SHUT_WR);
        const auto until = Clock::now() + std::chrono::seconds(1);
        char rest[4096];
        while (Clock::now() < until && wait(POLLIN, Milliseconds(200)) &&
               recv(number_, rest, sizeof rest, 0) > 0) {
        }
    }

  private:
    bool wait(short what, Milliseconds patience) const {
        pollfd descriptor{number_, what, 0};
        return poll(&descriptor, 1, static_cast<int>(patience.count())) > 0;
    }
    static std::size_t done(ssize_t count, boost::system::error_code& error) {
        error = {};
        if (count >= 0) return static_cast<std::size_t>(count);
        return fail({errno, boost::system::system_category()}, error);
    }
    template <typename Act>
    static std::size_t or_throw(Act act) {
        boost::system::error_code error;
        const auto count = act(error);
        if (error) throw boost::system::system_error(error);
        return count;
    }
    static std::size_t late(boost::system::error_code& error) {
        return fail(boost::asio::error::timed_out, error);
    }
    static std::size_t fail(boost::system::error_code what, boost::system::error_code& error) {
        error = what;
        return 0;
    }

    const int number_;
    const Milliseconds patience_;
};

// The requests of one connection, one after the other.
template <typename Stream>
class BeastConversation {
  public:
    BeastConversation(const BeastRoutes& routes, Stream& stream)
        : routes_(routes), stream_(stream) {}

    void run() {
        while (next()) {
        }
    }

  private:
    using Parser = http::request_parser<http::string_body>;

    // False where the connection is of no further use.
    bool next() {
        Parser parser;
        parser.header_limit(1 << 16);
        // Without a limit, Beast 1.74 refuses every length.
        parser.body_limit(std::numeric_limits<std::uint64_t>::max());
        boost::system::error_code error;
        http::read_header(stream_, buffer_, parser, error);
        if (error && !is_of_http(error)) return false;
        version_ = parser.get().version();
        if (error) return finish(local_problem("bad_body"));
        const auto& head = parser.get();
        const std::string target(head.target());
        const auto route =
            routes_.find({std::string(head.method_string()), target.substr(0, target.find('?'))});
        if (route == routes_.end()) return finish({404, {}, ""});
        return answer(route->second, parser, {route->first.first, target, fields_of(head), ""});
    }

    bool answer(const Route& route, Parser& parser, Request request) {
        const auto codings = values_of(request.headers, "Content-Encoding");
        auto [principal, refusal] = admit(route, request, codings.empty());
        if (refusal) return finish(*std::move(refusal));
        if (value_of(request.headers, "Expect") == "100-continue" && !go_on()) return false;
        parser.body_limit(route.max_request_bytes);
        boost::system::error_code error;
        http::read(stream_, buffer_, parser, error);
        if (error == http::error::body_limit) return finish(body_too_large());
        if (error && !is_of_http(error)) return false;
        if (error) return finish(local_problem("bad_body"));
        request.body = std::move(parser.get().body());
        return send(answer_of(route, request, principal), parser.keep_alive());
    }

    static bool is_of_http(const boost::system::error_code& error) {
        return error.category() == http::make_error_code(http::error::bad_method).category() &&
               error != http::error::end_of_stream && error != http::error::partial_message;
    }

    static Fields fields_of(const http::request<http::string_body>& head) {
        Fields fields;
        for (const auto& field : head) {
            fields.emplace_back(std::string(field.name_string()), std::string(field.value()));
        }
        return fields;
    }

    bool go_on() {
        http::response<http::empty_body> response(http::status::continue_, version_);
        boost::system::error_code error;
        http::write(stream_, response, error);
        return !error;
    }

    // The body was not read to its end.
    bool finish(const Answer& answer) {
        if (send(answer, false)) return false;
        stream_.linger();
        return false;
    }

    // False where it was the last.
    bool send(const Answer& answer, bool keep_alive) {
        http::response<http::string_body> response;
        response.version(version_);
        response.result(static_cast<unsigned>(answer.status));
        for (const auto& [name, value] : answer.headers) response.insert(name, value);
        response.body() = answer.body;
        response.keep_alive(keep_alive);
        response.prepare_payload();
        if (answer.status == 204 || answer.status == 304) {
            response.erase(http::field::content_length);
        }
        boost::system::error_code error;
        http::write(stream_, response, error);
        return !error && keep_alive;
    }

    const BeastRoutes& routes_;
    Stream& stream_;
    boost::beast::flat_buffer buffer_{1 << 17};
    unsigned version_ = 11;
};

}  // namespace detail

// A thread for each connection. Without TLS.
class BeastServer {
  public:
    // Connections beyond `most` wait. A connection that is silent for `patience` is closed.
    explicit BeastServer(std::size_t most = 256, Milliseconds patience = std::chrono::seconds(5))
        : most_(most), patience_(patience) {}

    ~BeastServer() { stop(); }
    BeastServer(const BeastServer&) = delete;
    BeastServer& operator=(const BeastServer&) = delete;

    // Before `listen`.
    void route(const std::string& method, const std::string& path, Route route) {
        routes_[{method, path}] = std::move(route);
    }

    // The port; 0 asks for any.
    int bind(const std::string& address, int port) {
        using boost::asio::ip::tcp;
        const tcp::endpoint here(boost::asio::ip::make_address(address),
                                 static_cast<unsigned short>(port));
        acceptor_.open(here.protocol());
        acceptor_.set_option(tcp::acceptor::reuse_address(true));
        acceptor_.bind(here);
        acceptor_.listen();
        return acceptor_.local_endpoint().port();
    }

    // Until `stop`.
    void listen() {
        while (!stopped_) {
            boost::system::error_code error;
            auto socket = acceptor_.accept(error);
            if (error) continue;
            socket.set_option(boost::asio::ip::tcp::no_delay(true), error);
            serve(socket.release());
        }
    }

    void listen(const std::string& address, int port) {
        bind(address, port);
        listen();
    }

    // Handlers that run are waited for.
    void stop() {
        stopped_ = true;
        shutdown(acceptor_.native_handle(), SHUT_RDWR);
        std::unique_lock<std::mutex> lock(mutex_);
        for (const int number : open_) shutdown(number, SHUT_RDWR);
        changed_.wait(lock, [this] { return open_.empty(); });
    }

  private:
    void serve(int number) {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return open_.size() < most_; });
        open_.insert(number);
        std::thread([this, number] {
            detail::BeastStream stream(number, patience_);
            detail::BeastConversation(routes_, stream).run();
            const std::lock_guard<std::mutex> locked(mutex_);
            open_.erase(number);
            close(number);
            changed_.notify_all();
        }).detach();
    }

    const std::size_t most_;
    const Milliseconds patience_;
    BeastRoutes routes_;
    boost::asio::io_context context_;
    boost::asio::ip::tcp::acceptor acceptor_{context_};
    std::atomic<bool> stopped_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::set<int> open_;
};

}  // namespace idempotency
