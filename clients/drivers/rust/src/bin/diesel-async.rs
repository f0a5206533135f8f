use std::cell::RefCell;

use diesel::{
    connection::CacheSize,
    deserialize::{self, FromSql, QueryableByName},
    dsl::IntervalDsl,
    insert_into,
    pg::{Pg, PgValue},
    prelude::*,
    query_builder::{BoxedSqlQuery, SqlQuery},
    result::Error,
    row::{Field, NamedRow, Row},
    sql_query,
    sql_types::{Array, BigInt, Binary, Bool, Double, Integer, Interval, Jsonb, Nullable, Text, Timestamptz, Uuid},
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use idempotency_drivers::{
    Answer, BoxError, Cell, Driver, Outcome, PATH, Pooled, client, lease_of, pooler_port, port, shown,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::{runtime::Runtime, sync::Notify};

// page: transaction
diesel::table! {
    payment (id) { id -> BigInt, amount -> Integer }
}

#[derive(QueryableByName)]
struct Claim {
    #[diesel(sql_type = Text)]
    outcome: String,
    #[diesel(sql_type = Nullable<Integer>)]
    status_code: Option<i32>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    headers: Option<Value>,
    #[diesel(sql_type = Nullable<Binary>)]
    body: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    problem: Option<Value>,
}

const BEGIN: &str = "
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c) AS problem
  FROM idem_begin($1, $2, scope => 'pay', principal => $3) AS c";
const COMPLETE: &str = "SELECT idem_complete($1, 201, $2, $3, scope => 'pay', principal => $4)";

async fn pay(conn: &mut AsyncPgConnection, key: &str, tenant: &str, amount: i32) -> Result<Answer, Error> {
    conn.transaction(async |tx| {
        let begin = sql_query(BEGIN).bind::<Text, _>(key).bind::<Jsonb, _>(json!({"amount": amount}));
        let claim: Claim = begin.bind::<Text, _>(tenant).get_result(tx).await?;
        if let Some(problem) = claim.problem {
            let headers = json!({"Content-Type": "application/problem+json"});
            return Ok(Answer {
                status: problem["status"].as_i64().unwrap() as i32,
                headers,
                body: problem.to_string().into(),
            });
        }
        if claim.outcome == "replay" {
            let (headers, body) = (claim.headers.unwrap_or_default(), claim.body.unwrap_or_default());
            return Ok(Answer { status: claim.status_code.unwrap(), headers, body });
        }
        let pay = insert_into(payment::table).values(payment::amount.eq(amount)).returning(payment::id);
        let id: i64 = pay.get_result(tx).await?; // an error rolls back
        let body = json!({"id": id}).to_string().into_bytes();
        let headers = json!({"Content-Type": "application/json"});
        let complete = sql_query(COMPLETE).bind::<Text, _>(key).bind::<Binary, _>(&body).bind::<Jsonb, _>(&headers);
        complete.bind::<Text, _>(tenant).execute(tx).await?;
        Ok(Answer { status: 201, headers, body })
    })
    .await
}
// page: end

fn code(error: &BoxError) -> String {
    match error.downcast_ref::<Error>() {
        Some(Error::DatabaseError(kind, _)) => format!("`{kind:?}`"),
        Some(_) => "an error of Diesel".to_owned(),
        None => error.to_string(),
    }
}

/// A row of a statement whose columns are not known.
struct Cells(Vec<Cell>);

impl QueryableByName<Pg> for Cells {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let cells = (0..row.field_count()).filter_map(|index| {
            let field = Row::get(row, index)?;
            Some(cell(field.field_name()?.to_owned(), field.value()?))
        });
        Ok(Cells(cells.collect()))
    }
}

