#include "wire.hpp"

#include <signal.h>

#include <chrono>

#include "client/key.hpp"
#include "input.hpp"

namespace payments {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 5s;
constexpr auto kImpatience = 2ms;
constexpr int kConflict = 409;
constexpr int kFirstServerError = 500;

bool is_first_answer(const client::Answer& answer) {
    return answer.status == kCreated && !is_replay(answer);
}

}  // namespace

bool is_replay(const client::Answer& answer) {
    const auto mark = answer.headers.find("idempotent-replayed");
    return mark != answer.headers.end() && mark->second == "true";
}

Wire::Wire(Common& common) : HttpTransport(kPatience), common_(common), endings_(common.endings) {}

void Wire::expect(Fault fault, LineState& line, bool sabotage) {
    fault_ = fault;
    line_ = &line;
    sabotage_ = sabotage;
}

client::Attempt Wire::send(const std::string& server, const client::Request& request) {
    ++common_.sent;
    hung_up_ = false;
    set_patience(planned(Fault::Impatient) ? kImpatience : kPatience);
    const client::Attempt attempt =
        sabotage_ ? send_sabotaged(server, request) : HttpTransport::send(server, request);
    ++ending_of(attempt);
    return attempt;
}

client::Attempt Wire::send_sabotaged(const std::string& server, const client::Request& request) {
    client::Request another = request;
    another.headers["idempotency-key"] = client::key_field(client::new_key());
    return HttpTransport::send(server, another);
}

// An answer has arrived, so the service has committed. Only the first one is worth losing.
bool Wire::wants_answer(const client::Answer& without_body) {
    if (!is_first_answer(without_body)) return true;
    if (planned(Fault::Crashed)) {
        line_->struck = true;
        ++endings_.crashed;
        raise(SIGKILL);
    }
    if (!planned(Fault::Unheard)) return true;
    line_->struck = true;
    hung_up_ = true;
    return false;
}

std::atomic<int>& Wire::ending_of(const client::Attempt& attempt) {
    if (attempt.answer) return ending_of(*attempt.answer);
    if (hung_up_) return endings_.unheard;
    if (attempt.silence == client::Silence::Unreached) return endings_.unreached;
    if (!planned(Fault::Impatient)) return endings_.lost;
    line_->struck = true;
    return endings_.impatient;
}

std::atomic<int>& Wire::ending_of(const client::Answer& answer) {
    if (answer.status >= kFirstServerError) return endings_.failed;
    switch (answer.status) {
        case kCreated:
            return is_replay(answer) ? endings_.replayed : endings_.executed;
        case kConflict:
            return endings_.in_progress;
        case kMismatch:
            return endings_.mismatched;
        case kBadRequest:
            return endings_.bad_keys;
        default:
            return endings_.strange;
    }
}

}  // namespace payments
