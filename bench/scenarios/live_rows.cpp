// What first executions cost beside many live records. Two databases: in one there are a hundred
// thousand records, in the other ever more. Rounds alternate between them.
//
// After a checkpoint, a page's first change costs its full image in the WAL. Beside few records
// soon every page has been changed; beside many, the images go on for a while. So the last records
// come after the checkpoint, and what is measured is the middle of a checkpoint's cycle, not its
// beginning. The table shows how many images there were.

#include <algorithm>
#include <memory>

#include "contenders/business.hpp"
#include "contenders/lineup.hpp"
#include "harness/server.hpp"
#include "harness/side_by_side.hpp"
#include "scenarios/scenario.hpp"

namespace idem::bench {
namespace {

constexpr char kFew[] = "idem_bench_few";
constexpr char kMany[] = "idem_bench_many";
constexpr int kFewRows = 100 * 1000;
constexpr int kBatchRows = 1000 * 1000;
// What 2,000 requests per second add in half of the default checkpoint_timeout.
constexpr int kSinceCheckpoint = 300 * 1000;
constexpr int kMinute = 60;
constexpr int kDay = 24 * 60 * 60;

std::string in_words(int rows) {
    return rows >= 1000 * 1000 ? std::to_string(rows / (1000 * 1000)) + " million"
                               : std::to_string(rows / 1000) + " thousand";
}

// A database of its own with the extension, for as long as this lives.
class Database {
  public:
    Database(Connection& admin, const std::string& name) : admin_(admin), name_(name) {
        drop();
        admin.query("CREATE DATABASE " + name);
        sql_ = std::make_unique<Connection>("idem_bench", Session{name});
        sql_->query("CREATE EXTENSION idempotency");
        create_tables(*sql_);
    }
    ~Database() {
        sql_.reset();
        try {
            drop();
        } catch (const std::exception& error) {
            say(error.what());
        }
    }
    Database(const Database&) = delete;
    Database& operator=(const Database&) = delete;

    Connection& sql() { return *sql_; }

  private:
    void drop() { admin_.query("DROP DATABASE IF EXISTS " + name_ + " WITH (FORCE)"); }

    Connection& admin_;
    const std::string name_;
    std::unique_ptr<Connection> sql_;
};

// Adds live records until there are `wanted`. Their ends are spread over the next day, their keys
// over the whole index, where new ones go, too.
void fill(Database& database, int wanted) {
    auto present =
        static_cast<int>(database.sql().number("SELECT count(*) FROM idempotency.record"));
    while (present < wanted) {
        int last = std::min(present + kBatchRows, wanted);
        say("live_rows: filling up to " + in_words(last));
        insert_records(database.sql(), {"bench", present + 1, last, kMinute, kDay, Layout::ByKey});
        present = last;
    }
}

// As after some time in service: statistics and hint bits are there, and half of a checkpoint's
// cycle has passed. Images of whole pages would only be thrown away while filling.
void fill_quickly(Database& database, int wanted) {
    set_server(database.sql(), "full_page_writes", "off");
    fill(database, wanted - kSinceCheckpoint);
    database.sql().query("VACUUM ANALYZE idempotency.record");
    set_server(database.sql(), "full_page_writes", "on");
    database.sql().query("CHECKPOINT");
    fill(database, wanted);
}

void refill(Database& database) {
    empty_tables(database.sql());
    insert_records(database.sql(), {"bench", 1, kFewRows, kMinute, kDay, Layout::ByKey});
    database.sql().query("VACUUM ANALYZE idempotency.record");
}

// Full images of pages in the WAL per request, over all turns in a database.
class PageImages {
  public:
    explicit PageImages(Database& database) : sql_(database.sql()) {}

    void turn_begins() {
        images_ -= images();
        requests_ -= requests();
    }
    void turn_ends() {
        images_ += images();
        requests_ += requests();
    }
    double per_request() const { return images_ / requests_; }

