// Hand-written histories of reads and writes: which of them fit a serial order.
#include "check/serializable.hpp"

#include <gtest/gtest.h>

namespace idem::chaos {
namespace {

using Writers = std::vector<std::int64_t>;

// Lists have a name of one letter, sets begin with "set".
class Reads {
  public:
    Reads& read(std::int64_t transaction, const std::string& object, const Writers& writers) {
        const bool ordered = object.compare(0, 3, "set") != 0;
        history_.reads.push_back({transaction, object, ordered, writers});
        return *this;
    }
    // The final state.
    Reads& last(const std::string& object, const Writers& writers) {
        return read(0, object, writers);
    }
    std::vector<Violation> judge() const { return check_serializable(history_); }
    std::size_t violations() const {
        for (const Violation& violation : judge()) EXPECT_EQ(violation.invariant, 22);
        return judge().size();
    }

  private:
    History history_;
};

TEST(Serializable, NothingIsRight) {
    EXPECT_EQ(Reads().violations(), 0u);
}

TEST(Serializable, OneAfterTheOther) {
    Reads reads;
    reads.read(1, "a", {}).read(2, "a", {1}).read(3, "a", {1, 2}).last("a", {1, 2, 3});
    EXPECT_EQ(reads.violations(), 0u);
}

// Another order than that of the commits is one.
TEST(Serializable, AReaderOfOldRowsComesBefore) {
    Reads reads;
    reads.read(1, "a", {}).read(2, "a", {}).last("a", {1}).last("b", {2});
    EXPECT_EQ(reads.violations(), 0u);
}

TEST(Serializable, LostUpdateIsFound) {
    Reads reads;
    reads.read(1, "a", {}).read(2, "a", {}).last("a", {1, 2});
    EXPECT_EQ(reads.violations(), 1u);
}

TEST(Serializable, WriteSkewIsFound) {
    Reads reads;
    reads.read(1, "a", {}).read(1, "b", {}).read(2, "a", {}).read(2, "b", {});
    reads.last("a", {1}).last("b", {2});
    EXPECT_EQ(reads.violations(), 1u);
}

TEST(Serializable, WriteSkewOverRowsThatWereNotThereIsFound) {
    Reads reads;
    reads.read(1, "set", {}).read(2, "set", {}).last("set", {1, 2});
    EXPECT_EQ(reads.violations(), 1u);
}

TEST(Serializable, RowsOfASetHaveNoOrderAmongEachOther) {
    Reads reads;
    reads.read(1, "set", {}).read(2, "set", {1}).read(3, "set", {2, 1}).last("set", {3, 1, 2});
    EXPECT_EQ(reads.violations(), 0u);
}

TEST(Serializable, WritesInTwoOrdersAreFound) {
    Reads reads;
    reads.last("a", {1, 2}).last("b", {2, 1});
    EXPECT_EQ(reads.violations(), 1u);
}

// Two readers see two writes in different orders.
TEST(Serializable, ALongForkIsFound) {
    Reads reads;
    reads.read(3, "a", {1}).read(3, "b", {}).read(4, "a", {}).read(4, "b", {2});
    reads.last("a", {1}).last("b", {2});
    EXPECT_EQ(reads.violations(), 1u);
}

// Fekete, O'Neil, O'Neil: two writers alone would fit an order; a reader rules it out.
TEST(Serializable, TheAnomalyOfAReaderIsFound) {
    Reads writers;
    writers.read(1, "a", {}).read(1, "b", {}).read(2, "b", {}).last("a", {1}).last("b", {2});
    EXPECT_EQ(writers.violations(), 0u);
    writers.read(3, "a", {}).read(3, "b", {2});
    EXPECT_EQ(writers.violations(), 1u);
}

TEST(Serializable, ALongCycleIsFoundAndReported) {
    Reads reads;
    reads.read(1, "b", {}).read(2, "c", {}).read(3, "d", {}).read(4, "a", {});
    reads.last("a", {1}).last("b", {2}).last("c", {3}).last("d", {4});
    const std::vector<Violation> found = reads.judge();
    ASSERT_EQ(found.size(), 1u);
    for (const char* const step : {"1 -(rw of b)-> 2", "2 -(rw of c)-> 3", "4 -(rw of a)-> 1"})
        EXPECT_NE(found[0].what.find(step), std::string::npos) << found[0].what;
}

TEST(Serializable, TwoCirclesAreTwo) {
    Reads reads;
    reads.read(1, "a", {}).read(2, "a", {}).last("a", {1, 2});
    reads.read(3, "b", {}).read(4, "b", {}).last("b", {3, 4});
    EXPECT_EQ(reads.violations(), 2u);
}

TEST(Serializable, OnesOwnWriteIsNoDependency) {
    Reads reads;
    reads.read(1, "a", {1}).read(1, "set", {1}).last("a", {1}).last("set", {1});
    EXPECT_EQ(reads.violations(), 0u);
}

TEST(Serializable, AVersionThatWasNeverCommittedIsFound) {
    Reads lists;
    lists.read(2, "a", {1}).last("a", {3});
    EXPECT_EQ(lists.violations(), 1u);
    Reads sets;
    sets.read(2, "set", {1}).last("set", {3});
    EXPECT_EQ(sets.violations(), 1u);
    Reads gone;
    gone.read(2, "a", {1});
    EXPECT_EQ(gone.violations(), 1u);
}

}  // namespace
}  // namespace idem::chaos