fn cell(name: String, value: PgValue) -> Cell {
    fn read<T: FromSql<ST, Pg>, ST>(value: PgValue) -> T {
        T::from_sql(value).unwrap()
    }
    let (kind, shown) = match value.get_oid().get() {
        16 => ("bool", read::<bool, Bool>(value).to_string()),
        17 => ("Vec<u8>", read::<Vec<u8>, Binary>(value).escape_ascii().to_string()),
        20 => ("i64", read::<i64, BigInt>(value).to_string()),
        23 => ("i32", read::<i32, Integer>(value).to_string()),
        25 => ("String", read::<String, Text>(value)),
        701 => ("f64", read::<f64, Double>(value).to_string()),
        1184 => ("OffsetDateTime", read::<OffsetDateTime, Timestamptz>(value).to_string()),
        3802 => ("Value", read::<Value, Jsonb>(value).to_string()),
        other => panic!("{name} has type {other}"),
    };
    Cell { name, kind, shown }
}

type Boxed<'a> = BoxedSqlQuery<'a, Pg, SqlQuery>;

struct Session<'a> {
    runtime: &'a Runtime,
    conn: RefCell<AsyncPgConnection>,
}

async fn connect(port: &str) -> AsyncPgConnection {
    AsyncPgConnection::try_from(client(port).await).await.unwrap()
}

impl Session<'_> {
    fn row(&self, sql: &str) -> Outcome<Vec<Cell>> {
        let Cells(cells) = self.runtime.block_on(sql_query(sql).get_result(&mut *self.conn.borrow_mut()))?;
        Ok(cells)
    }

    /// Values are bound to the statement that `bound` ends; the row of the last is the answer.
    fn rolled_back<'a>(
        &self,
        before: &[&str],
        sql: &str,
        bound: impl FnOnce(Boxed<'a>) -> Boxed<'a> + Send,
        after: &[&str],
    ) -> Outcome<Vec<Cell>> {
        let mut found = Vec::new();
        let undone: Result<(), Error> = self.runtime.block_on(self.conn.borrow_mut().transaction(async |tx| {
            for sql in before {
                let _: Cells = sql_query(*sql).get_result(tx).await?;
            }
            let mut row: Cells = bound(sql_query(sql).into_boxed()).get_result(tx).await?;
            for sql in after {
                row = sql_query(*sql).get_result(tx).await?;
            }
            found = row.0;
            Err(Error::RollbackTransaction)
        }));
        match undone {
            Err(Error::RollbackTransaction) => Ok(found),
            Err(error) => Err(error.into()),
            Ok(()) => unreachable!(),
        }
    }

    fn begun<'a>(&self, arguments: &str, bound: impl FnOnce(Boxed<'a>) -> Boxed<'a> + Send) -> Outcome<String> {
        self.rolled_back(&[], &format!("SELECT outcome FROM idem_begin({arguments})"), bound, &[])?;
        Ok(String::new())
    }

    fn body<'a>(&self, arguments: &str, bound: impl FnOnce(Boxed<'a>) -> Boxed<'a> + Send) -> Outcome<String> {
        const BODY: &str = "SELECT convert_from(body, 'UTF8') AS body FROM idem_get('k')";
        let complete = format!("SELECT idem_complete('k', 200, {arguments})");
        let row = self.rolled_back(&["SELECT outcome FROM idem_begin('k')"], &complete, bound, &[BODY])?;
        Ok(row.into_iter().next().unwrap().shown)
    }

    fn completed<'a>(&self, arguments: &str, bound: impl FnOnce(Boxed<'a>) -> Boxed<'a> + Send) -> Outcome<String> {
        Ok(shown(self.body(arguments, bound)?.as_bytes()))
    }

    fn lease<'a>(&self, sql: &str, bound: impl FnOnce(Boxed<'a>) -> Boxed<'a> + Send) -> Outcome<String> {
        Ok(format!("{} seconds", self.rolled_back(&[], &lease_of(sql), bound, &[])?[0].shown))
    }
}

