// A program that runs beside this one until it is killed. It has its own session, so that its
// children do not end with it.
#pragma once

#include <string>
#include <vector>

namespace idem::chaos {

class Process {
  public:
    Process() = default;
    // Starts it in this folder, and appends its output to `log`.
    Process(const std::vector<std::string>& command, const std::string& folder,
            const std::string& log);
    ~Process() { kill(); }
    Process(Process&& other) noexcept { *this = std::move(other); }
    Process& operator=(Process&& other) noexcept;

    // Returns when the process is gone.
    void kill();
    void freeze() const;
    void go_on() const;
    bool runs();

  private:
    int pid_ = 0;
};

// Runs it to its end; returns whether it succeeded.
bool run_program(const std::vector<std::string>& command, const std::string& folder,
                 const std::string& log);

// Free ports of this machine, all different, and not given before.
std::vector<int> free_ports(std::size_t count);

}  // namespace idem::chaos
