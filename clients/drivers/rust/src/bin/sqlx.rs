use std::time::Duration;

use idempotency_drivers::{
    Answer, BoxError, Cell, Driver, Outcome, PATH, Pooled, lease_of, pooler_port, port, read_cell, shown, variable,
};
use serde_json::{Value, json, value::RawValue};
use sqlx::{
    Column, ConnectOptions, Encode, Error, Executor, PgConnection, PgPool, Postgres, Row, Type,
    postgres::{PgConnectOptions, PgPoolOptions, PgRow, types::PgInterval},
    types::Json,
};
use tokio::runtime::Runtime;
use uuid::Uuid;

// page: transaction
const BEGIN: &str = "
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c) AS problem
  FROM idem_begin($1, $2, scope => 'pay', principal => $3) AS c";
const COMPLETE: &str = "SELECT idem_complete($1, 201, $2, $3, scope => 'pay', principal => $4)";

async fn pay(pool: &PgPool, key: &str, tenant: &str, amount: i32) -> Result<Answer, Error> {
    let mut tx = pool.begin().await?; // dropped without commit, it is rolled back
    let claim = sqlx::query(BEGIN).bind(key).bind(json!({"amount": amount})).bind(tenant).fetch_one(&mut *tx).await?;
    if let Some(problem) = claim.get::<Option<Value>, _>("problem") {
        let headers = json!({"Content-Type": "application/problem+json"});
        return Ok(Answer {
            status: problem["status"].as_i64().unwrap() as i32,
            headers,
            body: problem.to_string().into(),
        });
    }
    if claim.get::<&str, _>("outcome") == "replay" {
        return Ok(Answer { status: claim.get("status_code"), headers: claim.get("headers"), body: claim.get("body") });
    }
    let pay = sqlx::query_scalar("INSERT INTO payment (amount) VALUES ($1) RETURNING id");
    let id: i64 = pay.bind(amount).fetch_one(&mut *tx).await?;
    let body = json!({"id": id}).to_string().into_bytes();
    let headers = json!({"Content-Type": "application/json"});
    sqlx::query(COMPLETE).bind(key).bind(&body).bind(&headers).bind(tenant).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(Answer { status: 201, headers, body })
}
// page: end

fn code(error: &BoxError) -> String {
    match error.downcast_ref::<Error>() {
        Some(Error::Database(refused)) => refused.code().unwrap().into_owned(),
        Some(_) => "an error of sqlx".to_owned(),
        None => error.to_string(),
    }
}

fn cell(row: &PgRow, index: usize) -> Option<Cell> {
    let name = row.columns()[index].name().to_owned();
    read_cell!(name, Kind => row.try_get::<Option<Kind>, _>(index))
}

fn options(host: &str, port: &str) -> PgConnectOptions {
    let options = PgConnectOptions::new_without_pgpass().host(host).port(port.parse().unwrap());
    options.username(&variable("PGUSER")).database(&variable("PGDATABASE"))
}

/// What a parameter may be.
trait Bound: for<'q> Encode<'q, Postgres> + Type<Postgres> + Send + 'static {}
impl<T: for<'q> Encode<'q, Postgres> + Type<Postgres> + Send + 'static> Bound for T {}

/// One connection on which everything is undone, and the pool of one for what is committed.
struct Session<'a> {
    runtime: &'a Runtime,
    pool: PgPool,
}

impl Session<'_> {
    /// A value is bound to the last but `after`; the row of the last is the answer.
    fn rolled_back(&self, before: &[&str], sql: &str, value: impl Bound, after: &[&str]) -> Outcome<PgRow> {
        self.runtime.block_on(async {
            let mut tx = self.pool.begin().await?;
            for sql in before {
                tx.execute(*sql).await?;
            }
            // Prepared anew: a statement of the cache has the types of the first values.
            let mut row = sqlx::query(sql).bind(value).persistent(false).fetch_one(&mut *tx).await?;
            for sql in after {
                row = tx.fetch_one(*sql).await?;
            }
            tx.rollback().await?;
            Ok(row)
        })
    }

    fn begun(&self, arguments: &str, value: impl Bound) -> Outcome<String> {
        self.rolled_back(&[], &format!("SELECT outcome FROM idem_begin({arguments})"), value, &[])?;
        Ok(String::new())
    }

    fn body(&self, arguments: &str, value: impl Bound) -> Outcome<Vec<u8>> {
        let complete = format!("SELECT idem_complete('k', 200, {arguments})");
        Ok(self.rolled_back(&["SELECT idem_begin('k')"], &complete, value, &["SELECT body FROM idem_get('k')"])?.get(0))
    }

    fn completed(&self, arguments: &str, value: impl Bound) -> Outcome<String> {
        Ok(shown(&self.body(arguments, value)?))
    }

    fn lease(&self, sql: &str, value: impl Bound) -> Outcome<String> {
        Ok(format!("{} seconds", self.rolled_back(&[], &lease_of(sql), value, &[])?.get::<i32, _>(0)))
    }
}

