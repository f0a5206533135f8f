// The protocol's functions as SQL, and the calls that describe them in the history.
#pragma once

#include "load/client.hpp"
#include "load/plan.hpp"

namespace idem::chaos {

// A call and its query.
struct Question {
    Call call;
    std::string sql;
};

// A body that names its effect; zero bytes long if `size` is.
std::string body_of(const std::string& effect, std::int64_t size);

class Protocol {
  public:
    Protocol(const Plan& plan, const Client& client, const Mix& mix)
        : plan_(plan), client_(client), mix_(mix) {}

    Question begin(const Key& key) const;
    // Claim, work, effect and end in one statement.
    Question one_statement(const Key& key, const std::string& effect, const std::string& part,
                           std::int64_t transaction) const;
    // `token` 0: the claim was begun in the same transaction.
    Question end(const Key& key, Ending ending, std::int64_t token,
                 const std::string& effect) const;
    Question end_unknown(const Key& key, std::int64_t token) const;
    Question extend(const Key& key, std::int64_t token) const;
    Question checkpoint(const Key& key, std::int64_t token, const std::string& point) const;
    Question once(const Key& key, const std::string& effect) const;
    Question execute(const Key& key, const std::string& effect, const std::string& part,
                     std::int64_t transaction) const;
    Question get(const Key& key) const;
    Question forget(const Key& key) const;
    Question erase(const Key& key) const;
    // All due records of any key; the transaction continues with this key.
    Question cleanup(const Key& key) const;
    // Forgets all records of the key's principal, and looks for remaining ones.
    Question forget_all(const Key& key) const;
    Question scan(const Key& key) const;
    Question resolve(const Key& key, const std::string& effect) const;
    Question effect(const Key& key, const std::string& effect, std::int64_t transaction) const;

    // Work after a grant: the transaction looks, and takes its part unless it sees it taken.
    Question part(const Key& key, const Answer& grant, const std::string& part,
                  std::int64_t transaction) const;
    // A part that does not depend on a look.
    Question part_of_kind(const char* kind, const Key& key, const Answer& grant,
                          const std::string& part, std::int64_t transaction) const;
    Question sum(std::int64_t transaction) const;
    Question foreign(const Key& key, const std::string& row, std::int64_t transaction) const;

  private:
    // The statement of one_statement(), on one server and on a cluster.
    std::string whole(const Key& key, const Call& call, const std::string& effect,
                      const std::string& part, std::int64_t transaction) const;
    std::string whole_on_shard(const Key& key, const Call& call, const std::string& effect,
                               const std::string& part, std::int64_t transaction) const;
    std::string names(const Key& key) const;
    std::string begin_arguments(const Key& key) const;
    std::string columns_of(const Key& key) const;
    // The plan's secret, if the key's scope stores secrets, as a value of this form.
    std::string secret_of(Call* call, const char* before, const char* after) const;
    std::string optional(const char* name, Micros interval) const;
    std::string token_argument(std::int64_t token) const;
    void set_result(Call* call, const std::string& effect) const;
    std::string result_arguments(const Call& call, const std::string& effect) const;

    const Plan& plan_;
    const Client& client_;
    const Mix& mix_;
};

}  // namespace idem::chaos
