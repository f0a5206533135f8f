#include "harness/redis.hpp"

#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace idem::bench {
namespace {

redisContext* connect() {
    const char* socket = std::getenv("REDIS_SOCKET");
    if (socket == nullptr) throw std::runtime_error("REDIS_SOCKET names no Redis server");
    return redisConnectUnix(socket);
}

std::string text_of(const void* reply) {
    const auto* answer = static_cast<const redisReply*>(reply);
    return answer->str == nullptr ? "" : std::string(answer->str, answer->len);
}

}  // namespace

Redis::Redis() : handle_(connect(), redisFree) {
    require(handle_ != nullptr && handle_->err == 0);
}

bool Redis::set_if_absent(const std::string& key, const std::string& value, int lifetime_ms) {
    send_set_if_absent(key, value, lifetime_ms);
    return receive_was_absent();
}

void Redis::set(const std::string& key, const std::string& value, int lifetime_ms) {
    (void)ask({"SET", key, value, "PX", std::to_string(lifetime_ms)});
}

std::string Redis::get(const std::string& key) {
    return text_of(ask({"GET", key}).get());
}

std::string Redis::claim_and_get(const std::string& key, const std::string& value,
                                 int lifetime_ms) {
    append({"SET", key, value, "NX", "PX", std::to_string(lifetime_ms)});
    append({"GET", key});
    flush();
    (void)receive();
    return text_of(receive().get());
}

void Redis::forget_all() {
    (void)ask({"FLUSHALL"});
}

std::string Redis::version() {
    constexpr char kField[] = "redis_version:";
    std::string info = text_of(ask({"INFO", "server"}).get());
    std::size_t start = info.find(kField) + sizeof(kField) - 1;
    return info.substr(start, info.find_first_of("\r\n", start) - start);
}

void Redis::send_set_if_absent(const std::string& key, const std::string& value, int lifetime_ms) {
    append({"SET", key, value, "NX", "PX", std::to_string(lifetime_ms)});
    flush();
}

// Redis says OK, or nil if the key was there.
bool Redis::receive_was_absent() {
    return text_of(receive().get()) == "OK";
}

void Redis::append(std::initializer_list<std::string> command) {
    std::vector<const char*> words;
    std::vector<std::size_t> lengths;
    for (const std::string& word : command) {
        words.push_back(word.data());
        lengths.push_back(word.size());
    }
    require(redisAppendCommandArgv(handle_.get(), static_cast<int>(words.size()), words.data(),
                                   lengths.data()) == REDIS_OK);
}

void Redis::flush() {
    for (int done = 0; done == 0;) require(redisBufferWrite(handle_.get(), &done) == REDIS_OK);
    round_trips_++;
}

Redis::Reply Redis::receive() {
    void* reply = nullptr;
    require(redisGetReply(handle_.get(), &reply) == REDIS_OK);
    Reply owned(reply, freeReplyObject);
    if (static_cast<redisReply*>(reply)->type == REDIS_REPLY_ERROR)
        throw std::runtime_error("Redis: " + text_of(reply));
    return owned;
}

Redis::Reply Redis::ask(std::initializer_list<std::string> command) {
    append(command);
    flush();
    return receive();
}

void Redis::require(bool ok) const {
    if (!ok)
        throw std::runtime_error("Redis: " +
                                 std::string(handle_ == nullptr ? "no memory" : handle_->errstr));
}

}  // namespace idem::bench