fn tries(driver: &mut Driver, session: &Session) {
    let s = session;
    let wait = s.runtime;
    const JSON: &str = r#"{"a": 1}"#;
    driver.attempt("key", "`$1` with `Text`", || s.begun("$1", |q| q.bind::<Text, _>("k")));
    driver.attempt("key", "`$1` with `Uuid`", || s.begun("$1", |q| q.bind::<Uuid, _>(uuid::Uuid::new_v4())));
    driver.keys("`$1` with `Array<Text>` of a `Vec<&str>`", |keys| {
        #[derive(QueryableByName)]
        struct Key {
            #[diesel(sql_type = Text)]
            key: String,
        }
        let each = sql_query("SELECT idem_once_each($1, scope => 'keys') AS key").into_boxed::<Pg>();
        let each = match keys.iter().copied().collect::<Option<Vec<&str>>>() {
            Some(keys) => each.bind::<Array<Text>, _>(keys),
            None => each.bind::<Array<Nullable<Text>>, _>(keys),
        };
        let mut found = Vec::new();
        let undone: Result<(), Error> = wait.block_on(s.conn.borrow_mut().transaction(async |tx| {
            found = each.load::<Key>(tx).await?;
            Err(Error::RollbackTransaction)
        }));
        match undone {
            Err(Error::RollbackTransaction) => Ok(found.into_iter().map(|row| row.key).collect()),
            other => Err(other.unwrap_err().into()),
        }
    });
    driver.attempt("request", "`$2` with `Jsonb` of a `serde_json::Value`", || {
        s.begun("'k', $1", |q| q.bind::<Jsonb, _>(json!({"a": 1})))
    });
    driver.attempt("request", "`$2::jsonb` with `Text`", || s.begun("'k', $1::jsonb", |q| q.bind::<Text, _>(JSON)));
    driver.attempt("request", "`$2` with `Text`", || s.begun("'k', $1", |q| q.bind::<Text, _>(JSON)));
    driver.attempt("request", "`$2` with `Binary`", || s.begun("'k', $1", |q| q.bind::<Binary, _>(JSON.as_bytes())));
    driver.attempt("body", "`$3` with `Binary`", || s.completed("$1", |q| q.bind::<Binary, _>(PATH.as_bytes())));
    driver.attempt("body", "`$3` with `Text`", || s.completed("$1", |q| q.bind::<Text, _>(PATH)));
    driver.attempt("body", "`$3::bytea` with `Text`", || s.completed("$1::bytea", |q| q.bind::<Text, _>(PATH)));
    driver.attempt("body", "`$3` with `Jsonb`", || {
        let value: Value = serde_json::from_str(PATH)?;
        s.completed("$1", |q| q.bind::<Jsonb, _>(value))
    });
    driver.attempt("headers", "`$4` with `Jsonb`", || {
        s.body("'', $1", |q| q.bind::<Jsonb, _>(json!({"X-A": ["1", "2"]}))).map(|_| String::new())
    });
    driver.attempt("headers", "`$4` with `Jsonb` of `json!({\"X-A\": 1})`", || {
        s.body("'', $1", |q| q.bind::<Jsonb, _>(json!({"X-A": 1}))).map(|_| String::new())
    });
    driver.attempt("lease", "`$5` with `Integer`", || s.lease("$1", |q| q.bind::<Integer, _>(30)));
    driver.attempt("lease", "`$5::interval` with `Text`", || s.lease("$1::interval", |q| q.bind::<Text, _>("30 s")));
    driver.attempt("lease", "`$5` with `Interval` of `30.seconds()`", || {
        s.lease("$1", |q| q.bind::<Interval, _>(30.seconds()))
    });
    driver.attempt("principal", "`$1` with `Nullable<Text>` of `None`", || {
        s.begun("'k', principal => $1", |q| q.bind::<Nullable<Text>, _>(None::<&str>))
    });
    driver.attempt("token", "declared as `Integer`", || {
        #[derive(QueryableByName)]
        struct Token {
            #[diesel(sql_type = Integer)]
            token: i32,
        }
        let begin = sql_query("SELECT token FROM idem_begin('short', lease => '1 minute')");
        let Token { token } = wait.block_on(begin.get_result(&mut *s.conn.borrow_mut()))?;
        Ok(token.to_string())
    });
    driver.attempt("commit", "begin and complete, the closure returns an error", || {
        s.rolled_back(
            &["SELECT outcome FROM idem_begin('undone')"],
            "SELECT idem_complete('undone', 200)",
            |q| q,
            &[],
        )?;
        let left = s.row("SELECT count(*) FROM idempotency.record WHERE key = 'undone'")?;
        Ok(format!("rolled back: {} records", left[0].shown))
    });
    driver.attempt("commit", "begin, the future of `transaction` dropped", || {
        let mut conn = wait.block_on(connect(&port()));
        let begun = Notify::new();
        wait.block_on(async {
            let never = conn.transaction::<(), Error, _>(async |tx| {
                sql_query("SELECT outcome FROM idem_begin('dropped')").execute(tx).await?;
                begun.notify_one();
                std::future::pending().await
            });
            tokio::select! {
                ended = never => unreachable!("{ended:?}"),
                () = begun.notified() => {}
            }
        });
        let outcome = s.row("SELECT outcome FROM idem_begin('dropped')")?.remove(0).shown;
        Ok(format!("the transaction stays open, and a repeat gets `{outcome}`"))
    });
    driver.token(|token| {
        let extend = format!("SELECT idem_extend('token', {token}) > now() AS extended");
        Ok(s.row(&extend)?[0].shown == "true")
    });
    driver.autocommit("begin and complete outside of `transaction`");
    driver.attempt("error", "`Error::DatabaseError(kind, info)` of a lost lease", || {
        match s.row("SELECT idem_extend('token', 1)").err().unwrap().downcast_ref() {
            Some(Error::DatabaseError(kind, info)) => Ok(format!("`{kind:?}`, `{}`", info.message())),
            other => panic!("{other:?}"),
        }
    });
    driver.prepared(|| {
        let begin = sql_query("SELECT outcome FROM idem_begin($1) -- ten times").bind::<Text, _>("prepared");
        let _: Cells = wait.block_on(begin.get_result(&mut *s.conn.borrow_mut())).unwrap();
    });
    let through = |builder, size| {
        let mut conn = wait.block_on(connect(&pooler_port()));
        conn.set_prepared_statement_cache_size(size);
        Through { runtime: wait, conn, builder }
    };
    driver.pooled("`sql_query`", || through(false, CacheSize::Unbounded));
    driver.pooled("an insert by the query builder", || through(true, CacheSize::Unbounded));
    let disabled = "the same after `set_prepared_statement_cache_size(CacheSize::Disabled)`";
    driver.pooled(disabled, || through(true, CacheSize::Disabled));
}

