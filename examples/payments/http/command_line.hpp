// Options of a command line: --name value, and --flag.
#pragma once

#include <map>
#include <set>
#include <string>

namespace http {

class CommandLine {
  public:
    // Throws std::invalid_argument for any other argument.
    CommandLine(int argc, char** argv, const std::set<std::string>& names,
                const std::set<std::string>& flags = {});

    std::string required(const std::string& name) const;
    std::string text(const std::string& name, const std::string& otherwise) const;
    int number(const std::string& name, int otherwise) const;  // at least 1
    bool has(const std::string& flag) const { return given_.count(flag) > 0; }

  private:
    std::map<std::string, std::string> given_;
};

}  // namespace http
