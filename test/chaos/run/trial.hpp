// One run, on one server or on a cluster: sessions and faults for a while, then rest, a final look
// at everything, and judgement.
#pragma once

#include "faults/server.hpp"
#include "run/load.hpp"
#include "run/report.hpp"

namespace idem::chaos {

class Trial {
  public:
    virtual ~Trial() = default;
    Conclusion play();

  protected:
    explicit Trial(const Options& options);

    // The steps of play() in which runs differ. The first line of the output; kept histories have
    // the name.
    virtual std::string title() const = 0;
    virtual std::string name() const = 0;
    // Servers, the database, and what sessions connect to.
    virtual void bring_up() = 0;
    // The server that is asked for the records.
    virtual const Server& server() = 0;
    // While the sessions work.
    virtual void disturb() = 0;
    virtual void come_to_rest() {}
    virtual void look_at_rest() = 0;
    virtual void print_more() const {}

    void add(std::vector<Call> calls);
    void add(const std::vector<Violation>& violations);
    // Faults, and how often they came.
    void add(const std::map<std::string, int>& fired) { fired_.insert(fired.begin(), fired.end()); }

    Options options_;
    Target target_;
    Mix mix_;
    Habits habits_;
    int pooled_every_ = 0;  // sessions
    History history_;
    std::vector<Violation> at_rest_;

  private:
    void work();
    Conclusion conclude(Micros start, const StepsBack& clock);

    std::map<std::string, int> fired_;
};

}  // namespace idem::chaos
