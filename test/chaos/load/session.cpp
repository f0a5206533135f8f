#include "load/session.hpp"

#include <sstream>

namespace idem::chaos {

Session::Session(const Target& target, const Mix& mix, Tokens& tokens, std::uint64_t seed,
                 int number, bool pooled, Sabotage sabotage, Habits habits)
    : target_(target),
      mix_(mix),
      tokens_(tokens),
      seed_(seed),
      number_(number),
      sabotage_(sabotage),
      client_(target, number, pooled, habits) {}

void Session::work(const std::atomic<bool>& stop) {
    while (!stop && client_.connect(stop)) {
        plan_ = draw_plan(mix_, seed_, number_, turn_++);
        // A server connection that a pooler keeps would outlive its holder.
        if (client_.pooled()) plan_.hold = false;
        claimed_.clear();
        reset();
        if (client_.connected()) take_turn();
        if (!client_.connected()) client_.await_end_of_lost();
        rest(mix_.pace);
    }
}

void Session::take_turn() {
    switch (plan_.shape) {
        case Shape::Transactional:
            return transactional();
        case Shape::Leased:
            return leased();
        case Shape::Once:
            return once();
        case Shape::Execute:
            return execute();
        case Shape::Look:
            return look();
        case Shape::Operate:
            return operate();
        case Shape::Stale:
            return stale();
        case Shape::Decide:
            return decide();
        case Shape::ForgetAll:
            return forget_all();
    }
}

// ---- the shapes ----

void Session::transactional() {
    if (!open_transaction() || !claim_all()) return;
    if (plan_.reset == Reset::UnlockAll) reset();
    if (!client_.connected()) return abandon();
    if (plan_.sums && !sum_up()) return;
    for (const auto& [key, grant] : claimed_)
        if (!work_on(key, grant)) return;
    finish();
}

// The claim is committed; the work happens separately; a second transaction ends the claim.
void Session::leased() {
    const Key& key = plan_.keys[0];
    if (!ask(protocol().begin(key)) || client_.answer().outcome != "execute") return;
    const Answer grant = client_.answer();
    const std::int64_t token = grant.token;
    old_tokens_[key] = token;
    tokens_.put(key, token);
    reset();
    rest(plan_.pause);
    if (!client_.connected()) return;
    if (plan_.extend && !ask(protocol().extend(key, token))) return;
    if (plan_.works_alone &&
        !ask(protocol().part_of_kind("alone", key, grant, new_name("a"), transaction_ + 1)))
        return;
    if (plan_.checkpoint && !checkpoint_committed(key, grant)) return;
    if (plan_.ending == Ending::LeaveOpen || !open_transaction()) return;
    if (plan_.sums && !sum_up()) return;
    if (plan_.looks && plan_.ending != Ending::Release && !take_part(key, grant)) return;
    if (end(key, token)) finish();
    if (plan_.ending == Ending::Unknown && plan_.learns && client_.connected()) {
        rest(plan_.pause);
        if (open_transaction() && learn(key, token)) finish();
    }
    // A client that does not trust the first answer asks again.
    if (plan_.repeat_end && client_.connected() && plan_.ending == Ending::Complete) {
        Question again = protocol().end(key, plan_.ending, token, "");
        again.call.asked.effect.clear();
        if (open_transaction() && ask(again)) client_.answer().yes ? abandon() : finish();
    }
}

void Session::once() {
    const std::string effect = new_effect();
    if (!open_transaction() || !ask(protocol().once(plan_.keys[0], effect))) return;
    const bool granted = client_.answer().yes;
    if (granted && plan_.looks && !take_part(plan_.keys[0], Answer{})) return;
    if (granted && !take_effect(plan_.keys[0], effect)) return;
    finish();
}

void Session::execute() {
    if (plan_.begin_alone) {
        next_transaction();
    } else if (!open_transaction()) {
        return;
    }
    const Key& key = plan_.keys[0];
    const std::string effect = new_effect();
    const std::string part = new_name("p");
    Question question = plan_.one_statement
                            ? protocol().one_statement(key, effect, part, transaction_)
                            : protocol().execute(key, effect, part, transaction_);
    if (ask(std::move(question)) && open_) finish();
}

void Session::look() {
    if (plan_.knocks) return knock();
    // Work without a claim.
    if (plan_.sums) {
        if (open_transaction() && sum_up()) finish();
        return;
    }
    for (const Key& key : plan_.keys) (void)(client_.connected() && ask(protocol().get(key)));
}

void Session::operate() {
    const Key& key = plan_.keys[0];
    const std::string effect = new_effect();
    if (!open_transaction()) return;
    if (plan_.action == "forget" || plan_.action == "erase") {
        const bool erases = plan_.action == "erase";
        if (!ask(erases ? protocol().erase(key) : protocol().forget(key))) return;
        rest(plan_.pause);
        return finish();
    }
    // Resolving prolongs the life of a failed record by more than the brief scope allows.
    if (key.scope == "brief") return abandon();
    const bool decides = !runs_again(plan_.action);
    if (decides && !take_effect(key, effect)) return;
    if (ask(protocol().resolve(key, effect))) finish();
}

// A scope that is reserved for another role.
void Session::knock() {
    if (!open_transaction()) return;
    if (client_.silently("SET LOCAL ROLE chaos_stranger") != Status::Ok) return abandon();
    plan_.hold = false;
    if (ask(protocol().begin(closed_key()))) abandon();
}

// A holder whose claim was abandoned long ago.
void Session::stale() {
    const Key& key = plan_.keys[0];
    const auto token = old_tokens_.find(key);
    if (token == old_tokens_.end()) return look();
    if (plan_.extend) {
        (void)ask(protocol().extend(key, token->second));
        return;
    }
    if (plan_.ending == Ending::LeaveOpen) plan_.ending = Ending::Complete;
    if (open_transaction() && end(key, token->second)) finish();
}

// Decides a key and claims it, in one transaction: the decision must not hide other sessions' work
// from the claim.
void Session::decide() {
    const Key& key = plan_.keys[0];
    if (!open_transaction() || (plan_.undo_decision && !savepoint()) || !settle(key)) return;
    rest(plan_.hesitation);
    if (plan_.undo_decision && !back_to_savepoint()) return;
    if (plan_.claims_after && !claim(key)) return;
    for (const auto& [claimed, grant] : claimed_)
        if (!work_on(claimed, grant)) return;
    finish();
}

bool Session::settle(const Key& key) {
    switch (plan_.decision) {
        case Decision::ReleaseOwn:
            return claim_and_release(key);
        case Decision::ReleaseByToken:
            return end_for_another(key, Ending::Release);
        case Decision::FailByToken:
            return end_for_another(key, Ending::FailRetryable);
        case Decision::Resolve:
            return ask(protocol().resolve(key, ""));
        case Decision::Forget:
            return ask(protocol().forget(key));
        case Decision::Erase:
            return ask(protocol().erase(key));
        case Decision::Cleanup:
            return ask(protocol().cleanup(key));
    }
    return false;
}

// With work: until it is committed no other caller may be granted the key, and the next one sees
// it.
bool Session::claim_and_release(const Key& key) {
    if (!ask(protocol().begin(key))) return false;
    if (client_.answer().outcome != "execute") return true;
    const Answer grant = of_no_generation(client_.answer());
    return take_part(key, grant) && ask(protocol().end(key, Ending::Release, 0, ""));
}

// Work of a released claim: the earlier holder continues, and has not seen the work.
Answer Session::of_no_generation(Answer grant) {
    grant.generation.clear();
    return grant;
}

bool Session::end_for_another(const Key& key, Ending ending) {
    const std::int64_t token = tokens_.of(key);
    return token == 0 || ask(protocol().end(key, ending, token, ""));
}

// The sessions of the principal are not waited for; their later commits must be new. Then this
// session looks, and once more when those that had seen the records have committed.
void Session::forget_all() {
    const Key& key = plan_.keys[0];
    if (!ask(protocol().forget_all(key))) return;
    for (int looks = 0; looks < 2 && client_.connected(); ++looks) {
        rest(looks * plan_.snapshot_age);
        (void)ask(protocol().scan(key));
    }
}

// ---- the steps ----

// Session resets, which must not affect a claim. A pooler names its connections, and DISCARD ALL
// would remove the names.
void Session::reset() {
    if (plan_.reset == Reset::Nothing) return;
    const bool discards = plan_.reset == Reset::DiscardAll && !client_.pooled() && !open_;
    const Status status =
        client_.silently(discards ? "DISCARD ALL" : "SELECT pg_advisory_unlock_all()");
    if (status == Status::Ok) ++resets_[discards ? "discard all" : "unlock all"];
}

// False if the transaction has ended, or the key was not granted.
bool Session::claim_all() {
    if (plan_.undo_begin) {
        if (!savepoint() || !ask(protocol().begin(plan_.keys[0])) || !back_to_savepoint())
            return false;
    }
    for (const Key& key : plan_.keys)
        if (!claim(key)) return false;
    if (!claimed_.empty()) return true;
    finish();
    return false;
}

bool Session::claim(const Key& key) {
    if (!ask(protocol().begin(key))) return false;
    if (client_.answer().outcome != "execute") return true;
    claimed_[key] = client_.answer();
    old_tokens_[key] = client_.answer().token;
    // A caller that asks again in the same transaction is told of its own claim.
    return !plan_.repeat_end || ask(protocol().begin(key));
}

bool Session::work_on(const Key& key, const Answer& grant) {
    rest(plan_.pause);
    if (plan_.extend && !ask(protocol().extend(key, grant.token))) return false;
    const bool stays = plan_.ending != Ending::Release;
    if (plan_.looks && !take_part(key, stays ? grant : of_no_generation(grant))) return false;
    if (stays && plan_.foreign && !write_abroad(key)) return false;
    if (plan_.checkpoint && !checkpoint(key, grant, 0)) return false;
    if (plan_.ending == Ending::LeaveOpen) return true;
    if (plan_.undo_end && !end_undone(key, 0)) return false;
    if (!end(key, 0)) return false;
    return plan_.ending != Ending::Unknown || !plan_.learns || learn(key, 0);
}

// The outcome was unknown, and is now known.
bool Session::learn(const Key& key, std::int64_t token) {
    plan_.ending = Ending::Complete;
    return end(key, token);
}

bool Session::take_part(const Key& key, const Answer& grant) {
    return ask(protocol().part(key, grant, new_name("p"), transaction_));
}

bool Session::write_abroad(const Key& key) {
    return ask(protocol().foreign(key, new_name("f"), transaction_));
}

bool Session::sum_up() {
    return ask(protocol().sum(transaction_));
}

// In half of the cases the point stands for work of its transaction.
bool Session::checkpoint(const Key& key, const Answer& grant, std::int64_t token) {
    const bool stands = plan_.looks && open_;
    const std::string point = new_name(stands ? "point-" : "bare-");
    if (stands && !ask(protocol().part_of_kind("point", key, grant, point, transaction_)))
        return false;
    return ask(protocol().checkpoint(key, token, point));
}

bool Session::checkpoint_committed(const Key& key, const Answer& grant) {
    if (!plan_.looks) return checkpoint(key, grant, grant.token);
    return open_transaction() && checkpoint(key, grant, grant.token) && commit();
}

bool Session::end_undone(const Key& key, std::int64_t token) {
    const bool done = savepoint() && end(key, token);
    if (!done && !open_) return false;
    return back_to_savepoint();
}

// The effect, and in the same transaction the end of its claim. If another session has ended the
// claim, neither the effect nor other work of this transaction must stay.
bool Session::end(const Key& key, std::int64_t token) {
    const std::string effect = new_effect();
    const bool has_effect = plan_.ending == Ending::Complete || plan_.ending == Ending::Fail;
    if (has_effect && !take_effect(key, effect)) return false;
    if (!ask(protocol().end(key, plan_.ending, token, effect))) return false;
    if ((has_effect || plan_.looks) && !client_.answer().yes) {
        abandon();
        return false;
    }
    if (plan_.repeat_end && token == 0 && plan_.ending == Ending::Complete)
        return ask(protocol().begin(key));
    return true;
}

bool Session::take_effect(const Key& key, const std::string& effect) {
    Question question = protocol().effect(key, effect, transaction_);
    if (sabotage_.effect_outside) {
        try {
            pqxx::connection elsewhere(target_.direct());
            pqxx::nontransaction tx(elsewhere);
            tx.exec(question.sql);
        } catch (const pqxx::failure&) {
        }
        return true;
    }
    return ask(std::move(question));
}

std::string Session::new_secret() {
    const auto number = static_cast<std::uint64_t>(++names_);
    std::ostringstream text;
    text << "secret-" << number_ << '-' << number << '-' << std::hex
         << Random(seed_, static_cast<std::uint64_t>(number_), number).next();
    return text.str();
}

std::string Session::new_name(const char* kind) {
    return kind + std::to_string(number_) + "-" + std::to_string(++names_);
}

// ---- transactions ----

void Session::next_transaction() {
    transaction_ = (static_cast<std::int64_t>(number_) << 32) | ++transactions_;
}

bool Session::open_transaction() {
    next_transaction();
    opened_ = now();
    savepoints_ = 0;
    const bool weaker =
        sabotage_.weaker_isolation && plan_.isolation == std::string("SERIALIZABLE");
    std::string sql =
        std::string("BEGIN ISOLATION LEVEL ") + (weaker ? "REPEATABLE READ" : plan_.isolation);
    if (plan_.statement_timeout > 0)
        sql += "; SET LOCAL statement_timeout = " + std::to_string(plan_.statement_timeout);
    open_ = client_.silently(sql) == Status::Ok;
    if (open_ && plan_.old_snapshot)
        open_ = client_.silently("SELECT FROM chaos.effect WHERE id = ''") == Status::Ok;
    if (open_ && plan_.old_snapshot) rest(plan_.snapshot_age);
    if (!open_ && client_.connected()) (void)client_.silently("ROLLBACK");
    return open_;
}

void Session::control(Function function, const std::string& sql, int savepoint) {
    Call call;
    call.function = function;
    call.transaction = transaction_;
    call.asked.savepoint = savepoint;
    if (client_.run(call, sql) == Status::Lost && function >= Function::Savepoint &&
        function != Function::Commit && function != Function::Rollback)
        abandon();
}

bool Session::ask(Question question) {
    // idem_execute has already passed its transaction to the operation.
    if (!open_ && question.call.function != Function::Execute) next_transaction();
    question.call.transaction = transaction_;
    question.call.alone = !open_;
    const Status status = client_.run(std::move(question.call), question.sql);
    if (status == Status::Ok) return true;
    if (open_) abandon();
    return false;
}

bool Session::savepoint() {
    ++savepoints_;
    control(Function::Savepoint, "SAVEPOINT s" + std::to_string(savepoints_), savepoints_);
    return client_.connected() && open_;
}

bool Session::back_to_savepoint() {
    control(Function::RollbackTo, "ROLLBACK TO s" + std::to_string(savepoints_), savepoints_);
    return client_.connected() && open_;
}

// An error has undone the transaction by the time it was raised. A backend may have been lost at
// any time after its last answer, which was before we learned of it.
Micros Session::undone_since() const {
    const std::vector<Call>& calls = client_.calls();
    auto call = calls.rbegin();
    while (call != calls.rend() && call->transaction == transaction_ &&
           call->result == Result::Info)
        ++call;
    if (call == calls.rend() || call->transaction != transaction_) return opened_;
    if (call->result == Result::Error) return call->invoked;
    return client_.connected() ? now() : call->invoked;
}

// Rolls back; if the connection is gone the server does it.
void Session::abandon() {
    open_ = false;
    Call call;
    call.function = Function::Rollback;
    call.transaction = transaction_;
    call.invoked = undone_since();
    if (client_.connected()) {
        if (client_.silently("ROLLBACK") == Status::Ok)
            call.returned = now();
        else
            call.invoked = undone_since();  // its backend was gone before we asked
    }
    client_.note(call);
}

bool Session::commit() {
    Call call;
    call.transaction = transaction_;
    call.function = Function::Commit;
    open_ = false;
    return client_.run(call, "COMMIT") == Status::Ok;
}

void Session::finish() {
    Call call;
    call.transaction = transaction_;
    call.function = Function::Commit;
    switch (plan_.finish) {
        case Finish::Rollback:
            return abandon();
        case Finish::PrepareCommit:
            return finish_prepared(true);
        case Finish::PrepareRollback:
            return finish_prepared(false);
        case Finish::HangUp:
            client_.send_and_hang_up(call, "COMMIT");
            break;
        case Finish::Commit:
            (void)commit();
            break;
    }
    open_ = false;
}

void Session::finish_prepared(bool commit) {
    const std::string name = "chaos-" + std::to_string(transaction_);
    Call call;
    call.transaction = transaction_;
    call.function = Function::Prepare;
    call.session = number_;
    call.invoked = now();
    const Status status = client_.silently("PREPARE TRANSACTION '" + name + "'");
    if (status == Status::Lost) client_.await_end_of_lost();
    open_ = false;
    if (status == Status::Refused || !client_.is_prepared(name)) {
        call.function = Function::Rollback;
        if (status == Status::Lost) call.invoked = undone_since();
        if (client_.connected()) (void)client_.silently("ROLLBACK");
        call.returned = now();
        client_.note(call);
        return;
    }
    call.returned = now();
    client_.note(call);
    rest(plan_.pause);
    call.returned = kNever;
    client_.end_prepared(call, name, commit);
}

}  // namespace idem::chaos
