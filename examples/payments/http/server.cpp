#include "server.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <stdexcept>

namespace http {
namespace {

constexpr std::size_t kMostConnections = 2000;

int signal_descriptor() {
    signal(SIGPIPE, SIG_IGN);
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

void set(int socket, int level, int option) {
    constexpr int kYes = 1;
    setsockopt(socket, level, option, &kYes, sizeof(kYes));
}

int port_of(int socket) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                               : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

// An unexpected exception of a handler must not affect other requests.
Answer answer_of(const idempotency::Route& route, const Request& request,
                 const std::string& principal) noexcept try {
    return route.answer(request, principal);
} catch (const idempotency::Refusal& refusal) {
    return refusal.answer();
} catch (const std::exception& error) {
    std::cerr << std::string("error: ") + error.what() + "\n";
    return idempotency::half_done();
} catch (...) {
    return idempotency::half_done();
}

}  // namespace

Address parse_address(const std::string& text) {
    const auto colon = text.rfind(':');
    Address address{text.substr(0, colon), -1};
    if (colon != std::string::npos) {
        const char* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data() + colon + 1, end, address.port);
        if (parsed.ptr != end) address.port = -1;
    }
    if (address.host.empty() || address.port < 0 || address.port > 65535) {
        throw std::invalid_argument("not HOST:PORT: " + text);
    }
    return address;
}

Server::Server(Limits limits) : limits_(limits), signals_(signal_descriptor()) {
    if (pipe2(wake_, O_NONBLOCK | O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
}

Server::~Server() {
    for (const int descriptor : {signals_, listener_, wake_[0], wake_[1]}) {
        if (descriptor >= 0) close(descriptor);
    }
}

bool Server::run(const Address& address, const std::string& ready) {
    const int port = bind(address);
    if (ready.empty()) {
        std::cout << "listening on " << address.host << ':' << port << std::endl;
    } else {
        std::cout << ready << std::endl;
    }
    while (!ending_ || (!connections_.empty() && Clock::now() < end_)) wait();
    return !is_working();
}

// A restarted server can bind its port again. SO_REUSEPORT would also let two servers share one,
// and each would get some of the other's requests.
int Server::bind(const Address& address) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const auto port = std::to_string(address.port);
    if (getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) == 0) {
        for (auto* each = found; each != nullptr && listener_ < 0; each = each->ai_next) {
            const int s = socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
            set(s, SOL_SOCKET, SO_REUSEADDR);
            if (::bind(s, each->ai_addr, each->ai_addrlen) == 0 && listen(s, SOMAXCONN) == 0) {
                listener_ = s;
            } else {
                close(s);
            }
        }
        freeaddrinfo(found);
    }
    if (listener_ < 0) throw std::runtime_error("can't listen on " + address.host + ":" + port);
    return port_of(listener_);
}

// One round: handles all ready connections and all overdue ones.
void Server::wait() {
    const bool open = !ending_ && connections_.size() < kMostConnections;
    std::vector<pollfd> polled = {
        {signals_, POLLIN, 0}, {wake_[0], POLLIN, 0}, {open ? listener_ : -1, POLLIN, 0}};
    auto next = ending_ ? end_ : Clock::now() + std::chrono::hours(1);
    for (const auto& connection : connections_) {
        const bool waits = connection->events() != 0;
        polled.push_back({waits ? connection->descriptor() : -1, connection->events(), 0});
        if (waits) next = std::min(next, connection->deadline());
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    poll(polled.data(), polled.size(), static_cast<int>(std::clamp<long long>(left, 0, 3600000)));

    if (polled[0].revents != 0) begin_end();
    if (polled[1].revents != 0) take_answers();
    const auto now = Clock::now();
    const Connections known = connections_;
    for (std::size_t i = 0; i < known.size(); ++i) {
        if (polled[i + 3].revents != 0) serve(known[i]);
        if (known[i]->events() != 0 && known[i]->deadline() <= now) {
            known[i]->expire(now + limits_.linger);
        }
    }
    const auto is_done = [](const auto& each) { return each->phase() == Connection::Done; };
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(), is_done),
                       connections_.end());
    if (polled[2].revents != 0) accept_all();
}

void Server::accept_all() {
    while (connections_.size() < kMostConnections) {
        const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor < 0) return;
        set(descriptor, IPPROTO_TCP, TCP_NODELAY);
        connections_.push_back(
            std::make_shared<Connection>(descriptor, routes_, Clock::now() + limits_.request));
    }
}

void Server::serve(const std::shared_ptr<Connection>& connection) {
    if (connection->phase() == Connection::Writing) {
        return connection->write(Clock::now() + limits_.linger);
    }
    if (const auto refused = connection->read()) return give(*connection, *refused);
    if (connection->phase() == Connection::Working) begin_work(connection);
}

void Server::begin_work(const std::shared_ptr<Connection>& connection) {
    const auto& admission = connection->admission();
    if (admission.lane == nullptr) {
        return give(*connection,
                    answer_of(*admission.route, connection->request(), admission.principal));
    }
    const auto job = [connection, finished = finished_, wake = wake_[1]] {
        const auto& admitted = connection->admission();
        auto answer = answer_of(*admitted.route, connection->request(), admitted.principal);
        {
            const std::lock_guard<std::mutex> lock(finished->mutex);
            finished->answers.emplace_back(connection, std::move(answer));
        }
        (void)!::write(wake, "", 1);
    };
    if (!admission.lane->take(job)) {
        give(*connection, fault_answer({503, "Too many such requests are waiting."}));
    }
}

void Server::take_answers() {
    char bytes[256];
    while (::read(wake_[0], bytes, sizeof(bytes)) > 0) {
    }
    std::vector<std::pair<std::shared_ptr<Connection>, Answer>> answers;
    {
        const std::lock_guard<std::mutex> lock(finished_->mutex);
        answers.swap(finished_->answers);
    }
    for (const auto& [connection, answer] : answers) give(*connection, answer);
}

void Server::give(Connection& connection, const Answer& answer) {
    connection.answer(answer, Clock::now() + limits_.answer);
    connection.write(Clock::now() + limits_.linger);
}

// Gives a client that is about to send a request the time to send it.
void Server::begin_end() {
    ending_ = true;
    end_ = Clock::now() + limits_.end;
    close(listener_);
    listener_ = -1;
    constexpr std::chrono::milliseconds kLastWords{300};
    for (const auto& connection : connections_) connection->hurry(Clock::now() + kLastWords);
}

bool Server::is_working() const {
    return std::any_of(connections_.begin(), connections_.end(),
                       [](const auto& each) { return each->phase() == Connection::Working; });
}

}  // namespace http
