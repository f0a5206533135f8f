// Choices that one seed repeats: a stream for each purpose, so that one session's draws do not
// depend on another's progress.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace idem::chaos {

class Random {
  public:
    Random(std::uint64_t seed, std::uint64_t stream, std::uint64_t number = 0) : state_(seed) {
        state_ = next() ^ stream;
        state_ = next() ^ number;
    }

    // splitmix64
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    std::int64_t between(std::int64_t least, std::int64_t most) {
        const auto span = static_cast<std::uint64_t>(most - least) + 1;
        return least + static_cast<std::int64_t>(next() % span);
    }

    // Small values are as likely as large ones: 1 to 10 as 10 to 100.
    std::int64_t spread(std::int64_t least, std::int64_t most) {
        const double fraction = static_cast<double>(next() >> 11) / 9007199254740992.0;
        const double low = std::log(static_cast<double>(least));
        const double high = std::log(static_cast<double>(most));
        return static_cast<std::int64_t>(std::exp(low + fraction * (high - low)));
    }

    bool one_in(int n) { return between(1, n) == 1; }

    template <typename T>
    const T& pick(const std::vector<T>& choices) {
        return choices[next() % choices.size()];
    }

    template <typename T>
    T weighted(const std::vector<std::pair<T, int>>& choices) {
        int sum = 0;
        for (const auto& choice : choices) sum += choice.second;
        std::int64_t at = between(0, sum - 1);
        for (const auto& choice : choices)
            if ((at -= choice.second) < 0) return choice.first;
        return choices.back().first;
    }

  private:
    std::uint64_t state_;
};

}  // namespace idem::chaos
