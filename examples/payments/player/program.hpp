// A server program that the demo runs. It does not outlive the demo.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace payments {

struct Command {
    std::vector<std::string> words;  // the first is the file
    std::string log;                 // its stderr is added to this file
};

class Program {
  public:
    explicit Program(Command command) : command_(std::move(command)) {}
    ~Program();
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    // 0 if it does not run.
    pid_t pid() const { return pid_; }
    void start();
    // Returns when it has printed that it listens. Throws if it ends or takes too long instead.
    void await_listening();
    // No warning, no clean-up. Returns when it is gone.
    void kill();
    // Asks it to end, and waits. Throws unless it ends with status 0.
    void stop();
    // Throws if it has ended by itself.
    void check_alive();
    // Neither runs code of the program any more, until thaw().
    void freeze();
    void thaw();

  private:
    void run(int output) const;
    void forget();
    [[noreturn]] void complain(const std::string& what) const;

    Command command_;
    pid_t pid_ = 0;    // 0: does not run
    int output_ = -1;  // what it prints
    bool listening_ = false;
};

}  // namespace payments
