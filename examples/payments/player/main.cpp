// Plays requests.jsonl over HTTP against two processes of the service while these are killed, then
// judges.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <pqxx/pqxx>
#include <stdexcept>
#include <string>
#include <thread>

#include "board.hpp"
#include "crew.hpp"
#include "havoc.hpp"
#include "input.hpp"
#include "options.hpp"
#include "report.hpp"
#include "services.hpp"
#include "verdict.hpp"

namespace {

using namespace payments;

constexpr int kHeld = 0, kFailed = 1, kError = 2, kInterrupted = 130;

volatile sig_atomic_t interrupted = 0;

void catch_interrupts() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = 1; };
    action.sa_flags = SA_RESTART;
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
}

// A file of plain SQL, as one query: all of it or nothing.
void load_schema(const Options& options) {
    if (options.schema.empty()) return;
    std::ifstream in(options.schema);
    if (!in) throw std::runtime_error("cannot open " + options.schema);
    const std::string sql{std::istreambuf_iterator<char>(in), {}};
    pqxx::connection connection(options.database);
    pqxx::nontransaction(connection).exec(sql);
}

// Charges of an earlier run would be taken for this one's.
void require_fresh_database(const std::string& database) {
    pqxx::connection connection(database);
    pqxx::nontransaction tx(connection);
    const auto used = tx.exec(
        "SELECT EXISTS (SELECT FROM payments.charge)"
        " OR EXISTS (SELECT FROM idempotency.records)");
    if (used[0][0].as<bool>()) {
        throw std::runtime_error("the database has been played in: load schema.sql into a new one");
    }
}

void pause() {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// False if a worker failed.
bool play(const Options& options, Services& services, const std::vector<Request>& requests,
          Board& board) {
    Havoc havoc(options, services, board.common().blows);
    Crew crew(options, services.urls(), requests, board);
    Progress progress;
    while (crew.tend()) {
        if (interrupted) board.common().stop = true;
        services.check_alive();
        havoc.tend();
        progress.show(board);
        pause();
    }
    progress.finish(board);
    return !crew.failed();
}

int verdict(const Options& options, const std::vector<Request>& requests, const Board& board) {
    const bool held = judge(std::cout, options.database, requests, board);
    std::cout << (held ? "\nThe verdict: it held." : "\nThe verdict: IT DID NOT HOLD.")
              << std::endl;
    return held ? kHeld : kFailed;
}

// Until somebody presses Ctrl-C.
void keep_running(Services& services) {
    print_curl_lines(std::cout, services.urls(), services.gateway_url());
    while (!interrupted) {
        services.check_alive();
        pause();
    }
}

int run(const Options& options) {
    const auto requests = read_requests(options.input);
    load_schema(options);
    require_fresh_database(options.database);
    Services services(options);
    Board board(requests.size(), static_cast<std::size_t>(options.workers));
    std::cout << requests.size() << " requests, " << options.workers
              << " client processes, 2 service processes, --seed=" << options.seed
              << (options.without_idempotency ? ", SABOTAGED: no idempotency" : "") << std::endl;
    const bool completed = play(options, services, requests, board);
    print_table(std::cout, board);
    if (interrupted) {
        std::cout << "interrupted: no verdict" << std::endl;
        return kInterrupted;
    }
    if (!completed) return kError;
    const int status = verdict(options, requests, board);
    if (options.keep) keep_running(services);
    services.stop();
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    catch_interrupts();
    try {
        return run(parse_options(argc, argv));
    } catch (const std::exception& e) {
        std::cerr << "payments_demo: " << e.what() << std::endl;
        return kError;
    }
}
