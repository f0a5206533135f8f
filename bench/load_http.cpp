// idem_load: POST requests over connections that stay open. It prints one JSON object: requests,
// failed ones, seconds, and quantiles of the time to the answer.
//
//   idem_load PORT PATH CONNECTIONS SECONDS PREFIX KEYS
//
// PREFIX begins the keys and names the run. KEYS: `new` sends each key once; a number sends the
// keys 1 to that again and again; `none` sends no key.

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

struct Run {
    int port;
    std::string path;
    int connections;
    double seconds;
    std::string prefix;
    std::string keys;
};

// The results of one connection.
struct Tally {
    std::vector<double> millis;
    long failed = 0;
};

// Which request a connection sends next.
class Numbers {
  public:
    explicit Numbers(const std::string& keys) : last_(std::strtol(keys.c_str(), nullptr, 10)) {}
    long next() {
        const long number = ++sent_;
        return last_ > 0 ? (number - 1) % last_ + 1 : number;
    }

  private:
    const long last_;
    std::atomic<long> sent_{0};
};

httplib::Headers headers_for(const Run& run, long number) {
    httplib::Headers headers = {{"Authorization", "Bearer bench"}};
    if (run.keys != "none") {
        headers.emplace("Idempotency-Key", '"' + run.prefix + '-' + std::to_string(number) + '"');
    }
    return headers;
}

Tally send_until(const Run& run, Clock::time_point end, Numbers* numbers) {
    httplib::Client client("127.0.0.1", run.port);
    client.set_keep_alive(true);
    client.set_tcp_nodelay(true);
    Tally tally;
    while (Clock::now() < end) {
        const long number = numbers->next();
        const std::string body = "{\"effect\":\"bench\",\"order\":" + std::to_string(number) + "}";
        const auto start = Clock::now();
        const auto answer =
            client.Post(run.path, headers_for(run, number), body, "application/json");
        const std::chrono::duration<double, std::milli> took = Clock::now() - start;
        if (answer && answer->status == 201) {
            tally.millis.push_back(took.count());
        } else {
            tally.failed++;
        }
    }
    return tally;
}

double quantile(const std::vector<double>& sorted, double share) {
    if (sorted.empty()) return 0;
    const auto place =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted[std::max<std::size_t>(place, 1) - 1];
}

void report(const std::vector<Tally>& tallies, double seconds) {
    std::vector<double> millis;
    long failed = 0;
    for (const Tally& tally : tallies) {
        millis.insert(millis.end(), tally.millis.begin(), tally.millis.end());
        failed += tally.failed;
    }
    std::sort(millis.begin(), millis.end());
    std::printf(
        "{\"requests\": %zu, \"failed\": %ld, \"seconds\": %.3f, \"p50\": %.3f, \"p99\": %.3f}\n",
        millis.size(), failed, seconds, quantile(millis, 0.5), quantile(millis, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: idem_load PORT PATH CONNECTIONS SECONDS PREFIX KEYS\n");
        return 2;
    }
    const Run run{std::atoi(argv[1]), argv[2], std::atoi(argv[3]),
                  std::atof(argv[4]), argv[5], argv[6]};
    Numbers numbers(run.keys);
    const auto start = Clock::now();
    const auto end = start + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(run.seconds));
    std::vector<Tally> tallies(static_cast<std::size_t>(run.connections));
    std::vector<std::thread> threads;
    for (Tally& tally : tallies) {
        threads.emplace_back([&] { tally = send_until(run, end, &numbers); });
    }
    for (std::thread& thread : threads) thread.join();
    report(tallies, std::chrono::duration<double>(Clock::now() - start).count());
}
