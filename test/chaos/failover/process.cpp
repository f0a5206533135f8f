#include "failover/process.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <stdexcept>
#include <utility>

namespace idem::chaos {
namespace {

[[noreturn]] void become(char* const* arguments, const char* folder, const char* log) {
    (void)::setsid();
    const int out = ::open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    const int in = ::open("/dev/null", O_RDONLY);
    if (::chdir(folder) == 0 && out >= 0 && in >= 0) {
        (void)::dup2(in, 0);
        (void)::dup2(out, 1);
        (void)::dup2(out, 2);
        // Closes this program's connections, which the new program does not need.
        for (int file = 3; file < 1024; ++file) (void)::close(file);
        ::execv(arguments[0], arguments);
    }
    ::_exit(127);
}

// Code after fork() must not allocate: other threads may hold the allocator's locks.
int start(const std::vector<std::string>& command, const std::string& folder,
          const std::string& log) {
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int pid = ::fork();
    if (pid < 0) throw std::runtime_error("cannot start " + command.front());
    if (pid == 0) become(arguments.data(), folder.c_str(), log.c_str());
    return pid;
}

// A socket that listens nowhere yet, bound to this port; -1 if it is taken.
int bind_to(int port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return socket;
    (void)::close(socket);
    return -1;
}

}  // namespace

Process::Process(const std::vector<std::string>& command, const std::string& folder,
                 const std::string& log)
    : pid_(start(command, folder, log)) {}

Process& Process::operator=(Process&& other) noexcept {
    if (this == &other) return *this;
    kill();
    pid_ = std::exchange(other.pid_, 0);
    return *this;
}

void Process::kill() {
    if (pid_ == 0) return;
    (void)::kill(pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
    pid_ = 0;
}

void Process::freeze() const {
    if (pid_ != 0) (void)::kill(pid_, SIGSTOP);
}

void Process::go_on() const {
    if (pid_ != 0) (void)::kill(pid_, SIGCONT);
}

bool Process::runs() {
    if (pid_ != 0 && ::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
    return pid_ != 0;
}

bool run_program(const std::vector<std::string>& command, const std::string& folder,
                 const std::string& log) {
    int status = 0;
    return ::waitpid(start(command, folder, log), &status, 0) > 0 && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

// All are taken before the first is released. They lie below the range from which the kernel
// assigns ports to connections, which could take one before its server starts.
std::vector<int> free_ports(std::size_t count) {
    constexpr int kFirst = 12000;
    constexpr int kLast = 32000;
    static std::set<int> given;
    std::random_device random;
    std::vector<int> ports;
    std::vector<int> sockets;
    while (ports.size() < count) {
        const int port = kFirst + static_cast<int>(random() % (kLast - kFirst));
        const int socket = given.count(port) > 0 ? -1 : bind_to(port);
        if (socket < 0) continue;
        given.insert(port);
        sockets.push_back(socket);
        ports.push_back(port);
    }
    for (const int socket : sockets) (void)::close(socket);
    return ports;
}

}  // namespace idem::chaos
