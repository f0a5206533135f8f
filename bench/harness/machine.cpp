#include "harness/machine.hpp"

#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "harness/redis.hpp"

namespace idem::bench {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

double memory_gib() {
    return static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<double>(sysconf(_SC_PAGE_SIZE)) / kGiB;
}

// What else runs: a busy machine makes noisy figures.
double load_average() {
    double average = 0;
    return getloadavg(&average, 1) == 1 ? average : -1;
}

// What differs from the server's defaults, without what only names places.
Json settings(Connection& admin) {
    Json settings = Json::object();
    for (const Row& row :
         admin.query("SELECT name, current_setting(name) FROM pg_settings"
                     " WHERE source IN ('configuration file', 'command line')"
                     " AND name !~ "
                     "'(directory|directories|file|^port|^lc_|log_|timezone|TimeZone|DateStyle)'"
                     " ORDER BY name"))
        settings[row.at(0)] = row.at(1);
    for (const char* name : {"fsync", "synchronous_commit", "wal_sync_method", "max_wal_size"})
        settings[name] = admin.text(std::string("SHOW ") + name);
    return settings;
}

}  // namespace

Json describe_machine(Connection& admin) {
    return {{"cores", std::thread::hardware_concurrency()},
            {"memory_gib", memory_gib()},
            {"load_average_at_start", load_average()},
            {"server", admin.text("SELECT version()")},
            {"settings", settings(admin)},
            {"redis", Redis().version()}};
}

}  // namespace idem::bench
