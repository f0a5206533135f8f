#include "run/clock_watch.hpp"

#include <sched.h>

#include <algorithm>
#include <vector>

namespace idem::chaos {
namespace {

constexpr Micros kBetweenReadings = 2 * kMillisecond;
constexpr Micros kSameMoment = 50;    // between the two readings that enclose one
constexpr Micros kImprecision = 200;  // of a reading, and more
constexpr Micros kSlewing = 10;       // the kernel slows a clock by a tenth at most (adjtimex(2))

Micros steady() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

std::vector<int> processors() {
    cpu_set_t allowed;
    std::vector<int> numbers;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        for (int number = 0; number < CPU_SETSIZE; ++number)
            if (CPU_ISSET(number, &allowed)) numbers.push_back(number);
    return numbers;
}

// Without the right to move, it reads where it is.
void move_to(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

}  // namespace

void StepsBack::see(Micros wall, Micros steady) {
    const Micros passed = std::max<Micros>(steady - steady_, 0);
    const Micros expected = wall_ + passed - passed / kSlewing - kImprecision;
    if (readings_ > 0 && (wall < wall_ || wall < expected)) {
        ++times_;
        farthest_ = std::max(farthest_, wall_ + passed - wall);
    }
    ++readings_;
    wall_ = wall;
    steady_ = steady;
}

void ClockWatch::watch() {
    const std::vector<int> all = processors();
    for (std::size_t turn = 0; !stop_; ++turn, rest(kBetweenReadings)) {
        if (!all.empty()) move_to(all[turn % all.size()]);
        const Micros before = steady();
        const Micros wall = now();
        if (steady() - before <= kSameMoment) steps_.see(wall, before);
    }
}

const StepsBack& ClockWatch::stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return steps_;
}

}  // namespace idem::chaos
