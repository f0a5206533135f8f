// A program that runs beside this one until it is killed: in a session of its own, so that nothing
// that it starts ends with it.
#pragma once

#include <string>
#include <vector>

namespace idem::chaos {

class Process {
  public:
    Process() = default;
    // In this folder, with its output at the end of `log`.
    Process(const std::vector<std::string>& command, const std::string& folder,
            const std::string& log);
    ~Process() { kill(); }
    Process(Process&& other) noexcept { *this = std::move(other); }
    Process& operator=(Process&& other) noexcept;

    // Comes back when it is gone.
    void kill();
    void freeze() const;
    void go_on() const;
    bool runs();

  private:
    int pid_ = 0;
};

// Runs it to its end; whether it succeeded.
bool run_program(const std::vector<std::string>& command, const std::string& folder,
                 const std::string& log);

// Ports of this machine that nobody listens to, all different.
std::vector<int> free_ports(std::size_t count);

}  // namespace idem::chaos
