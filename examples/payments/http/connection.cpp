#include "connection.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace http {
namespace {

constexpr std::size_t kLongestHead = 32768;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

bool would_wait() {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

Connection::Connection(int descriptor, const Routes& routes, Clock::time_point deadline)
    : descriptor_(descriptor), routes_(routes), deadline_(deadline) {}

Connection::~Connection() {
    close(descriptor_);
}

short Connection::events() const noexcept {
    switch (phase_) {
        case Reading:
        case Lingering:
            return POLLIN;
        case Writing:
            return POLLOUT;
        default:
            return 0;
    }
}

// False if no bytes are ready.
bool Connection::receive() {
    char part[16384];
    const auto size = recv(descriptor_, part, sizeof(part), 0);
    if (size > 0) {
        has_begun_ = true;
        if (phase_ == Reading) input_.append(part, static_cast<std::size_t>(size));
        return true;
    }
    if (size == 0 || !would_wait()) hung_up_ = true;
    return false;
}

std::optional<Answer> Connection::read() {
    const bool more = receive();
    if (phase_ == Lingering) {
        if (hung_up_) phase_ = Done;
        return std::nullopt;
    }
    try {
        if (more && (admission_ || read_head())) {
            complete_ = !refused_ && read_body();
            if (refused_ || complete_) phase_ = Working;
        }
    } catch (const Fault& fault) {
        phase_ = Working;
        return fault_answer(fault);
    } catch (const idempotency::Refusal& refusal) {
        phase_ = Working;
        return refusal.answer();
    }
    if (hung_up_ && phase_ == Reading) phase_ = Done;
    return std::nullopt;
}

// True when the head is complete: its sender and the longest allowed body are then known, before
// any byte of the body is looked at.
bool Connection::read_head() {
    const auto end = input_.find("\r\n\r\n", scanned_);
    if (std::min(end, input_.size()) > kLongestHead) throw Fault{431, "The head is too long."};
    scanned_ = input_.size() < 3 ? 0 : input_.size() - 3;
    if (end == input_.npos) return false;
    request_ = parse_head(std::string_view(input_).substr(0, end + 4));
    input_.erase(0, end + 4);
    framing_ = framing_of(request_);
    admission_ = routes_.admit(request_);
    const auto limit = admission_->route->max_request_bytes;
    const auto& refuses = admission_->route->refuses;
    refused_ = refuses && refuses(request_);
    if (refused_) return true;
    if (framing_.length > limit) throw Fault{413, "The body is too large."};
    if (framing_.chunked) chunks_.emplace(limit);
    if (framing_.expects_continue && framing_.has_body() && input_.empty()) {
        // Two dozen bytes on a fresh connection: if they do not fit, the client sends its body
        // without them.
        (void)!send(descriptor_, kContinue, sizeof(kContinue) - 1, MSG_NOSIGNAL);
    }
    return true;
}

bool Connection::read_body() {
    if (chunks_) {
        if (!chunks_->take(input_)) return false;
        request_.body = std::move(chunks_->content());
    } else {
        if (input_.size() < framing_.length) return false;
        request_.body = input_.substr(0, framing_.length);
        input_.erase(0, framing_.length);
    }
    if (framing_.gzip) request_.body = gunzip(request_.body, admission_->route->max_request_bytes);
    return true;
}

void Connection::answer(const Answer& answer, Clock::time_point deadline) {
    output_ = to_bytes(answer, request_.method != "HEAD");
    deadline_ = deadline;
    phase_ = Writing;
}

void Connection::write(Clock::time_point linger_deadline) {
    while (written_ < output_.size()) {
        const auto size =
            send(descriptor_, output_.data() + written_, output_.size() - written_, MSG_NOSIGNAL);
        if (size < 0 && would_wait()) return;
        if (size <= 0) {
            phase_ = Done;
            return;
        }
        written_ += static_cast<std::size_t>(size);
    }
    finish(linger_deadline);
}

// Closing with unread bytes would destroy the answer for a client that is still sending.
void Connection::finish(Clock::time_point linger_deadline) {
    shutdown(descriptor_, SHUT_WR);
    phase_ = complete_ && input_.empty() ? Done : Lingering;
    deadline_ = linger_deadline;
}

void Connection::hurry(Clock::time_point deadline) {
    if (phase_ == Reading || phase_ == Lingering) deadline_ = std::min(deadline_, deadline);
}

// Answers a request that did not arrive in time, if it ever began.
void Connection::expire(Clock::time_point linger_deadline) {
    if (phase_ == Reading && has_begun_) {
        answer(fault_answer({408, "The request did not come in time."}), linger_deadline);
        write(linger_deadline);
    } else {
        phase_ = Done;
    }
}

}  // namespace http
