// The install script's columns of idempotency.record, in CREATE TABLE, views, types and grants,
// equal the table of columns in src/store/record.hpp. Its composite types equal those of
// src/api/types.hpp. The comparison is needed because no C++ writes SQL scripts.
#include <set>

#include "support.hpp"

// Included after the libraries: macros of the server's headers would break theirs.
#include "api/types.hpp"
#include "store/record.hpp"

namespace idem::client {
namespace {

using store::ColumnType;
using store::kColumnTypes;
using store::Seen;

using Lines = std::vector<std::string>;

std::string line(const std::string& name, unsigned type, const std::string& more = "") {
    return name + " " + std::to_string(type) + (more.empty() ? "" : " " + more);
}

std::string seen_by(Seen seen) {
    return seen == Seen::ByMonitors ? "monitors" : "readers";
}

// Whether an object of that name and type, elsewhere in the script, is about the column. A status
// is one letter in the table, and a word everywhere else.
bool is_of_type(const ColumnType& column, unsigned type) {
    return type == (std::string(column.name) == "status" ? TEXTOID : column.type);
}

template <typename Fields>
Lines lines_of(const Fields& fields) {
    Lines all;
    for (const auto& field : fields) all.push_back(line(field.name, field.type));
    return all;
}

class Columns : public ClientTest {
  protected:
    // The fields of a composite type.
    Lines fields_of(const std::string& type) {
        return lines(
            "SELECT concat_ws(' ', attname, atttypid) FROM pg_attribute"
            "  JOIN pg_class c ON c.oid = attrelid"
            " WHERE reltype = '" +
            type + "'::regtype AND attnum > 0 ORDER BY attnum");
    }

    // The first column of the rows.
    Lines lines(const std::string& sql) {
        pqxx::nontransaction tx(admin_);
        Lines all;
        for (const auto row : tx.exec(sql)) all.push_back(row[0].as<std::string>());
        return all;
    }
};

TEST_F(Columns, AreThoseOfTheTable) {
    Lines expected;
    for (const ColumnType& column : kColumnTypes)
        expected.push_back(line(column.name, column.type, column.may_be_null ? "" : "not null"));
    EXPECT_EQ(
        lines("SELECT concat_ws(' ', attname, atttypid, CASE WHEN attnotnull THEN 'not null' END)"
              "  FROM pg_attribute WHERE attrelid = 'idempotency.record'::regclass"
              "   AND attnum > 0 ORDER BY attnum"),
        expected);
}

TEST_F(Columns, OfThePrimaryKey) {
    Lines expected;
    for (const auto part : store::kPrimaryKey) expected.push_back(store::column_of(part).name);
    EXPECT_EQ(lines("SELECT attname FROM pg_index"
                    " CROSS JOIN unnest(indkey) WITH ORDINALITY AS k (number, position)"
                    "  JOIN pg_attribute ON attrelid = indrelid AND attnum = number"
                    " WHERE indrelid = 'idempotency.record'::regclass AND indisprimary"
                    " ORDER BY position"),
              expected);
}

// By name, because the view has another order. Instead of a holder's backend it shows whether there
// is one.
TEST_F(Columns, OfTheViewOfRecords) {
    std::set<std::string> expected = {line("held", BOOLOID, "monitors"),
                                      line("node", TEXTOID, "monitors")};
    for (const ColumnType& column : kColumnTypes) {
        const bool is_word = std::string(column.name) == "status";
        if (column.seen != Seen::Never)
            expected.insert(
                line(column.name, is_word ? TEXTOID : column.type, seen_by(column.seen)));
    }
    const Lines found = lines(
        "SELECT concat_ws(' ', attname, atttypid,"
        "         CASE WHEN has_column_privilege('pg_monitor', attrelid, attnum, 'SELECT')"
        "              THEN 'monitors' ELSE 'readers' END)"
        "  FROM pg_attribute WHERE attrelid = 'idempotency.records'::regclass AND attnum > 0");
    EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), expected);
}

