#include "load/plan.hpp"

#include <algorithm>

namespace idem::chaos {
namespace {

constexpr Micros kHour = 3600 * kSecond;

// Names that only a careless comparison confuses.
const char* const kNames[] = {"order", "Order", "ORDER", "\u00f6rder", "o\u0308rder", "order "};
const char* const kPrincipals[] = {"acme", "Acme", ""};

std::string tenant(std::int64_t number) {
    return "tenant " + std::to_string(number);
}

Key cold_key(const Mix& mix, int session, std::int64_t turn) {
    const std::string principal = mix.tenants > 0 ? tenant(turn % mix.tenants) : "acme";
    return {"keep", principal, "cold-" + std::to_string(session) + "-" + std::to_string(turn)};
}

std::vector<Key> draw_keys(const Mix& mix, Random& random, int session, std::int64_t turn) {
    if (mix.cold_every > 0 && random.one_in(mix.cold_every)) return {cold_key(mix, session, turn)};
    const std::vector<Key> hot = hot_keys(mix);
    const auto any = [&] { return random.pick(hot); };
    std::vector<Key> keys{any()};
    if (random.one_in(12)) {
        const Key other = any();
        if (!(other == keys[0])) keys.push_back(other);
    }
    return keys;
}

std::int64_t draw_size(const Mix& mix, Random& random) {
    switch (random.between(0, 19)) {
        case 0:
        case 1:
            return 0;
        case 2:
            return mix.body_limit;
        case 3:
            return mix.body_limit + 1;
        default:
            return random.spread(40, 8000);
    }
}

void draw_shape(const Mix& mix, Random& random, Plan* plan) {
    plan->shape = random.weighted<Shape>({{Shape::Transactional, 36},
                                          {Shape::Leased, 22},
                                          {Shape::Once, 8},
                                          {Shape::Execute, 10},
                                          {Shape::Look, 14},
                                          {Shape::Operate, mix.operators ? 4 : 0},
                                          {Shape::Stale, 6}});
    plan->ending = random.weighted<Ending>({{Ending::Complete, 60},
                                            {Ending::Fail, 8},
                                            {Ending::FailRetryable, 14},
                                            {Ending::Unknown, 4},
                                            {Ending::Release, 8},
                                            {Ending::LeaveOpen, 10}});
    plan->finish = random.weighted<Finish>({{Finish::Commit, 70},
                                            {Finish::Rollback, 12},
                                            {Finish::PrepareCommit, mix.prepare ? 6 : 0},
                                            {Finish::PrepareRollback, mix.prepare ? 3 : 0},
                                            {Finish::HangUp, mix.harm ? 9 : 0}});
    plan->action = random.weighted<const char*>(
        {{"forget", 6}, {"erase", 2}, {"release", 3}, {"reopen", 3}, {"complete", 2}, {"fail", 2}});
}

void draw_transaction(const Mix& mix, Random& random, Plan* plan) {
    plan->isolation = random.weighted<const char*>(
        {{"READ COMMITTED", 3}, {"REPEATABLE READ", 2}, {"SERIALIZABLE", 2}});
    plan->old_snapshot = random.one_in(3);
    plan->snapshot_age = random.spread(100, 100 * kMillisecond);
    plan->undo_begin = mix.savepoints && random.one_in(10);
    plan->undo_end = mix.savepoints && random.one_in(8);
    plan->begin_alone = random.one_in(2);
    plan->extend = random.one_in(8);
    plan->checkpoint = random.one_in(8);
    plan->repeat_end = random.one_in(5);
    plan->fails = random.one_in(6);
    plan->learns = !random.one_in(4);
    const bool hurried = random.one_in(12);
    plan->statement_timeout = hurried && mix.harm ? static_cast<int>(random.between(1, 30)) : 0;
}

void draw_terms(const Mix& mix, Random& random, Plan* plan) {
    plan->fingerprint = random.one_in(8) ? 2 : static_cast<int>(random.between(0, 1));
    plan->lease = random.spread(kMillisecond, mix.longest_lease);
    plan->wait = random.one_in(4) ? random.spread(kMillisecond, 200 * kMillisecond) : 0;
    plan->retry_after = random.one_in(2) ? random.spread(kMillisecond, 100 * kMillisecond) : -1;
    plan->pause = random.one_in(3) ? random.spread(100, 20 * kMillisecond) : 0;
    // A holder that sleeps past its lease, and returns.
    if (random.one_in(8)) {
        plan->lease = random.spread(kMillisecond, 20 * kMillisecond);
        plan->pause = plan->lease + random.spread(kMillisecond, 50 * kMillisecond);
    }
    plan->body_size = draw_size(mix, random);
    plan->status_code = static_cast<int>(random.between(200, 599));
}

// The work of a transaction, and its dependencies. All sessions share few groups at a time, and
// leave them together, so that there is little to read.
void draw_work(const Mix& mix, Random& random, std::int64_t turn, Plan* plan) {
    constexpr std::int64_t kTurnsInGroup = 32;
    plan->looks = random.one_in(2);
    plan->one_statement = random.one_in(2);
    plan->works_alone = random.one_in(4);
    plan->hold = random.one_in(4);
    plan->knocks = random.one_in(10);
    const bool serializable = plan->isolation == std::string("SERIALIZABLE");
    plan->sums = random.one_in(2) && serializable && mix.sums;
    plan->group = static_cast<int>((turn / kTurnsInGroup * 2 + random.between(0, 1)) % kGroups);
    plan->slot = static_cast<int>(random.between(0, kSlots - 1));
    plan->reset = random.weighted<Reset>(
        {{Reset::Nothing, 6}, {Reset::UnlockAll, 1}, {Reset::DiscardAll, 1}});
    plan->foreign = mix.foreign && random.one_in(8);
    const bool prepares =
        plan->finish == Finish::PrepareCommit || plan->finish == Finish::PrepareRollback;
    plan->hold = plan->hold && !prepares;                          // no session holds it then
    if (plan->foreign && prepares) plan->finish = Finish::Commit;  // postgres_fdw cannot
}

// Few keys that pass from attempt to attempt, each of which leaves work for the next to see. Most
// granted callers have waited for the key, and have an older snapshot.
void draw_relay(Random& random, Plan* plan) {
    plan->keys = {relay_keys()[static_cast<std::size_t>(random.between(0, 2))]};
    plan->shape = random.weighted<Shape>(
        {{Shape::Transactional, 10}, {Shape::Leased, 4}, {Shape::Execute, 2}, {Shape::Operate, 3}});
    plan->ending = random.weighted<Ending>({{Ending::FailRetryable, 12},
                                            {Ending::LeaveOpen, 4},
                                            {Ending::Complete, 3},
                                            {Ending::Release, 1}});
    plan->action = random.one_in(4) ? "release" : "forget";
    plan->looks = true;
    plan->one_statement = true;
    plan->fingerprint = 0;
    plan->body_size = 40;
    plan->lease = random.spread(kMillisecond, 60 * kMillisecond);
    plan->wait = random.one_in(4) ? 0 : random.spread(10 * kMillisecond, 300 * kMillisecond);
    plan->retry_after = random.one_in(3) ? kMillisecond : 0;
}

// Keys whose claims the policy abandons: some holders never return, some return in time, some too
// late; others ask meanwhile.
void draw_left(Random& random, std::int64_t turn, Plan* plan) {
    plan->keys = {random.pick(left_keys(turn))};
    plan->shape = random.weighted<Shape>({{Shape::Leased, 12},
                                          {Shape::Look, 4},
                                          {Shape::Stale, 4},
                                          {Shape::Transactional, 2},
                                          {Shape::Execute, 1},
                                          {Shape::Operate, 1}});
    plan->ending = random.weighted<Ending>({{Ending::LeaveOpen, 8},
                                            {Ending::Complete, 6},
                                            {Ending::FailRetryable, 3},
                                            {Ending::Unknown, 1},
                                            {Ending::Release, 1}});
    plan->knocks = false;
    plan->extend = random.one_in(3);
    plan->fingerprint = 0;
    plan->body_size = 40;
    plan->lease = random.spread(kMillisecond, 100 * kMillisecond);
    plan->pause = random.one_in(2) ? random.spread(kMillisecond, 500 * kMillisecond) : 0;
    plan->retry_after = 0;
}

// Keys that one transaction decides and then claims, beside the claims of others: holders that work
// separately and never return, and snapshots from before that work.
void draw_decided(const Mix& mix, Random& random, std::int64_t turn, Plan* plan) {
    plan->keys = {random.pick(decided_keys(turn))};
    plan->shape = random.weighted<Shape>({{Shape::Decide, 12},
                                          {Shape::Leased, 8},
                                          {Shape::Transactional, 3},
                                          {Shape::ForgetAll, 2},
                                          {Shape::Operate, 1},
                                          {Shape::Execute, 1},
                                          {Shape::Stale, 1}});
    plan->decision = random.weighted<Decision>({{Decision::ReleaseOwn, 4},
                                                {Decision::ReleaseByToken, 2},
                                                {Decision::FailByToken, 2},
                                                {Decision::Resolve, 3},
                                                {Decision::Forget, 2},
                                                {Decision::Erase, 3},
                                                {Decision::Cleanup, 2}});
    plan->undo_decision = mix.savepoints && random.one_in(6);
    plan->claims_after = !random.one_in(4);
    plan->hesitation = random.one_in(2) ? random.spread(100, 20 * kMillisecond) : 0;
    plan->ending = random.weighted<Ending>({{Ending::Complete, 2},
                                            {Ending::FailRetryable, 4},
                                            {Ending::Unknown, 1},
                                            {Ending::Release, 3},
                                            {Ending::LeaveOpen, 6}});
    plan->action = random.pick(std::vector<const char*>{"release", "forget", "erase"});
    if (plan->shape == Shape::Decide) plan->action = "release";
    plan->isolation = random.weighted<const char*>(
        {{"READ COMMITTED", 2}, {"REPEATABLE READ", 3}, {"SERIALIZABLE", 2}});
    plan->old_snapshot = !random.one_in(3);
    plan->snapshot_age = random.spread(kMillisecond, 80 * kMillisecond);
    plan->tells = random.one_in(2);
    plan->checkpoint = random.one_in(3);
    plan->looks = true;
    plan->sums = false;
    plan->works_alone = !random.one_in(4);
    plan->fingerprint = 1;
    plan->body_size = 40;
    plan->lease = random.spread(2 * kMillisecond, 60 * kMillisecond);
    plan->pause = random.one_in(2) ? random.spread(100, 10 * kMillisecond) : 0;
    // Between the claim and its holder's work other sessions take their snapshots.
    if (plan->shape == Shape::Leased) {
        plan->extend = false;
        plan->lease = random.spread(10 * kMillisecond, 80 * kMillisecond);
        plan->pause = random.spread(kMillisecond, plan->lease / 2);
    }
    plan->wait = random.one_in(3) ? random.spread(kMillisecond, 100 * kMillisecond) : 0;
    plan->retry_after = 0;
}

}  // namespace

Plan draw_plan(const Mix& mix, std::uint64_t seed, int session, std::int64_t turn) {
    Random random(seed, static_cast<std::uint64_t>(session), static_cast<std::uint64_t>(turn));
    Plan plan;
    plan.keys = draw_keys(mix, random, session, turn);
    draw_shape(mix, random, &plan);
    draw_transaction(mix, random, &plan);
    draw_terms(mix, random, &plan);
    draw_work(mix, random, turn, &plan);
    if (mix.relay_every > 0 && random.one_in(mix.relay_every)) draw_relay(random, &plan);
    if (mix.left_every > 0 && random.one_in(mix.left_every)) draw_left(random, turn, &plan);
    if (mix.decided_every > 0 && random.one_in(mix.decided_every))
        draw_decided(mix, random, turn, &plan);
    return plan;
}

std::map<std::string, Rules> scopes() {
    return {
        {"keep", {kHour, kHour, kSecond, 0, false}},
        {"brief", {300 * kMillisecond, 600 * kMillisecond, kSecond, 0, false}},
        {"careful", {kHour, kHour, kSecond, 0, true}},
        {"limited", {kHour, kHour, kSecond, 3, false}},
        {"closed", {kHour, kHour, kSecond, 0, false, true}},
        {"doubted", {kHour, kHour, kSecond, 0, false, false, 50 * kMillisecond}},
        {"freed", {kHour, kHour, kSecond, 4, false, false, 120 * kMillisecond, OnAbandon::Release}},
        {"failed", {kHour, kHour, kSecond, 0, false, false, 300 * kMillisecond, OnAbandon::Fail}},
        {"decided",
         {kHour, kHour, kSecond, 0, false, false, 40 * kMillisecond, OnAbandon::Release, true}}};
}

// The keys change after a while: a failed or unknown record can't be abandoned again.
std::vector<Key> left_keys(std::int64_t turn) {
    const std::string name = "left-" + std::to_string(turn / 16);
    return {{"doubted", "acme", name}, {"freed", "acme", name}, {"failed", "acme", name}};
}

std::vector<Key> decided_keys(std::int64_t turn) {
    const std::string person = "person-" + std::to_string(turn / 40);
    return {{"decided", person, "order-1"}, {"decided", person, "order-2"}};
}

std::vector<Key> relay_keys() {
    return {{"keep", "acme", "relay-1"}, {"keep", "acme", "relay-2"}, {"brief", "", "relay"}};
}

Key closed_key() {
    return {"closed", "", "order"};
}

std::vector<Key> hot_keys(const Mix& mix) {
    const std::vector<std::string> names =
        mix.brief ? std::vector<std::string>{"keep", "brief", "careful", "limited"}
                  : std::vector<std::string>{"keep", "careful", "limited"};
    std::vector<Key> keys;
    for (int i = 0; i < mix.hot_keys; ++i) {
        const std::size_t scope = static_cast<std::size_t>(i) % names.size();
        const std::size_t round = static_cast<std::size_t>(i) / names.size();
        const std::size_t principal = scope == 0 ? 0 : round % std::size(kPrincipals);
        std::string name = kNames[round % std::size(kNames)];
        if (round >= std::size(kNames)) name += std::to_string(round);
        keys.push_back({names[scope], kPrincipals[principal], name});
    }
    for (int i = 0; i < mix.tenants; ++i)
        keys.push_back({names[static_cast<std::size_t>(i) % names.size()], tenant(i), "order"});
    return keys;
}

}  // namespace idem::chaos
