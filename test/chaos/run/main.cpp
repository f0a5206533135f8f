// idem_chaos: see script/chaos --help.
#include <exception>
#include <iostream>
#include <stdexcept>

#include "check/checker.hpp"
#include "run/report.hpp"
#include "run/run.hpp"

namespace {

using namespace idem::chaos;

Conclusion judge_file(const std::string& file) {
    const History history = load_history(file);
    const Judgement judgement = judge(history);
    print_report(history, {}, count_hits(history));
    print_verdict(judgement);
    return judgement.violations.empty() ? Conclusion::Sound : Conclusion::Broken;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const Options options = parse(argc, argv);
        return static_cast<int>(options.check.empty() ? run(options) : judge_file(options.check));
    } catch (const std::exception& error) {
        std::cerr << "idem_chaos: " << error.what() << std::endl;
        return 2;
    }
}
