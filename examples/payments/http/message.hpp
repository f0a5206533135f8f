// HTTP/1.1 requests from bytes, and answers to bytes. Strict (RFC 9112), since what is guessed here
// is guessed otherwise by whoever stands in front: and raw, since a key is what was sent.
#pragma once

#include <cstddef>
#include <idempotency/http.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace http {

using idempotency::Answer;
using idempotency::Request;

// How a body is delimited and coded.
struct Framing {
    std::size_t length = 0;
    bool chunked = false;
    bool gzip = false;
    bool expects_continue = false;

    bool has_body() const { return chunked || length > 0; }
};

// Something that is answered with this status, whoever asks.
struct Fault {
    int status;
    const char* what;
};

// From the first byte to the empty line. Both throw Fault.
Request parse_head(std::string_view head);
Framing framing_of(const Request& head);

// Without the query string.
std::string path_of(const Request& request);

// Undoes chunks as they come.
class Chunks {
  public:
    explicit Chunks(std::size_t limit) : limit_(limit) {}

    // Takes what it understands from `input`; true when the body is complete. Throws Fault.
    bool take(std::string& input);
    std::string& content() { return content_; }

  private:
    enum { Size, Data, DataEnd, Trailer } state_ = Size;
    std::optional<std::string> line(std::string& input, std::size_t longest);

    const std::size_t limit_;
    std::size_t left_ = 0;
    std::size_t trailers_ = 0;
    std::string content_;
};

// Throws Fault, also where there would be more than `limit`: 413.
std::string gunzip(const std::string& packed, std::size_t limit);

// The bytes to send; the body is left out for HEAD, and where a status has none.
std::string to_bytes(const Answer& answer, bool with_body);

// An answer that is none: the connection ends without a byte.
Answer hang_up();

// The problem document of what goes wrong outside of the handlers.
Answer fault_answer(const Fault& fault);

}  // namespace http
