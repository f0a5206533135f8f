// Threads for one kind of work: slow work waits there and delays no other kind.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace http {

class Lane {
  public:
    using Job = std::function<void()>;  // must not throw

    explicit Lane(std::size_t threads) {
        for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    }

    // Ends after the accepted jobs are done.
    ~Lane() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ending_ = true;
        }
        changed_.notify_all();
        for (auto& thread : threads_) thread.join();
    }
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // False if too many jobs wait already: the client should come again.
    bool take(Job job) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (waiting_.size() >= kLongestQueuePerThread * threads_.size()) return false;
            waiting_.push_back(std::move(job));
        }
        changed_.notify_one();
        return true;
    }

  private:
    static constexpr std::size_t kLongestQueuePerThread = 16;

    void run() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
            if (waiting_.empty()) return;
            const Job job = std::move(waiting_.front());
            waiting_.pop_front();
            lock.unlock();
            job();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> waiting_;
    bool ending_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace http
