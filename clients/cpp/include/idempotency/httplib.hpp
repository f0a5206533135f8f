// The adapter for cpp-httplib:
//
//     idempotency::HttplibServer server;
//     server.Post("/payments", idempotency::protect(payments));
//
// cpp-httplib up to 0.43.4 decodes percent escapes in header fields, so that "a%2Db" and "a-b"
// would be one key. HttplibServer reads along and hands out the fields as they were sent.
#pragma once

#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "adapter.hpp"

namespace idempotency {

namespace detail {

// The fields of a head, without its first line. None if a line is folded, or has no colon.
inline std::optional<Fields> fields_of_head(const std::string& head) {
    Fields fields;
    for (auto at = head.find("\r\n"); at + 2 < head.size();) {
        const auto begin = at + 2;
        at = head.find("\r\n", begin);
        if (at == head.npos || at == begin) break;
        const auto line = head.substr(begin, at - begin);
        const auto colon = line.find(':');
        if (colon == line.npos || !is_field_name(line.substr(0, colon))) return std::nullopt;
        const auto first = line.find_first_not_of(" \t", colon + 1);
        const auto last = line.find_last_not_of(" \t");
        fields.emplace_back(line.substr(0, colon),
                            first == line.npos ? "" : line.substr(first, last - first + 1));
    }
    return fields;
}

// A socket, and the head of the request that is being read from it. It has what
// httplib::Stream asks for in any version.
class HttplibStream final : public httplib::Stream {
  public:
    HttplibStream(int number, std::chrono::milliseconds reading, std::chrono::milliseconds writing)
        : number_(number), reading_(reading), writing_(writing), begun_(Clock::now()) {}

    void next_request() {
        head_.clear();
        spoilt_ = false;
    }
    const std::string& head() const { return head_; }
    // The body was not read: the connection is of no further use.
    void spoil() { spoilt_ = true; }
    bool spoilt() const { return spoilt_; }

    bool has_more(std::chrono::milliseconds patience) const {
        return begin_ < end_ || wait(POLLIN, patience);
    }

    bool is_readable() const { return begin_ < end_ || wait(POLLIN, std::chrono::milliseconds(0)); }
    bool wait_readable() const { return has_more(reading_); }
    bool is_writable() const { return wait(POLLOUT, writing_); }
    bool wait_writable() const { return wait(POLLOUT, writing_); }

    ssize_t read(char* into, std::size_t size) {
        if (begin_ == end_) {
            if (!wait(POLLIN, reading_)) return -1;
            const auto count = recv(number_, buffer_.data(), buffer_.size(), 0);
            if (count <= 0) return count;
            begin_ = 0;
            end_ = static_cast<std::size_t>(count);
        }
        const auto count = std::min(size, end_ - begin_);
        std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_), count, into);
        begin_ += count;
        note(into, count);
        return static_cast<ssize_t>(count);
    }

    ssize_t write(const char* from, std::size_t size) {
        return wait(POLLOUT, writing_) ? send(number_, from, size, MSG_NOSIGNAL) : -1;
    }

    void get_remote_ip_and_port(std::string& ip, int& port) const { name(getpeername, ip, port); }
    void get_local_ip_and_port(std::string& ip, int& port) const { name(getsockname, ip, port); }
    socket_t socket() const { return number_; }
    time_t duration() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_).count();
    }

  private:
    static constexpr std::size_t kLongestHead = 1 << 16;

    // Of the bytes that are handed out, those up to the empty line.
    void note(const char* bytes, std::size_t count) {
        for (std::size_t i = 0; i < count && head_.size() < kLongestHead; ++i) {
            const auto size = head_.size();
            if (size >= 4 && head_.compare(size - 4, 4, "\r\n\r\n") == 0) return;
            head_ += bytes[i];
        }
    }

    bool wait(short what, std::chrono::milliseconds patience) const {
        pollfd descriptor{number_, what, 0};
        return poll(&descriptor, 1, static_cast<int>(patience.count())) > 0;
    }

    template <typename Name>
    void name(Name of, std::string& ip, int& port) const {
        sockaddr_storage address{};
        socklen_t size = sizeof address;
        std::array<char, NI_MAXHOST> host{};
        std::array<char, NI_MAXSERV> service{};
        auto* known = reinterpret_cast<sockaddr*>(&address);
        if (of(number_, known, &size) != 0 ||
            getnameinfo(known, size, host.data(), host.size(), service.data(), service.size(),
                        NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
            return;
        }
        ip = host.data();
        port = std::atoi(service.data());
    }

    const int number_;
    const std::chrono::milliseconds reading_, writing_;
    const Clock::time_point begun_;
    std::array<char, 4096> buffer_{};
    std::size_t begin_ = 0, end_ = 0;
    std::string head_;
    bool spoilt_ = false;
};

// Of the request that this thread serves.
inline thread_local HttplibStream* httplib_stream = nullptr;

}  // namespace detail

