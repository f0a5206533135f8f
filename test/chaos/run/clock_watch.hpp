// Finds out whether the machine's clock goes back during a run. Such a run proves nothing: the
// place of each call in time, the ends of leases and the tokens are all read from that clock. What
// the extension does then has tests of its own (112_clock.pl). A step ahead is harmless here: it
// ends leases early, for the server and for the checker.
#pragma once

#include <atomic>
#include <thread>

#include "clock.hpp"

namespace idem::chaos {

// Judges readings of the clock in the order in which they were made.
class StepsBack {
  public:
    // wall: the machine's clock. steady: one that is never set, read at the same moment.
    void see(Micros wall, Micros steady);

    int readings() const { return readings_; }
    int times() const { return times_; }
    Micros farthest() const { return farthest_; }

  private:
    int readings_ = 0;
    Micros wall_ = 0;
    Micros steady_ = 0;
    int times_ = 0;
    Micros farthest_ = 0;
};

// Reads the clock of each processor in turn, on a separate thread, from construction to stop().
class ClockWatch {
  public:
    ClockWatch() : thread_([this] { watch(); }) {}
    ~ClockWatch() { stop(); }
    ClockWatch(const ClockWatch&) = delete;
    ClockWatch& operator=(const ClockWatch&) = delete;

    // Its result counts after that.
    const StepsBack& stop();

  private:
    void watch();

    StepsBack steps_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

}  // namespace idem::chaos
