// What goes over the network: a request, and what became of one attempt to have it answered.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace payments::client {

// By names in small letters. Fields that occur twice are joined by a comma, as HTTP has it.
using Headers = std::map<std::string, std::string>;

struct Request {
    std::string method;
    std::string path;
    // Fields beside those of the body. The value of Idempotency-Key is sent as it stands here.
    Headers headers;
    std::string body;
    std::string content_type = "application/json";
};

struct Answer {
    int status = 0;
    Headers headers;
    std::string body;
};

// Why there is no answer. Only after `Unreached` is it certain that the server did nothing.
enum class Silence { Unreached, Lost };

struct Attempt {
    std::optional<Answer> answer;
    Silence silence = Silence::Lost;  // without an answer
};

}  // namespace payments::client
