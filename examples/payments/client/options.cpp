#include "options.hpp"

#include <getopt.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <stdexcept>

#include "key.hpp"

namespace payments::client {
namespace {

constexpr char kUsage[] =
    R"(Sends a request and has it answered, with the same key on every retry.

Usage: payments_client [option]... METHOD URL
  --key=KEY            the Idempotency-Key; `new` makes one (default: none is sent)
  --tenant=NAME        who asks: sends Authorization: Bearer sk_NAME
  --data=JSON          the body
  --content-type=TYPE  of the body (default: application/json)
  --attempts=N         in all (default: 8)
  --base=MS            longest first pause; it doubles from attempt to attempt (default: 100)
  --cap=MS             longest pause (default: 10000); the server's Retry-After comes on top
  --patience=MS        longest wait for one answer (default: 30000)
Prints status, headers and body of the answer, and each retry on stderr.
Exit status: 0 for an answer below 400, 1 for any other, 2 without an answer or on a wrong usage.
)";

const option kOptions[] = {
    {"key", required_argument, nullptr, 'k'},
    {"tenant", required_argument, nullptr, 't'},
    {"data", required_argument, nullptr, 'd'},
    {"content-type", required_argument, nullptr, 'y'},
    {"attempts", required_argument, nullptr, 'n'},
    {"base", required_argument, nullptr, 'b'},
    {"cap", required_argument, nullptr, 'c'},
    {"patience", required_argument, nullptr, 'p'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0},
};

int number_from(const std::string& text, int least) {
    std::size_t used = 0;
    const int value = std::stoi(text, &used);
    if (used != text.size() || value < least) throw std::invalid_argument(text);
    return value;
}

void apply(Options& options, int option, const std::string& value) {
    switch (option) {
        case 'k':
            options.request.headers["idempotency-key"] =
                key_field(value == "new" ? new_key() : value);
            break;
        case 't':
            options.request.headers["authorization"] = "Bearer sk_" + value;
            break;
        case 'd':
            options.request.body = value;
            break;
        case 'y':
            options.request.content_type = value;
            break;
        case 'n':
            options.rules.attempts = number_from(value, 1);
            break;
        case 'b':
            options.rules.base = Milliseconds(number_from(value, 0));
            break;
        case 'c':
            options.rules.cap = Milliseconds(number_from(value, 0));
            break;
        case 'p':
            options.patience = Milliseconds(number_from(value, 1));
            break;
        case 'h':
            std::cout << kUsage;
            std::exit(0);
        default:
            throw std::invalid_argument("see --help");
    }
}

void take_url(Options& options, const std::string& url) {
    constexpr char kScheme[] = "http://";
    const auto host = sizeof kScheme - 1;
    if (url.compare(0, host, kScheme) != 0) throw std::invalid_argument("not an http:// URL");
    const auto path = std::min(url.find('/', host), url.size());
    options.server = url.substr(0, path);
    options.request.path = path < url.size() ? url.substr(path) : "/";
}

}  // namespace

Options parse_options(int argc, char** argv) {
    Options options;
    for (int option; (option = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
        try {
            apply(options, option, optarg ? optarg : "");
        } catch (const std::logic_error& e) {  // std::stoi and number_from throw it, too
            throw std::invalid_argument(std::string("invalid option value: ") + e.what());
        }
    }
    if (argc - optind != 2) throw std::invalid_argument("METHOD and URL are needed, see --help");
    options.request.method = argv[optind];
    take_url(options, argv[optind + 1]);
    return options;
}

}  // namespace payments::client