fn tries(driver: &mut Driver, session: &Session) {
    let s = session;
    let wait = s.runtime;
    let text = || r#"{"a": 1}"#.to_owned();
    driver.attempt("key", "`$1` with a `&str`", || s.begun("$1", "k"));
    driver.attempt("key", "`$1` with a `Uuid`", || s.begun("$1", Uuid::new_v4()));
    driver.attempt("key", "`$1` with a `Uuid`, the same text having been run with a `&str`", || {
        let begin = || sqlx::query_scalar("SELECT outcome FROM idem_begin($1)");
        let _: String = wait.block_on(begin().bind("text").fetch_one(&s.pool))?;
        Ok(wait.block_on(begin().bind(Uuid::from_u128(0xff)).fetch_one(&s.pool))?)
    });
    driver.keys("`$1` with a `Vec<&str>`", |keys| {
        wait.block_on(async {
            let mut tx = s.pool.begin().await?;
            let each = sqlx::query_scalar("SELECT idem_once_each($1, scope => 'keys')");
            Ok(each.bind(keys).fetch_all(&mut *tx).await?)
        })
    });
    driver.attempt("request", "`$2` with a `&str` of JSON", || s.begun("'k', $1", text()));
    driver.attempt("request", "`$2::jsonb` with a `&str` of JSON", || s.begun("'k', $1::jsonb", text()));
    driver.attempt("request", "`$2` with a `serde_json::Value`", || s.begun("'k', $1", json!({"a": 1})));
    driver.attempt("request", "`$2` with `Json(x)` of a `struct`, or of `RawValue`", || {
        s.begun("'k', $1", Json(RawValue::from_string(text())?))
    });
    driver.attempt("request", "`$2` with `&[u8]` of JSON", || s.begun("'k', $1", text().into_bytes()));
    driver.attempt("request", "`$2::jsonb` with `&[u8]` of JSON", || s.begun("'k', $1::jsonb", text().into_bytes()));
    driver.attempt("body", "`$3` with `&[u8]` or `Vec<u8>`", || s.completed("$1", PATH.as_bytes().to_vec()));
    driver.attempt("body", "`$3` with a `&str`", || s.completed("$1", PATH));
    driver.attempt("body", "`$3::bytea` with a `&str`", || s.completed("$1::bytea", PATH));
    driver
        .attempt("body", "`$3` with a `serde_json::Value`", || s.completed("$1", serde_json::from_str::<Value>(PATH)?));
    driver.attempt("headers", "`$4` with a `serde_json::Value`", || {
        s.body("'', $1", json!({"X-A": ["1", "2"]})).map(|_| String::new())
    });
    driver.attempt("headers", "`$4` with `json!({\"X-A\": 1})`", || {
        s.body("'', $1", json!({"X-A": 1})).map(|_| String::new())
    });
    driver.attempt("lease", "`$5` with `30_i32`", || s.lease("$1", 30));
    driver.attempt("lease", "`$5` with `\"30 s\"`", || s.lease("$1", "30 s"));
    driver.attempt("lease", "`$5::interval` with `\"30 s\"`", || s.lease("$1::interval", "30 s"));
    driver.attempt("lease", "`$5` with a `Duration`", || s.lease("$1", Duration::from_secs(30)));
    driver.attempt("lease", "`$5` with a `Duration` of nanoseconds", || s.lease("$1", Duration::from_nanos(1)));
    driver.attempt("lease", "`$5` with a `PgInterval`", || {
        s.lease("$1", PgInterval { months: 0, days: 0, microseconds: 30_000_000 })
    });
    driver.attempt("principal", "`$1` with `None::<&str>`", || s.begun("'k', principal => $1", None::<String>));
    driver.attempt("token", "read as `i32`", || {
        let row = s.rolled_back(&[], "SELECT token FROM idem_begin($1)", "k", &[])?;
        Ok(row.try_get::<i32, _>(0)?.to_string())
    });
    driver.attempt("query!", "`outcome` of `query!(\"SELECT * FROM idem_begin($1)\", key)`", || {
        let claim = wait.block_on(sqlx::query!("SELECT * FROM idem_begin($1)", "checked").fetch_one(&s.pool))?;
        Ok(format!("`{}`", kind_of(&claim.outcome)))
    });
    driver.attempt("query!", "the same as `outcome AS \"outcome!\"`", || {
        let sql = sqlx::query!(r#"SELECT outcome AS "outcome!" FROM idem_begin($1)"#, "checked");
        Ok(format!("`{}`", kind_of(&wait.block_on(sql.fetch_one(&s.pool))?.outcome)))
    });
    driver.attempt("commit", "begin and complete, the transaction dropped without `commit()`", || {
        wait.block_on(async {
            let mut tx = s.pool.begin().await?;
            tx.execute("SELECT idem_begin('dropped')").await?;
            tx.execute("SELECT idem_complete('dropped', 200)").await
        })?;
        let left = "SELECT count(*) FROM idempotency.record WHERE key = 'dropped'";
        let left: i64 = wait.block_on(sqlx::query_scalar(left).fetch_one(&s.pool))?;
        Ok(format!("rolled back, without an error: {left} records"))
    });
    driver.token(|token| {
        let extend = sqlx::query_scalar("SELECT idem_extend('token', $1) > now()").bind(token);
        Ok(wait.block_on(extend.fetch_one(&s.pool))?)
    });
    driver.autocommit("begin and complete on a `PgPool`");
    driver.attempt("error", "`error.as_database_error()` and its `code()`", || {
        let extend = sqlx::query("SELECT idem_extend('token', $1)").bind(1_i64);
        let error = wait.block_on(extend.fetch_one(&s.pool)).err().unwrap();
        Ok(format!("`{}`", error.as_database_error().unwrap().code().unwrap()))
    });
    driver.prepared(|| {
        let begin = sqlx::query("SELECT outcome FROM idem_begin($1) -- ten times").bind("prepared");
        wait.block_on(begin.fetch_one(&s.pool)).unwrap();
    });
    let client = |capacity, persistent| {
        let options = options("127.0.0.1", &pooler_port()).statement_cache_capacity(capacity);
        Through { runtime: wait, conn: wait.block_on(options.connect()).unwrap(), persistent }
    };
    driver.pooled("", || client(100, true));
    driver.pooled("`statement_cache_capacity(0)`", || client(0, true));
    driver.pooled("`query(...).persistent(false)`", || client(100, false));
}

fn kind_of<T>(_: &T) -> String {
    std::any::type_name::<T>().replace("alloc::string::", "").replace("core::option::", "")
}

struct Through<'a> {
    runtime: &'a Runtime,
    conn: PgConnection,
    persistent: bool,
}

