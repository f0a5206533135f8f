#include "faults.hpp"

namespace payments {
namespace {

// SplitMix64: short, and the same everywhere, which std::uniform_int_distribution is not.
std::uint64_t draw(std::uint64_t seed, int line, std::uint64_t purpose) {
    std::uint64_t z = seed + 0x9e3779b97f4a7c15 * (static_cast<std::uint64_t>(line) * 8 + purpose);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

}  // namespace

FaultPlan plan_fault(std::uint64_t seed, int line, int percent) {
    constexpr Fault kFaults[] = {Fault::Terminated, Fault::Crashed, Fault::Unheard};
    if (draw(seed, line, 1) % 100 >= static_cast<std::uint64_t>(percent)) {
        return {Fault::None, Moment::Begun};
    }
    return {kFaults[draw(seed, line, 2) % 3], static_cast<Moment>(draw(seed, line, 3) % 4)};
}

int working_time(std::uint64_t seed, int line) {
    return static_cast<int>(draw(seed, line, 4) % 4000);
}

void Terminator::terminate(pid_t backend) {
    pqxx::nontransaction tx(connection_);
    tx.exec_params("SELECT pg_terminate_backend($1, 10000)", backend);
}

}  // namespace payments
