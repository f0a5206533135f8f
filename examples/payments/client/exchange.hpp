// A request, and the result of one attempt to have it answered.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace payments::client {

// By names in lower case. Fields that occur twice are joined by a comma, as in HTTP.
using Headers = std::map<std::string, std::string>;

struct Request {
    std::string method;
    std::string path;
    // Fields beside those of the body. The value of Idempotency-Key is sent unchanged.
    Headers headers;
    std::string body;
    std::string content_type = "application/json";
};

struct Answer {
    int status = 0;
    Headers headers;
    std::string body;
};

// The reason of a missing answer. Only after `Unreached` is it certain that the server did nothing.
enum class Silence { Unreached, Lost };

struct Attempt {
    std::optional<Answer> answer;
    Silence silence = Silence::Lost;  // if there is no answer
};

}  // namespace payments::client
