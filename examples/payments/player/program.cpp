#include "program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace payments {
namespace {

constexpr int kStartingMs = 15000;
constexpr char kReady[] = "listening on";

[[noreturn]] void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// The next piece of what the program prints; empty at its end, or if it is silent for too long.
std::string read_some(int output) {
    pollfd wanted{output, POLLIN, 0};
    char text[256];
    if (poll(&wanted, 1, kStartingMs) <= 0) return {};
    const auto length = read(output, text, sizeof text);
    return length > 0 ? std::string(text, static_cast<std::size_t>(length)) : std::string();
}

}  // namespace

Program::~Program() {
    if (pid_ != 0) kill();
}

void Program::start() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail("pipe");
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) fail("fork");
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent) run(ends[1]);
        _exit(127);
    }
    close(ends[1]);
    output_ = ends[0];
}

// In the child: only returns if the program can't be run. A process group of its own keeps Ctrl-C
// away, since it is the parent who ends it.
void Program::run(int output) const {
    setpgid(0, 0);
    const int log = open(command_.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log >= 0) dup2(log, STDERR_FILENO);
    dup2(output, STDOUT_FILENO);
    std::vector<char*> arguments;
    for (const auto& word : command_.words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execv(arguments[0], arguments.data());
}

void Program::await_listening() {
    if (listening_) return;
    std::string printed;
    while (printed.find(kReady) == std::string::npos) {
        const std::string more = read_some(output_);
        if (more.empty()) complain("did not start");
        printed += more;
    }
    listening_ = true;
}

void Program::kill() {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    forget();
}

// A program that is only just starting knows nothing of SIGTERM yet.
void Program::stop() {
    await_listening();
    int status = 0;
    ::kill(pid_, SIGTERM);
    if (waitpid(pid_, &status, 0) < 0) fail("waitpid");
    forget();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) complain("did not stop cleanly");
}

void Program::check_alive() {
    if (pid_ == 0 || waitpid(pid_, nullptr, WNOHANG) == 0) return;
    forget();
    complain("ended by itself");
}

void Program::freeze() {
    ::kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
}

void Program::thaw() {
    ::kill(pid_, SIGCONT);
}

void Program::forget() {
    pid_ = 0;
    listening_ = false;
    close(output_);
    output_ = -1;
}

void Program::complain(const std::string& what) const {
    throw std::runtime_error(command_.words[0] + ' ' + what + ", see " + command_.log);
}

}  // namespace payments
