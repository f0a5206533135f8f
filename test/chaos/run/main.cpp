// idem_chaos: see script/chaos --help.
#include <exception>
#include <iostream>
#include <limits>
#include <stdexcept>

#include "check/checker.hpp"
#include "faults/service_faults.hpp"
#include "run/report.hpp"
#include "run/run.hpp"

namespace {

using namespace idem::chaos;

Conclusion judge_file(const std::string& file) {
    const History history = load_history(file);
    const Judgement judgement = judge(history);
    print_report(history, {}, count_hits(history));
    if (!history.takeovers.empty()) print_losses(history);
    print_verdict(judgement);
    return conclusion_of(judgement);
}

// Injects faults into a service that others load and judge, until standard input ends, and prints
// how often.
Conclusion harm(const Options& options) {
    Target target;
    target.set("", "");  // libpq's variables know
    ServiceFaults faults(target, options.harm, options.seed, options.pause * kMillisecond);
    faults.start();
    std::cin.ignore(std::numeric_limits<std::streamsize>::max());
    faults.stop();
    for (const auto& [kind, count] : faults.fired()) std::cout << kind << ": " << count << "\n";
    return Conclusion::Sound;
}

Conclusion act(const Options& options) {
    if (!options.check.empty()) return judge_file(options.check);
    if (!options.harm.empty()) return harm(options);
    if (options.citus)
        return options.patroni.empty() ? run_scaleout(options) : run_node_failover(options);
    return options.patroni.empty() ? run(options) : run_failover(options);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return static_cast<int>(act(parse(argc, argv)));
    } catch (const std::exception& error) {
        std::cerr << "idem_chaos: " << error.what() << std::endl;
        return 2;
    }
}