// pg_monitor sees the whole of some views: none of it comes from data that clients sent and got,
// and none from the table itself.
TEST_F(Columns, OfTheViewsForMonitors) {
    std::set<std::string> kept_from_them;
    for (const ColumnType& column : kColumnTypes)
        if (column.seen == Seen::ByReaders) kept_from_them.insert(column.name);
    const Lines shown = lines(
        "SELECT DISTINCT attname::text FROM pg_rewrite r"
        "  JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid"
        "  JOIN pg_attribute ON attrelid = d.refobjid AND attnum = d.refobjsubid"
        " WHERE d.refobjid = 'idempotency.record'::regclass"
        "   AND has_table_privilege('pg_monitor', r.ev_class, 'SELECT')"
        " UNION SELECT unnest(proargnames) FROM pg_proc"
        " WHERE oid = 'idempotency.claims_here()'::regprocedure"
        "   AND has_function_privilege('pg_monitor', oid, 'EXECUTE')");
    EXPECT_FALSE(shown.empty());
    // pg_monitor sees these two columns of claims_here() as null: sql/57_unknown.sql.
    kept_from_them.erase("error");
    kept_from_them.erase("reference");
    for (const std::string& column : shown)
        EXPECT_EQ(kept_from_them.count(column), 0u) << "pg_monitor sees " << column;
    EXPECT_FALSE(value<bool>(
        admin_, "SELECT has_any_column_privilege('pg_monitor', 'idempotency.record', 'SELECT')"));
}

// Other views, the type idem_claim and the functions that the views call; not the check of the
// table, which takes its bytes.
TEST_F(Columns, HaveOneTypeWhereverTheyAreNamed) {
    pqxx::nontransaction tx(admin_);
    int named = 0;
    const pqxx::result rows = tx.exec(
        "SELECT attname, atttypid, attrelid::regclass::text FROM pg_attribute JOIN pg_class c"
        "    ON c.oid = attrelid WHERE attnum > 0"
        "   AND (relnamespace = 'idempotency'::regnamespace AND relkind = 'v'"
        "        OR reltype = 'idem_claim'::regtype)"
        " UNION ALL SELECT name, type, p.oid::regprocedure::text FROM pg_proc p"
        " CROSS JOIN unnest(proargnames, proargtypes::oid[]) AS a (name, type)"
        " WHERE pronamespace = 'idempotency'::regnamespace AND type IS NOT NULL"
        "   AND name IS NOT NULL AND proname <> 'is_record'");
    for (const auto row : rows)
        for (const ColumnType& column : kColumnTypes)
            if (row[0].as<std::string>() == column.name) {
                ++named;
                EXPECT_TRUE(is_of_type(column, row[1].as<unsigned>()))
                    << column.name << " of " << row[2].c_str() << " has another type";
            }
    EXPECT_GT(named, 0);
}

TEST_F(Columns, OfTheAnswer) {
    EXPECT_EQ(fields_of("idem_claim"), lines_of(api::kClaimFields));
    EXPECT_EQ(fields_of("idem_due"), lines_of(api::kDueFields));
}

TEST_F(Columns, OfTheResponse) {
    EXPECT_EQ(fields_of("idem_response"), lines_of(api::kResponseFields));
}

TEST_F(Columns, OfTheExplanation) {
    EXPECT_EQ(fields_of("idem_explanation"), lines_of(api::kExplanationFields));
}

// A dump has all rows, and all of each.
TEST_F(Columns, AreDumped) {
    EXPECT_EQ(
        value<int>(admin_,
                   "SELECT count(*) FROM pg_extension"
                   " CROSS JOIN unnest(extconfig, extcondition) AS dumped (relation, condition)"
                   " WHERE extname = 'idempotency' AND condition = ''"
                   "   AND relation = 'idempotency.record'::regclass"),
        1);
    EXPECT_EQ(value<int>(admin_,
                         "SELECT count(*) FROM pg_attribute"
                         " WHERE attrelid = 'idempotency.record'::regclass AND attgenerated <> ''"),
              0);
}

}  // namespace
}  // namespace idem::client
