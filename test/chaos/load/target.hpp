// Where the server is. A failover moves it.
#pragma once

#include <mutex>
#include <string>

namespace idem::chaos {

class Target {
  public:
    // Connection strings without an application name; `pooled` may be empty.
    void set(const std::string& direct, const std::string& pooled) {
        const std::lock_guard<std::mutex> guard(mutex_);
        direct_ = direct;
        pooled_ = pooled;
    }
    std::string direct() const {
        const std::lock_guard<std::mutex> guard(mutex_);
        return direct_;
    }
    std::string pooled() const {
        const std::lock_guard<std::mutex> guard(mutex_);
        return pooled_.empty() ? direct_ : pooled_;
    }

  private:
    mutable std::mutex mutex_;
    std::string direct_;
    std::string pooled_;
};

}  // namespace idem::chaos