impl Pooled for Through<'_> {
    fn begin(&mut self) -> Outcome {
        self.runtime.block_on(self.conn.execute("BEGIN"))?;
        Ok(())
    }

    fn claim(&mut self, key: &str, scope: &str) -> Outcome<String> {
        let sql = format!("SELECT scope FROM idem_begin($1, scope => '{scope}')");
        let begin = sqlx::query_scalar(&sql).bind(key).persistent(self.persistent);
        Ok(self.runtime.block_on(begin.fetch_one(&mut self.conn))?)
    }

    fn commit(&mut self) -> Outcome {
        self.runtime.block_on(self.conn.execute("COMMIT"))?;
        Ok(())
    }
}

/// Of one connection: what is tried is of one session.
fn connect() -> (Runtime, PgPool) {
    let (runtime, one) = (idempotency_drivers::runtime(), PgPoolOptions::new().max_connections(1));
    let pool = runtime.block_on(one.connect_with(options(&variable("PGHOST"), &port()))).unwrap();
    (runtime, pool)
}

fn main() {
    let (runtime, pool) = connect();
    let session = Session { runtime: &runtime, pool };
    let mut driver = Driver::new("sqlx", code, |sql| {
        let row = runtime.block_on(session.pool.fetch_one(sql))?;
        Ok((0..row.len()).filter_map(|index| cell(&row, index)).collect())
    });
    driver.look_at_columns();
    driver.check_pay(|| {
        let (runtime, pool) = connect();
        move |key: &str, tenant: &str, amount| Ok(runtime.block_on(pay(&pool, key, tenant, amount))?)
    });
    tries(&mut driver, &session);
    driver.print();
    runtime.block_on(session.pool.close());
}
