// The clock that clients and server share, and waiting by it.
#pragma once

#include <chrono>
#include <thread>

#include "check/history.hpp"

namespace idem::chaos {

inline Micros now() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

inline void rest(Micros duration) {
    std::this_thread::sleep_for(std::chrono::microseconds(duration));
}

}  // namespace idem::chaos
