#include "crew.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <system_error>

#include "worker.hpp"

namespace payments {
namespace {

// The child's whole life. It leaves by _exit: the parent's objects, among them the programs that it
// runs, are not the child's to destroy.
[[noreturn]] void live(const Options& options, const std::vector<std::string>& servers,
                       const std::vector<Request>& requests, Board& board, std::size_t number) {
    // These reach the whole process group; the parent answers for all.
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    try {
        Worker(options, servers, requests, board, number).run();
    } catch (const std::exception& e) {
        std::cerr << "worker " << number << ": " << e.what() << std::endl;
        _exit(1);
    }
    _exit(0);
}

}  // namespace

Crew::Crew(const Options& options, std::vector<std::string> servers,
           const std::vector<Request>& requests, Board& board)
    : options_(options),
      servers_(std::move(servers)),
      requests_(requests),
      board_(board),
      pids_(board.workers(), 0) {
    for (std::size_t worker = 0; worker < pids_.size(); ++worker) hire(worker);
}

Crew::~Crew() {
    board_.common().stop = true;
    for (std::size_t worker = 0; worker < pids_.size(); ++worker) {
        if (pids_[worker] != 0) waitpid(pids_[worker], nullptr, 0);
    }
}

bool Crew::tend() {
    for (std::size_t worker = 0; worker < pids_.size(); ++worker) {
        int status = 0;
        if (pids_[worker] != 0 && waitpid(pids_[worker], &status, WNOHANG) > 0) {
            dismiss(worker, status);
        }
    }
    return std::any_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid != 0; });
}

void Crew::hire(std::size_t worker) {
    const pid_t pid = fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid == 0) live(options_, servers_, requests_, board_, worker);
    pids_[worker] = pid;
}

// A killed worker is replaced, and its successor goes on with the line; one that failed is not.
void Crew::dismiss(std::size_t worker, int status) {
    pids_[worker] = 0;
    const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (killed && !board_.common().stop) return hire(worker);
    if (killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return;
    failed_ = true;
    board_.common().stop = true;
}

}  // namespace payments
