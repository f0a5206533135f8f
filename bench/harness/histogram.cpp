#include "harness/histogram.hpp"

#include <algorithm>
#include <cmath>

namespace idem::bench {
namespace {

// Microseconds below 64 have a bucket each. Above, each power of two has 32: `exponent` says how
// many low bits are dropped, and 32 to 63 remains.
std::size_t bucket_of(std::uint64_t micros) {
    if (micros < 64) return micros;
    int exponent = 58 - __builtin_clzll(micros);
    return 64 + 32 * static_cast<std::size_t>(exponent - 1) + ((micros >> exponent) - 32);
}

double upper_edge_micros(std::size_t bucket) {
    if (bucket < 64) return static_cast<double>(bucket);
    std::size_t exponent = (bucket - 64) / 32 + 1;
    std::size_t mantissa = (bucket - 64) % 32 + 32;
    return std::ldexp(static_cast<double>(mantissa + 1), static_cast<int>(exponent)) - 1;
}

}  // namespace

void Histogram::record(Clock::duration latency) {
    auto micros = std::chrono::duration_cast<std::chrono::microseconds>(latency).count();
    auto bucket = bucket_of(static_cast<std::uint64_t>(std::max<std::int64_t>(micros, 0)));
    buckets_[std::min(bucket, buckets_.size() - 1)]++;
    count_++;
}

void Histogram::add(const Histogram& other) {
    for (std::size_t i = 0; i < buckets_.size(); i++) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
}

double Histogram::quantile(double share) const {
    if (count_ == 0) return 0;
    auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(count_)));
    std::uint64_t seen = 0;
    std::size_t bucket = 0;
    while ((seen += buckets_[bucket]) < wanted) bucket++;
    return upper_edge_micros(bucket) / 1000;
}

}  // namespace idem::bench