  private:
    double images() { return sql_.number("SELECT wal_fpi FROM pg_stat_wal"); }
    double requests() { return sql_.number("SELECT count(*) FROM bench.payment"); }

    Connection& sql_;
    double images_ = 0;
    double requests_ = 0;
};

struct Level {
    int rows;
    Comparison comparison;
    double images_beside_few;
    double images_beside_many;

    std::vector<double> ratios() const { return comparison.ratios(kMany, kFew); }
};

Level measure_level(Database& few, Database& many, int rows, const Options& options) {
    fill_quickly(many, rows);
    PageImages images_few(few);
    PageImages images_many(many);
    Course course{"live_rows, " + in_words(rows), options.clients, options.rounds, options.slice};
    course.prepare = [&](const Contender& next) {
        if (next.name == kFew) refill(few);
        (next.name == kFew ? images_few : images_many).turn_begins();
    };
    course.finish = [&](const Contender& last) {
        (last.name == kFew ? images_few : images_many).turn_ends();
    };
    Comparison comparison =
        side_by_side({{kFew, ours_pipelined, kFew}, {kMany, ours_pipelined, kMany}}, course);
    return {rows, comparison, images_few.per_request(), images_many.per_request()};
}

std::vector<int> levels_up_to(int most) {
    std::vector<int> levels;
    for (int rows : {1000 * 1000, 5 * 1000 * 1000, 20 * 1000 * 1000})
        if (rows <= most) levels.push_back(rows);
    if (levels.empty() || levels.back() < most) levels.push_back(most);
    return levels;
}

std::vector<std::string> row_of(const std::string& name, const Measured& measured,
                                const std::vector<double>& ratios, double images) {
    return {name,
            fixed(measured.per_second(), 0),
            fixed(measured.quantile(0.5), 3),
            fixed(measured.quantile(0.99), 3),
            fixed(median(ratios), 2),
            fixed(images, 3)};
}

Table table_of(const std::vector<Level>& levels) {
    Table table{{"live records", "per second", "p50 ms", "p99 ms", "ratio", "page images/request"}};
    for (const Level& level : levels) {
        table.push_back(
            row_of(in_words(kFewRows), level.comparison.of(kFew), {1}, level.images_beside_few));
        table.push_back(row_of(in_words(level.rows), level.comparison.of(kMany), level.ratios(),
                               level.images_beside_many));
    }
    return table;
}

Json details_of(const std::vector<Level>& levels) {
    Json list = Json::array();
    for (const Level& level : levels)
        list.push_back({{"rows", level.rows},
                        {"ratio_of_each_round", level.ratios()},
                        {"page_images_per_request_beside_few", level.images_beside_few},
                        {"page_images_per_request_beside_many", level.images_beside_many},
                        {"contenders", level.comparison.details()}});
    return list;
}

Chart chart_of(const std::vector<Level>& levels) {
    Chart chart{"live_rows",
                "First executions beside many live records, against " + in_words(kFewRows),
                {in_words(kFewRows)},
                {{"throughput", {1}}},
                0.85};
    for (const Level& level : levels) {
        chart.labels.push_back(in_words(level.rows));
        chart.series[0].values.push_back(median(level.ratios()));
    }
    return chart;
}

}  // namespace

Findings live_rows(const Options& options) {
    Connection admin("idem_bench");
    Database few(admin, kFew);
    Database many(admin, kMany);
    std::vector<Level> levels;
    for (int rows : levels_up_to(options.live))
        levels.push_back(measure_level(few, many, rows, options));
    Figure figure = median_figure("first execution beside " + in_words(levels.back().rows) +
                                      " live records / " + in_words(kFewRows),
                                  levels.back().ratios(), Bound::AtLeast, 0.85);
    return {"live_rows", table_of(levels), {figure}, details_of(levels), {chart_of(levels)}};
}

}  // namespace idem::bench
