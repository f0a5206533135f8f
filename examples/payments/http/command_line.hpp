// Options of a command line: --name value, and --flag.
#pragma once

#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <string>

namespace http {

class CommandLine {
  public:
    // Throws std::invalid_argument for any other argument.
    CommandLine(int argc, char** argv, const std::set<std::string>& names,
                const std::set<std::string>& flags = {}) {
        for (int i = 1; i < argc; ++i) {
            const std::string word = argv[i];
            const bool named = names.count(word) > 0 && i + 1 < argc;
            if (!named && flags.count(word) == 0) {
                throw std::invalid_argument("not understood: " + word);
            }
            given_[word] = named ? argv[++i] : "";
        }
    }

    bool has(const std::string& name) const { return given_.count(name) > 0; }

    std::string required(const std::string& name) const {
        if (!has(name)) throw std::invalid_argument("missing: " + name);
        return given_.at(name);
    }

    int number(const std::string& name, int otherwise) const {
        const int value = has(name) ? std::atoi(given_.at(name).c_str()) : otherwise;
        if (value < 1) throw std::invalid_argument("not a positive number: " + name);
        return value;
    }

  private:
    std::map<std::string, std::string> given_;
};

}  // namespace http
