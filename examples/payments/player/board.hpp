// What the processes of the demo share: one piece of memory, made before the first fork.
//
// It outlives a worker that is killed, so that its successor goes on with the same line.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace payments {

// An array of T in memory that forked processes share.
template <typename T>
class SharedArray {
  public:
    explicit SharedArray(std::size_t count);
    ~SharedArray();
    SharedArray(const SharedArray&) = delete;
    SharedArray& operator=(const SharedArray&) = delete;
    T& operator[](std::size_t i) { return items_[i]; }
    const T& operator[](std::size_t i) const { return items_[i]; }
    std::size_t size() const { return count_; }

  private:
    std::size_t count_;
    T* items_;
};

// A text without a pointer in it, because another process could not follow one.
template <std::size_t Capacity>
class FixedText {
  public:
    void assign(std::string_view text) {
        if (text.size() > Capacity) throw std::length_error("answer too long for the board");
        text.copy(bytes_.data(), text.size());
        size_ = text.size();
    }
    std::string_view view() const { return {bytes_.data(), size_}; }

  private:
    std::size_t size_ = 0;
    std::array<char, Capacity> bytes_{};
};

struct Answer {
    int status = 0;
    bool replayed = false;    // carried `Idempotent-Replayed: true`
    FixedText<1024> headers;  // those that a repeat must carry too
    FixedText<1024> body;     // byte for byte
};

struct LineState {
    std::atomic<bool> arrived{false};   // a worker is about to send it
    std::atomic<bool> struck{false};    // its fault has happened; once is enough
    std::atomic<bool> answered{false};  // `answer` is complete
    Answer answer;
};

// One worker's place, taken over by its successor.
struct Desk {
    std::atomic<int> line{0};  // the line in hand; 0: none yet
};

// Each request sent ends as exactly one of these.
struct Endings {
    std::atomic<int> executed{0};  // answered 201, for the first time
    std::atomic<int> replayed{0};
    std::atomic<int> in_progress{0};
    std::atomic<int> mismatched{0};
    std::atomic<int> bad_keys{0};
    std::atomic<int> failed{0};     // answered 5xx: the database hung up on the service
    std::atomic<int> strange{0};    // answered what nobody expects
    std::atomic<int> unheard{0};    // executed; the client hung up before it read the answer
    std::atomic<int> crashed{0};    // executed; the client was killed before it read the answer
    std::atomic<int> impatient{0};  // the client hung up while the service was at work
    std::atomic<int> lost{0};       // the service was killed while the client was waiting
    std::atomic<int> unreached{0};  // the service was not there
};

// What was done to the service while claims were open.
struct Blows {
    std::atomic<int> services_killed{0};
    std::atomic<int> backends_terminated{0};
    std::atomic<int> died_with_service{0};  // open claims, known to have been rolled back
    std::atomic<int> died_with_backend{0};
};

struct Common {
    std::atomic<int> next_line{1};
    std::atomic<int> sent{0};
    std::atomic<int> answered{0};
    std::atomic<bool> stop{false};
    Endings endings;
    Blows blows;
};

class Board {
  public:
    Board(std::size_t lines, std::size_t workers) : common_(1), desks_(workers), lines_(lines) {}
    Common& common() { return common_[0]; }
    const Common& common() const { return common_[0]; }
    Desk& desk(std::size_t worker) { return desks_[worker]; }
    LineState& line(int n) { return lines_[static_cast<std::size_t>(n) - 1]; }
    const LineState& line(int n) const { return lines_[static_cast<std::size_t>(n) - 1]; }
    int lines() const { return static_cast<int>(lines_.size()); }
    std::size_t workers() const { return desks_.size(); }

  private:
    SharedArray<Common> common_;
    SharedArray<Desk> desks_;
    SharedArray<LineState> lines_;
};

}  // namespace payments
