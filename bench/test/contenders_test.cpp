#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "contenders/business.hpp"
#include "contenders/lineup.hpp"

namespace idem::bench {
namespace {

TEST(Contenders, EndTheRunOnAWrongAnswer) {
    EXPECT_NO_THROW(expect("execute", "execute"));
    EXPECT_THROW(expect("replay", "execute"), std::runtime_error);
    EXPECT_THROW(expect("", "1"), std::runtime_error);
}

TEST(Contenders, UseNewKeysAsLongAsAUuid) {
    std::set<std::string> keys;
    for (int i = 0; i < 1000; i++) keys.insert(random_key());
    EXPECT_EQ(keys.size(), 1000u);
    for (const std::string& key : keys) EXPECT_EQ(key.size(), 36u) << key;
}

TEST(Contenders, HaveNamesOfTheirOwn) {
    std::set<std::string> names;
    for (const Contender& contender : first_executions()) names.insert(contender.name);
    EXPECT_EQ(names.size(), first_executions().size());
}

}  // namespace
}  // namespace idem::bench
