#include "core/sqlstate.hpp"

#include <gtest/gtest.h>

namespace idem::core {
namespace {

TEST(FaultOfRequest, IsBadDataAViolatedConstraintOrAnErrorOfTheOperation) {
    for (const auto state :
         {"22000", "22P02", "22012", "23000", "23505", "23P01", "45000", "P0001"}) {
        EXPECT_TRUE(is_fault_of_request(state)) << state;
    }
}

TEST(FaultOfRequest, IsAClassOfTheUsers) {
    for (const auto state :
         {"AB123", "US001", "PT402", "ZZ000", "I0001", "60001", "80000", "99999"}) {
        EXPECT_TRUE(is_fault_of_request(state)) << state;
    }
}

TEST(FaultOfRequest, IsNoErrorOfTheServer) {
    for (const auto state : {"00000", "01000", "02000", "08006", "0A000", "21000", "25P03", "28000",
                             "38000", "40001", "42501", "42P01", "44000", "53100", "54001", "55P03",
                             "57014", "58030", "59000", "72000", "79999", "F0000", "HV00N", "P0000",
                             "P0002", "P0003", "P0004", "XX000", "ID404", "ID409"}) {
        EXPECT_FALSE(is_fault_of_request(state)) << state;
    }
}

TEST(FaultOfRequest, IsNoErrorThatAnotherRowMayMend) {
    EXPECT_FALSE(is_fault_of_request("23503"));
    EXPECT_FALSE(is_fault_of_request("23001"));
}

TEST(FaultOfRequest, IsNoInvalidState) {
    for (const auto state : {"", "2", "22", "2201", "220120", "ab123"}) {
        EXPECT_FALSE(is_fault_of_request(state)) << state;
    }
}

TEST(Trouble, IsAnErrorThatNeedsAnOperator) {
    for (const char* state : {"53100", "53200", "54000", "58030", "XX001", "XX002", "23514",
                              "42P01", "0A000", "P0001", "ID500"})
        EXPECT_TRUE(is_store_error(state)) << state;
}

TEST(Trouble, IsNoRetryableErrorOrCancel) {
    for (const char* state : {"40001", "40P01", "55P03", "57014", "57P01", "25006", "25P02"})
        EXPECT_FALSE(is_store_error(state)) << state;
}

TEST(Trouble, IsNoMessageBelowAnError) {
    for (const char* state : {"00000", "01000", "02000"})
        EXPECT_FALSE(is_store_error(state)) << state;
}

TEST(MayBeFinal, IsAClassOrAState) {
    for (const auto entry : {"22", "22012", "P0002", "38", "0A", "ZZ", "08006"}) {
        EXPECT_TRUE(may_be_final(entry)) << entry;
    }
    for (const auto entry : {"", "2", "220", "2201", "220123", "p0001", "2 ", "\xc3\xa9"}) {
        EXPECT_FALSE(may_be_final(entry)) << entry;
    }
}

TEST(MayBeFinal, IsNothingThatPasses) {
    for (const auto entry :
         {"40", "40001", "40P01", "53", "53100", "57", "57014", "58", "58030", "XX", "XX000"}) {
        EXPECT_FALSE(may_be_final(entry)) << entry;
    }
}

TEST(IsListed, GoesByClassAndState) {
    const std::string_view entries[] = {"22", "P0002"};
    for (const auto state : {"22012", "22P02", "P0002"}) {
        EXPECT_TRUE(is_listed(state, entries, 2)) << state;
    }
    for (const auto state : {"P0001", "P0000", "23505", "02200"}) {
        EXPECT_FALSE(is_listed(state, entries, 2)) << state;
    }
    EXPECT_FALSE(is_listed("22012", nullptr, 0));
}

TEST(RefusalStatus, IsAWholeNumberFrom400To599) {
    EXPECT_EQ(refusal_status("400"), 400);
    EXPECT_EQ(refusal_status("402"), 402);
    EXPECT_EQ(refusal_status("599"), 599);
    for (const auto number : {"", "4", "40", "399", "600", "4020", "402.5", "402.0", "-40", "+40",
                              "4e2", "NaN", " 402"}) {
        EXPECT_FALSE(refusal_status(number)) << number;
    }
}

}  // namespace
}  // namespace idem::core
