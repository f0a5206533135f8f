// Histograms to compute with.
#pragma once

#include "harness/histogram.hpp"

namespace idem::bench {

inline Histogram calls_of_10_microseconds(int count) {
    Histogram histogram;
    for (int i = 0; i < count; i++) histogram.record(std::chrono::microseconds(10));
    return histogram;
}

}  // namespace idem::bench
