#include "run/report.hpp"

#include <algorithm>
#include <iostream>

#include "check/branches.hpp"

namespace idem::chaos {
namespace {

constexpr int kShown = 4;  // violations of each invariant

bool is_fault(const Call& call) {
    static const std::set<std::string> kStates = {"57014", "57P01", "57P02", "57P03",
                                                  "53100", "53200", "53300"};
    if (call.result == Result::Info) return true;
    return call.result == Result::Error && kStates.count(call.sqlstate) > 0;
}

std::string counted(const std::map<std::string, int>& counts) {
    std::string text;
    for (const auto& [name, count] : counts)
        text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
    return text.empty() ? "none" : text;
}

std::size_t count_reads(const std::vector<Read>& reads) {
    return static_cast<std::size_t>(std::count_if(
        reads.begin(), reads.end(), [](const Read& read) { return read.transaction != 0; }));
}

}  // namespace

Hits count_hits(const History& history) {
    Hits hits;
    std::set<std::int64_t> open;
    for (const Call& call : history.calls) {
        if (open.count(call.transaction) > 0 && is_fault(call)) {
            ++hits.by_step[name_of(call.function)];
            ++hits.total;
            open.erase(call.transaction);
        }
        if (call.result == Result::Ok && call.answer.outcome == "execute" && !call.alone)
            open.insert(call.transaction);
    }
    return hits;
}

void print_report(const History& history, const std::map<std::string, int>& fired,
                  const Hits& hits) {
    std::map<std::string, int> functions;
    std::map<std::string, int> outcomes;
    std::map<std::string, int> errors;
    std::size_t info = 0;
    std::size_t given_up = 0;
    for (const Call& call : history.calls) {
        ++functions[name_of(call.function)];
        if (!call.answer.outcome.empty() && call.function == Function::Begin)
            ++outcomes[call.answer.outcome];
        if (call.result == Result::Error) ++errors[call.sqlstate];
        info += call.result == Result::Info;
        given_up += call.answer.error == kGivenUp;
    }
    std::cout << "  calls: " << history.calls.size() << " (" << counted(functions) << ")\n"
              << "  outcomes of begin: " << counted(outcomes) << "\n"
              << "  errors: " << counted(errors) << "\n"
              << "  unknown: " << info << ", "
              << (history.calls.empty() ? 0 : 1000 * info / history.calls.size()) / 10.0
              << " % of the calls\n"
              << "  told of claims that were given up: " << given_up << "\n"
              << "  effects: " << history.effects.size() << "\n"
              << "  work: " << history.parts.size() << " parts, " << history.looks.size()
              << " looks, " << count_reads(history.reads) << " reads, " << history.foreign.size()
              << " rows abroad\n"
              << "  faults: " << counted(fired) << "\n"
              << "  open claims hit: " << hits.total << " (during " << counted(hits.by_step)
              << ")\n";
}

void print_nodes(const History& history) {
    std::map<int, std::map<std::string, int>> nodes;
    for (const Call& call : history.calls) {
        auto& counts = nodes[call.node];
        ++counts["calls"];
        if (!call.answer.outcome.empty() && call.function == Function::Begin)
            ++counts[call.answer.outcome];
    }
    for (const auto& [node, counts] : nodes)
        std::cout << "  node " << node << ": " << counted(counts) << "\n";
}

void print_losses(const History& history) {
    const Losses losses = count_losses(history);
    std::cout << "  effects acknowledged: " << losses.acknowledged
              << ", lost with their records: " << losses.acknowledged_and_lost << " ("
              << losses.of_the_past << " by a primary of the past)\n"
              << "  committed with the warning: " << losses.warned
              << ", lost: " << losses.warned_and_lost << "\n"
              << "  not answered: " << losses.unanswered << ", lost: " << losses.unanswered_and_lost
              << "\n";
}

void print_verdict(const Judgement& judgement) {
    std::cout << "  checked: " << judgement.keys << " keys, " << judgement.steps << " steps\n";
    std::map<int, std::size_t> counts;
    for (const Violation& violation : judgement.violations) ++counts[violation.invariant];
    for (const auto& [invariant, count] : counts)
        std::cout << "  violated: invariant " << invariant << ", " << count << " times\n";
    std::map<int, int> shown;
    for (const Violation& violation : judgement.violations)
        if (++shown[violation.invariant] <= kShown)
            std::cout << "    " << violation.invariant << ": " << violation.what << "\n";
    if (judgement.undecided.empty()) return;
    std::cout << "  UNDECIDED: " << judgement.undecided.size() << " keys\n";
    for (const std::string& what : judgement.undecided)
        std::cout << "    undecided: " << what << "\n";
}

Conclusion conclusion_of(const Judgement& judgement) {
    if (!judgement.violations.empty()) return Conclusion::Broken;
    return judgement.undecided.empty() ? Conclusion::Sound : Conclusion::Undecided;
}

Conclusion conclude_run(const Judgement& judgement, const Hits& hits, const History& history,
                        const StepsBack& clock, const Options& options, const std::string& name) {
    Conclusion conclusion = conclusion_of(judgement);
    if (conclusion != Conclusion::Sound) {
        if (clock.times() > 0) {
            conclusion = Conclusion::WrongClock;
            std::cout << "  does not count: this machine's clock went back " << clock.times()
                      << " times, by up to " << clock.farthest() << " us" << std::endl;
        }
        if (options.keep.empty()) return conclusion;
        const std::string file =
            options.keep + "/" + name + "-" + std::to_string(options.seed) + ".jsonl";
        save(history, file);
        std::cout << "  history: " << file << std::endl;
        return conclusion;
    }
    if (hits.total > 0) return Conclusion::Sound;
    std::cout << "  does not count: no fault hit an open claim" << std::endl;
    return Conclusion::DoesNotCount;
}

}  // namespace idem::chaos
