#include "load.hpp"

namespace idem::bench {

Load::Load(const Pace& pace, const WorkFactory& factory)
    : pace_(pace), clients_(static_cast<std::size_t>(pace.clients)) {
    int number = 0;
    for (Client& client : clients_)
        client.thread = std::thread(
            [this, &client, number = number++, factory] { live(client, number, factory); });
}

Load::~Load() {
    stopping_ = true;
    for (Client& client : clients_) client.thread.join();
}

void Load::live(Client& client, int number, const WorkFactory& factory) try {
    Connection connection("idem_bench client " + std::to_string(number));
    Work work = factory(connection);
    if (pace_.rate > 0)
        work_at_rate(client, number, work);
    else
        work_freely(client, work);
} catch (...) {
    std::lock_guard<std::mutex> guard(client.mutex);
    client.error = std::current_exception();
}

void Load::work_freely(Client& client, const Work& work) {
    while (!stopping_) {
        Clock::time_point start = Clock::now();
        work();
        Clock::duration latency = Clock::now() - start;
        std::lock_guard<std::mutex> guard(client.mutex);
        client.histogram.record(latency);
    }
}

// The clients' calls are spread evenly over a period.
void Load::work_at_rate(Client& client, int number, const Work& work) {
    auto period = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(pace_.clients / pace_.rate));
    Clock::time_point due = Clock::now() + period * number / pace_.clients;
    for (; !stopping_; due += period) {
        std::this_thread::sleep_until(due);
        work();
        Clock::duration latency = Clock::now() - due;
        std::lock_guard<std::mutex> guard(client.mutex);
        client.histogram.record(latency);
    }
}

Histogram Load::take() {
    Histogram taken;
    for (Client& client : clients_) {
        std::lock_guard<std::mutex> guard(client.mutex);
        if (client.error) std::rethrow_exception(client.error);
        taken.add(client.histogram);
        client.histogram = Histogram{};
    }
    return taken;
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

}  // namespace idem::bench