struct Through<'a> {
    runtime: &'a Runtime,
    conn: AsyncPgConnection,
    /// Whether there is an insert by the query builder, too.
    builder: bool,
}

impl Pooled for Through<'_> {
    fn begin(&mut self) -> Outcome {
        Ok(self.runtime.block_on(self.conn.batch_execute("BEGIN"))?)
    }

    fn claim(&mut self, key: &str, scope: &str) -> Outcome<String> {
        let begin = sql_query(format!("SELECT scope FROM idem_begin($1, scope => '{scope}')")).bind::<Text, _>(key);
        let mut claimed: Cells = self.runtime.block_on(begin.get_result(&mut self.conn))?;
        if self.builder {
            let pay = insert_into(payment::table).values(payment::amount.eq(1));
            self.runtime.block_on(pay.execute(&mut self.conn))?;
        }
        Ok(claimed.0.remove(0).shown)
    }

    fn commit(&mut self) -> Outcome {
        Ok(self.runtime.block_on(self.conn.batch_execute("COMMIT"))?)
    }
}

fn main() {
    let runtime = idempotency_drivers::runtime();
    let session = Session { runtime: &runtime, conn: RefCell::new(runtime.block_on(connect(&port()))) };
    let mut driver = Driver::new("diesel-async", code, |sql| session.row(sql));
    driver.look_at_columns();
    driver.check_pay(|| {
        let runtime = idempotency_drivers::runtime();
        let mut conn = runtime.block_on(connect(&port()));
        move |key: &str, tenant: &str, amount| Ok(runtime.block_on(pay(&mut conn, key, tenant, amount))?)
    });
    tries(&mut driver, &session);
    driver.print();
}
