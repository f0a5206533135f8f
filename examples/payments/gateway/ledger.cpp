#include "ledger.hpp"

namespace gateway {
namespace {

constexpr char kDeclinedCard[] = "tok_declined";

bool is_declined(const nlohmann::json& order) {
    const auto card = order.find("card");
    return card != order.end() && *card == kDeclinedCard;
}

}  // namespace

// One lock around look-up and charge: two requests with one key cannot both find no charge.
Verdict Ledger::charge(const std::string& key, const nlohmann::json& order) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto delay = mood_.delay;
    if (take(mood_.fail_next)) return {Verdict::Unavailable, nullptr, delay};
    const auto known = key.empty() ? by_key_.end() : by_key_.find(key);
    if (known != by_key_.end() && orders_[known->second] != order) {
        return {Verdict::OtherBody, nullptr, delay};
    }
    if (is_declined(order)) return {Verdict::Declined, nullptr, delay};
    const auto charge = known != by_key_.end() ? charges_[known->second] : new_charge(key, order);
    const bool drop = take(mood_.drop_next);
    return {Verdict::Charged, charge, delay, drop, take(mood_.hold_next) ? releases_ + 1 : 0};
}

nlohmann::json Ledger::new_charge(const std::string& key, const nlohmann::json& order) {
    nlohmann::json charge = order;
    charge["id"] = "gch_" + std::to_string(charges_.size() + 1);
    charge["key"] = key;
    if (!key.empty()) by_key_[key] = charges_.size();
    charges_.push_back(charge);
    orders_.push_back(order);
    return charge;
}

void Ledger::set(const Mood& mood) {
    const std::lock_guard<std::mutex> lock(mutex_);
    mood_ = mood;
}

void Ledger::release() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++releases_;
    released_.notify_all();
}

void Ledger::await(std::uint64_t release) {
    std::unique_lock<std::mutex> lock(mutex_);
    released_.wait(lock, [&] { return releases_ >= release; });
}

nlohmann::json Ledger::charges() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return charges_;
}

void Ledger::clear() {
    release();
    const std::lock_guard<std::mutex> lock(mutex_);
    charges_.clear();
    orders_.clear();
    by_key_.clear();
    mood_ = {};
}

}  // namespace gateway
