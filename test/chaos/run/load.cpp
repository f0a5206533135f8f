#include "run/load.hpp"

#include <future>

namespace idem::chaos {

Load::Load(const Target& target, const Mix& mix, const Options& options, const Habits& habits,
           int pooled_every)
    : target_(target), mix_(mix), options_(options), habits_(habits), pooled_every_(pooled_every) {}

void Load::work(const std::function<void()>& meanwhile) {
    std::vector<std::unique_ptr<Session>> sessions;
    for (int number = 1; number <= options_.sessions; ++number)
        sessions.push_back(std::make_unique<Session>(
            target_, mix_, tokens_, options_.seed, number,
            pooled_every_ > 0 && number % pooled_every_ == 0,
            Sabotage{options_.effect_outside, options_.weaker_isolation}, habits_));
    std::atomic<bool> stop{false};
    std::vector<std::future<void>> all;
    for (auto& session : sessions)
        all.push_back(std::async(std::launch::async, [&stop, &session] { session->work(stop); }));
    auto disturbed = std::async(std::launch::async, meanwhile);
    disturbed.wait();
    stop = true;
    for (std::future<void>& one : all) one.get();
    disturbed.get();
    for (auto& session : sessions) collect(session.get());
}

void Load::collect(Session* session) {
    calls_.insert(calls_.end(), std::make_move_iterator(session->calls().begin()),
                  std::make_move_iterator(session->calls().end()));
    for (const auto& [way, count] : session->resets()) resets_[way] += count;
}

std::vector<Violation> Load::look_at_all(const std::vector<Call>& calls) {
    std::set<Key> keys;
    for (const Call& call : calls)
        if (call.function < Function::Drop && call.key.scope != "closed") keys.insert(call.key);
    Client reader(target_, 0, false, habits_);
    std::atomic<bool> never{false};
    (void)reader.connect(never);
    std::int64_t transaction = 0;
    std::vector<Violation> found;
    for (const Key& key : keys) ask(&reader, key, &transaction, &found);
    calls_.insert(calls_.end(), std::make_move_iterator(reader.calls().begin()),
                  std::make_move_iterator(reader.calls().end()));
    return found;
}

void Load::ask(Client* reader, const Key& key, std::int64_t* transaction,
               std::vector<Violation>* found) const {
    Plan plan;
    plan.lease = kMillisecond;
    plan.wait = kSecond;  // for a sweeper, which has the lock for a moment
    const Protocol protocol(plan, *reader, mix_);
    std::vector<Question> questions{protocol.get(key)};
    if (key.scope == "decided") questions.push_back(protocol.scan(key));
    const bool hot = key.key.compare(0, 5, "cold-") != 0;
    if (hot) questions.push_back(protocol.begin(key));
    for (Question& question : questions) {
        question.call.transaction = ++*transaction;
        question.call.alone = true;
        (void)reader->run(question.call, question.sql);
    }
    if (hot && reader->answer().outcome == "in_progress")
        found->push_back({17, "still in progress: " + describe(reader->calls().back())});
}

}  // namespace idem::chaos
