#include "message.hpp"

#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <idempotency/problem.hpp>
#include <idempotency/protocol.hpp>

namespace http {
namespace {

constexpr std::size_t kLongestTarget = 8192;
constexpr std::size_t kLongestChunkLine = 256;
constexpr std::size_t kLongestTrailers = 8192;

// Up to the CR LF, which must be there.
std::string_view next_line(std::string_view& text) {
    const auto end = text.find("\r\n");
    const auto line = text.substr(0, end);
    text.remove_prefix(end + 2);
    return line;
}

bool is_visible(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

// False for HTTP/1.0, which knows no Host.
bool parse_request_line(std::string_view line, Request& request) {
    const auto first = line.find(' ');
    const auto last = line.rfind(' ');
    if (first == line.npos || first == last) throw Fault{400, "The request line is malformed."};
    request.method = line.substr(0, first);
    request.target = line.substr(first + 1, last - first - 1);
    const auto version = line.substr(last + 1);
    if (!idempotency::is_field_name(request.method)) throw Fault{400, "The method is malformed."};
    if (request.target.size() > kLongestTarget) throw Fault{414, "The target is too long."};
    if (request.target.empty() || request.target[0] != '/' || !is_visible(request.target)) {
        throw Fault{400, "The target is malformed."};
    }
    if (version != "HTTP/1.1" && version != "HTTP/1.0") {
        throw Fault{400, "Only HTTP/1.1 is spoken here."};
    }
    return version == "HTTP/1.1";
}

std::string_view trimmed(std::string_view text) {
    const auto begin = text.find_first_not_of(" \t");
    if (begin == text.npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// No blank before the colon, and no folded lines: other servers would read those differently.
void parse_field(std::string_view line, Request& request) {
    const auto colon = line.find(':');
    if (colon == line.npos) throw Fault{400, "A header field is malformed."};
    const std::string name(line.substr(0, colon));
    const std::string value(trimmed(line.substr(colon + 1)));
    const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7F; };
    if (!idempotency::is_field_name(name) || std::any_of(value.begin(), value.end(), is_control)) {
        throw Fault{400, "A header field is malformed."};
    }
    request.headers.emplace_back(name, value);
}

std::size_t parse_length(const std::string& text) {
    std::size_t length = 0;
    const char* end = text.data() + text.size();
    const bool digits =
        !text.empty() && text.size() <= 18 &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || std::from_chars(text.data(), end, length).ptr != end) {
        throw Fault{400, "Content-Length is malformed."};
    }
    return length;
}

// The field's value in lower case; refuses two fields. A list is no known value.
std::string single(const Request& head, const char* name) {
    const auto values = idempotency::values_of(head.headers, name);
    if (values.size() > 1) throw Fault{400, "A header field that stands once is there twice."};
    std::string value = values.empty() ? "" : values[0];
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value;
}

}  // namespace

Request parse_head(std::string_view head) {
    Request request;
    const bool has_host = parse_request_line(next_line(head), request);
    while (!head.empty()) {
        const auto line = next_line(head);
        if (line.empty()) break;
        parse_field(line, request);
    }
    const auto hosts = idempotency::values_of(request.headers, "Host").size();
    if (hosts > 1 || (hosts == 0 && has_host)) throw Fault{400, "There must be one Host."};
    return request;
}

Framing framing_of(const Request& head) {
    Framing framing;
    const auto lengths = idempotency::values_of(head.headers, "Content-Length");
    const auto coding = single(head, "Transfer-Encoding");
    framing.chunked = coding == "chunked";
    if (!coding.empty() && !framing.chunked) throw Fault{400, "Only chunked is spoken here."};
    if (framing.chunked && !lengths.empty()) throw Fault{400, "How long is the body?"};
    if (!lengths.empty()) framing.length = parse_length(single(head, "Content-Length"));
    const auto packing = single(head, "Content-Encoding");
    framing.gzip = packing == "gzip" || packing == "x-gzip";
    if (!packing.empty() && packing != "identity" && !framing.gzip) {
        throw Fault{415, "A body may be coded with gzip, or not at all."};
    }
    framing.expects_continue = single(head, "Expect") == "100-continue";
    return framing;
}

std::string path_of(const Request& request) {
    return request.target.substr(0, request.target.find('?'));
}

std::optional<std::string> Chunks::line(std::string& input, std::size_t longest) {
    const auto end = input.find("\r\n");
    if (std::min(end, input.size()) > longest) throw Fault{400, "A chunk is malformed."};
    if (end == input.npos) return std::nullopt;
    std::string result = input.substr(0, end);
    input.erase(0, end + 2);
    return result;
}

bool Chunks::take(std::string& input) {
    while (true) {
        if (state_ == Size) {
            const auto size = line(input, kLongestChunkLine);
            if (!size) return false;
            const char* end = size->data() + size->size();
            const auto parsed = std::from_chars(size->data(), end, left_, 16);
            const bool good = parsed.ec == std::errc() &&
                              (parsed.ptr == end || *parsed.ptr == ';' || *parsed.ptr == ' ');
            if (!good) throw Fault{400, "A chunk is malformed."};
            if (left_ > limit_ - content_.size()) throw Fault{413, "The body is too large."};
            state_ = left_ == 0 ? Trailer : Data;
        } else if (state_ == Data) {
            const auto part = std::min(left_, input.size());
            content_.append(input, 0, part);
            input.erase(0, part);
            left_ -= part;
            if (left_ > 0) return false;
            state_ = DataEnd;
        } else if (state_ == DataEnd) {
            const auto end = line(input, 0);
            if (!end) return false;
            state_ = Size;
        } else {
            const auto trailer = line(input, kLongestTrailers);
            if (!trailer) return false;
            if (trailer->empty()) return true;
            trailers_ += trailer->size();
            if (trailers_ > kLongestTrailers) throw Fault{431, "The trailer is too long."};
        }
    }
}

std::string gunzip(const std::string& packed, std::size_t limit) {
    constexpr int kGzip = 16;
    z_stream stream{};
    if (inflateInit2(&stream, MAX_WBITS + kGzip) != Z_OK) throw Fault{500, "No memory."};
    const struct End {
        z_stream* stream;
        ~End() { inflateEnd(stream); }
    } end{&stream};
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    std::string content;
    int status = Z_OK;
    while (status == Z_OK) {
        char part[16384];
        stream.next_out = reinterpret_cast<Bytef*>(part);
        stream.avail_out = sizeof(part);
        status = inflate(&stream, Z_NO_FLUSH);
        content.append(part, sizeof(part) - stream.avail_out);
        if (content.size() > limit) throw Fault{413, "The body is too large."};
    }
    if (status != Z_STREAM_END || stream.avail_in != 0) throw Fault{400, "The body is no gzip."};
    return content;
}

std::string to_bytes(const Answer& answer, bool with_body) {
    if (answer.status == 0) return "";
    const bool may_have_body = answer.status >= 200 && answer.status != 204 && answer.status != 304;
    std::string bytes = "HTTP/1.1 " + std::to_string(answer.status) + " \r\n";
    for (const auto& [name, value] : answer.headers) {
        const bool ours = idempotency::same_name(name, "Content-Length") ||
                          idempotency::same_name(name, "Connection") ||
                          idempotency::same_name(name, "Transfer-Encoding");
        if (!ours) bytes += name + ": " + value + "\r\n";
    }
    bytes += "Connection: close\r\n";
    if (may_have_body) bytes += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
    bytes += "\r\n";
    if (may_have_body && with_body) bytes += answer.body;
    return bytes;
}

Answer hang_up() {
    return {0, {}, ""};
}

Answer fault_answer(const Fault& fault) {
    const auto document = [&](const char* word, const char* title) {
        return idempotency::problem(fault.status, std::string("/problems/") + word, title,
                                    fault.what);
    };
    switch (fault.status) {
        case 404:
            return document("not-found", "Not found");
        case 405:
            return document("method-not-allowed", "Method not allowed");
        case 413:
            return document("too-large", "Content too large");
        case 503:
            return idempotency::with(document("busy", "The service is busy"), "Retry-After", "1");
        default:
            return document(("http-" + std::to_string(fault.status)).c_str(),
                            "Request not understood");
    }
}

}  // namespace http
