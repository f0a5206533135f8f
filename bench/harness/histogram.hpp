// Counts latencies in buckets that are at most 1/32 wide, so that any number of calls fits.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace idem::bench {

using Clock = std::chrono::steady_clock;

class Histogram {
  public:
    void record(Clock::duration latency);
    void add(const Histogram& other);

    std::uint64_t count() const { return count_; }
    // Milliseconds within which the share (0 to 1) of the calls ended, rounded up to the bucket's
    // edge; 0 if there were none.
    double quantile(double share) const;

  private:
    static constexpr int kExponents = 40;
    std::array<std::uint64_t, 64 + 32 * kExponents> buckets_{};
    std::uint64_t count_ = 0;
};

}  // namespace idem::bench