// httplib::Server, whose handlers made by `protect` see the fields as they were sent. Without TLS.
class HttplibServer : public httplib::Server {
  public:
    HttplibServer() {
        // The library gives every answer without a body a length.
        set_post_routing_handler([](const httplib::Request&, httplib::Response& response) {
            if (response.status == 204 || response.status == 304) {
                response.headers.erase("Content-Length");
            }
        });
    }

  private:
    bool process_and_close_socket(socket_t number) override {
        using std::chrono::milliseconds;
        const auto in_ms = [](time_t seconds, time_t more) {
            return milliseconds(seconds * 1000 + more / 1000);
        };
        detail::HttplibStream stream(number, in_ms(read_timeout_sec_, read_timeout_usec_),
                                     in_ms(write_timeout_sec_, write_timeout_usec_));
        detail::httplib_stream = &stream;
        bool good = true;
        for (auto left = keep_alive_max_count_; left > 0 && good && !stream.spoilt(); --left) {
            if (svr_sock_ == INVALID_SOCKET) break;
            if (!stream.has_more(milliseconds(keep_alive_timeout_sec_ * 1000))) break;
            stream.next_request();
            bool closed = false;
            good = process(*this, stream, left == 1, closed, 0) && !closed;
        }
        detail::httplib_stream = nullptr;
        shutdown(number, SHUT_RDWR);
        close(number);
        return good;
    }

    // Versions of cpp-httplib differ in the arguments.
    template <typename Self>
    static auto process(Self& self, httplib::Stream& stream, bool last, bool& closed, int)
        -> decltype(self.process_request(stream, last, closed, nullptr)) {
        return self.process_request(stream, last, closed, nullptr);
    }
    template <typename Self>
    static auto process(Self& self, httplib::Stream& stream, bool last, bool& closed, long)
        -> decltype(self.process_request(stream, "", 0, "", 0, last, closed, nullptr)) {
        std::string peer, here;
        int peer_port = 0, port = 0;
        stream.get_remote_ip_and_port(peer, peer_port);
        stream.get_local_ip_and_port(here, port);
        return self.process_request(stream, peer, peer_port, here, port, last, closed, nullptr);
    }
};

namespace detail {

// After the fields of that name. In some versions of the library their map is unordered, and puts a
// new one before them.
inline void add_field(httplib::Headers& fields, const std::string& name, const std::string& value) {
    auto at = fields.emplace(name, value);
    const auto end = fields.equal_range(name).second;
    for (auto next = std::next(at); next != end; at = next++) at->second.swap(next->second);
}

inline void send(const Answer& answer, httplib::Response& response) {
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) add_field(response.headers, name, value);
    response.body = answer.body;
}

// The body was not read to its end, so that the rest of the connection has no meaning.
inline void refuse(Answer answer, httplib::Request& request, httplib::Response& response) {
    httplib_stream->spoil();
    request.headers.erase("Connection");
    request.headers.emplace("Connection", "close");
    send(answer, response);
}

// The library hands out a body in any other coding as it was sent.
inline bool is_decoded(const Fields& fields) {
    const auto codings = values_of(fields, "Content-Encoding");
    return codings.empty() ||
           (codings.size() == 1 &&
            (codings[0] == "gzip" || codings[0] == "deflate" || codings[0] == "identity"));
}

inline void serve(const Route& route, httplib::Request& request, httplib::Response& response,
                  const httplib::ContentReader& reader) {
    if (httplib_stream == nullptr) {
        throw std::logic_error("idempotency::protect needs an idempotency::HttplibServer");
    }
    auto fields = fields_of_head(httplib_stream->head());
    if (!fields) return refuse(local_problem("bad_body"), request, response);
    Request read{request.method, request.target, *std::move(fields), ""};
    auto [principal, refusal] = admit(route, read, is_decoded(read.headers));
    if (refusal) return refuse(*std::move(refusal), request, response);
    // The library would take a form to pieces, and cut answers to ranges.
    request.headers.erase("Content-Type");
    request.ranges.clear();
    bool large = false;
    const bool whole = reader([&](const char* bytes, std::size_t size) {
        large = read.body.size() + size > route.max_request_bytes;
        if (!large) read.body.append(bytes, size);
        return !large;
    });
    if (large) return refuse(body_too_large(), request, response);
    if (!whole) {
        const bool coding = response.status == 415;
        return refuse(local_problem(coding ? "content_encoding" : "bad_body"), request, response);
    }
    send(answer_of(route, read, principal), response);
}

}  // namespace detail

// The handler of a route, for Post, Patch, Put or Delete of an HttplibServer.
inline httplib::Server::HandlerWithContentReader protect(Route route) {
    return [route = std::move(route)](const httplib::Request& request, httplib::Response& response,
                                      const httplib::ContentReader& reader) {
        // The library's own object, which is not constant.
        detail::serve(route, const_cast<httplib::Request&>(request), response, reader);
    };
}

}  // namespace idempotency
