// HTTP/1.1 requests from bytes, and answers to bytes. Strict (RFC 9112): a proxy in front may guess
// differently. Raw: a key must stay as it was sent.
#pragma once

#include <cstddef>
#include <idempotency/http.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace http {

using idempotency::Answer;
using idempotency::Request;

// The framing and coding of a body.
struct Framing {
    std::size_t length = 0;
    bool chunked = false;
    bool gzip = false;
    bool expects_continue = false;

    bool has_body() const { return chunked || length > 0; }
};

// A fault that is answered with this status.
struct Fault {
    int status;
    const char* what;
};

// The head: from the first byte to the empty line. Both throw Fault.
Request parse_head(std::string_view head);
Framing framing_of(const Request& head);

// Without the query string.
std::string path_of(const Request& request);

// Decodes a chunked body as it arrives.
class Chunks {
  public:
    explicit Chunks(std::size_t limit) : limit_(limit) {}

    // Consumes complete parts of `input`; true when the body is complete. Throws Fault.
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

// Throws Fault: 413 if the body would exceed `limit`.
std::string gunzip(const std::string& packed, std::size_t limit);

// The bytes to send; without the body for HEAD, and for a status that has none.
std::string to_bytes(const Answer& answer, bool with_body);

// No answer: the connection ends without a byte.
Answer hang_up();

// The problem document of an error outside the handlers.
Answer fault_answer(const Fault& fault);

}  // namespace http
