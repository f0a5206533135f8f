#include "command_line.hpp"

#include <cstdlib>
#include <stdexcept>

namespace http {

CommandLine::CommandLine(int argc, char** argv, const std::set<std::string>& names,
                         const std::set<std::string>& flags) {
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        if (flags.count(word) > 0) {
            given_[word] = "";
        } else if (names.count(word) > 0 && i + 1 < argc) {
            given_[word] = argv[++i];
        } else {
            throw std::invalid_argument("not understood: " + word);
        }
    }
}

std::string CommandLine::required(const std::string& name) const {
    if (!has(name)) throw std::invalid_argument("missing: " + name);
    return given_.at(name);
}

std::string CommandLine::text(const std::string& name, const std::string& otherwise) const {
    return has(name) ? given_.at(name) : otherwise;
}

int CommandLine::number(const std::string& name, int otherwise) const {
    if (!has(name)) return otherwise;
    const int value = std::atoi(given_.at(name).c_str());
    if (value < 1) throw std::invalid_argument("not a positive number: " + name);
    return value;
}

}  // namespace http
