#include "harness/load.hpp"

#include <algorithm>

namespace idem::bench {

Load::Load(const Pace& pace, const WorkFactory& factory, const Session& session)
    : pace_(pace), session_(session), workers_(static_cast<std::size_t>(pace.clients)) {
    int number = 0;
    for (Worker& worker : workers_)
        worker.thread = std::thread(
            [this, &worker, number = number++, factory] { live(worker, number, factory); });
}

Load::~Load() {
    stopping_ = true;
    for (Worker& worker : workers_) worker.thread.join();
}

void Load::live(Worker& worker, int number, const WorkFactory& factory) try {
    Client client("idem_bench client " + std::to_string(number), session_);
    Work work = factory(client);
    if (pace_.rate > 0)
        work_at_rate(worker, number, work);
    else
        work_freely(worker, work);
} catch (...) {
    std::lock_guard<std::mutex> guard(worker.mutex);
    worker.error = std::current_exception();
}

void Load::work_freely(Worker& worker, const Work& work) {
    while (!stopping_) {
        Clock::time_point start = Clock::now();
        work();
        Clock::duration latency = Clock::now() - start;
        std::lock_guard<std::mutex> guard(worker.mutex);
        worker.histogram.record(latency);
    }
}

// The clients' calls are spread evenly over a period.
void Load::work_at_rate(Worker& worker, int number, const Work& work) {
    auto period = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(pace_.clients / pace_.rate));
    Clock::time_point due = Clock::now() + period * number / pace_.clients;
    for (; !stopping_; due += period) {
        std::this_thread::sleep_until(due);
        work();
        Clock::duration latency = Clock::now() - due;
        std::lock_guard<std::mutex> guard(worker.mutex);
        worker.histogram.record(latency);
    }
}

Histogram Load::take() {
    Histogram taken;
    for (Worker& worker : workers_) {
        std::lock_guard<std::mutex> guard(worker.mutex);
        if (worker.error) std::rethrow_exception(worker.error);
        taken.add(worker.histogram);
        worker.histogram = Histogram{};
    }
    return taken;
}

Sample measure(Load& load, std::chrono::milliseconds warm_up, std::chrono::milliseconds slice) {
    std::this_thread::sleep_for(warm_up);
    (void)load.take();
    Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(slice);
    Histogram calls = load.take();
    return {calls, std::chrono::duration<double>(Clock::now() - start).count()};
}

std::vector<Histogram> every_second(Load& load, const std::function<bool()>& go_on) {
    std::vector<Histogram> seconds;
    (void)load.take();
    Clock::time_point next = Clock::now();
    do {
        next += std::chrono::seconds(1);
        std::this_thread::sleep_until(next);
        seconds.push_back(load.take());
    } while (go_on());
    return seconds;
}

std::vector<Histogram> for_seconds(Load& load, int seconds) {
    return every_second(load, [left = seconds]() mutable { return --left > 0; });
}

Histogram sum(const std::vector<Histogram>& seconds) {
    Histogram total;
    for (const Histogram& second : seconds) total.add(second);
    return total;
}

double busiest_over_last(const std::vector<Histogram>& seconds, int window) {
    auto width = static_cast<std::size_t>(window);
    std::uint64_t current = 0;
    std::uint64_t busiest = 0;
    for (std::size_t i = 0; i < seconds.size(); i++) {
        current += seconds[i].count();
        if (i >= width) current -= seconds[i - width].count();
        busiest = std::max(busiest, current);
    }
    return current > 0 ? static_cast<double>(busiest) / static_cast<double>(current) : 1;
}

}  // namespace idem::bench
