use idempotency_drivers::{
    Answer, BoxError, Cell, Driver, Outcome, PATH, Pooled, client, lease_of, pooler_port, port, read_cell, shown,
};
use serde_json::{Value, json, value::RawValue};
use tokio::runtime::Runtime;
use tokio_postgres::{
    Client, Error, Row, Statement,
    types::{Json, ToSql, Type},
};
use uuid::Uuid;

// page: transaction
const BEGIN: &str = "
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c) AS problem
  FROM idem_begin($1, $2, scope => 'pay', principal => $3) AS c";
const COMPLETE: &str = "SELECT idem_complete($1, 201, $2::bytea, $3, scope => 'pay', principal => $4)";

async fn pay(client: &mut Client, key: &str, tenant: &str, amount: i32) -> Result<Answer, Error> {
    let tx = client.transaction().await?; // dropped without commit, it is rolled back
    let claim = tx.query_one(BEGIN, &[&key, &json!({"amount": amount}), &tenant]).await?;
    if let Some(problem) = claim.get::<_, Option<Value>>("problem") {
        let headers = json!({"Content-Type": "application/problem+json"});
        return Ok(Answer {
            status: problem["status"].as_i64().unwrap() as i32,
            headers,
            body: problem.to_string().into(),
        });
    }
    if claim.get::<_, &str>("outcome") == "replay" {
        return Ok(Answer { status: claim.get("status_code"), headers: claim.get("headers"), body: claim.get("body") });
    }
    let paid = tx.query_one("INSERT INTO payment (amount) VALUES ($1) RETURNING id", &[&amount]).await?;
    let body = json!({"id": paid.get::<_, i64>("id")}).to_string().into_bytes();
    let headers = json!({"Content-Type": "application/json"});
    tx.execute(COMPLETE, &[&key, &body, &headers, &tenant]).await?;
    tx.commit().await?;
    Ok(Answer { status: 201, headers, body })
}
// page: end

fn code(error: &BoxError) -> String {
    match error.downcast_ref::<Error>() {
        Some(error) => error.code().map_or("an error of the driver".to_owned(), |code| code.code().to_owned()),
        None => error.to_string(),
    }
}

fn cell(row: &Row, index: usize) -> Option<Cell> {
    let name = row.columns()[index].name().to_owned();
    read_cell!(name, Kind => row.try_get::<_, Option<Kind>>(index))
}

type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

struct Session<'a> {
    runtime: &'a Runtime,
    client: Client,
}

impl Session<'_> {
    /// The row of the last; all is undone.
    fn rolled_back(&self, statements: &[(&str, Values)]) -> Outcome<Row> {
        self.runtime.block_on(async {
            self.client.batch_execute("BEGIN").await?;
            let mut row = None;
            for (sql, values) in statements {
                match self.client.query_one(*sql, values).await {
                    Ok(one) => row = Some(one),
                    Err(error) => {
                        self.client.batch_execute("ROLLBACK").await?;
                        return Err(error.into());
                    }
                }
            }
            self.client.batch_execute("ROLLBACK").await?;
            Ok(row.unwrap())
        })
    }

    fn begun(&self, arguments: &str, value: &(dyn ToSql + Sync)) -> Outcome<String> {
        self.rolled_back(&[(&format!("SELECT outcome FROM idem_begin({arguments})"), &[value])])?;
        Ok(String::new())
    }

    fn body(&self, arguments: &str, value: &(dyn ToSql + Sync)) -> Outcome<Vec<u8>> {
        let complete = format!("SELECT idem_complete('k', 200, {arguments})");
        let begin = ("SELECT outcome FROM idem_begin('k')", &[] as Values);
        Ok(self.rolled_back(&[begin, (&complete, &[value]), ("SELECT body FROM idem_get('k')", &[])])?.get(0))
    }

    fn completed(&self, arguments: &str, value: &(dyn ToSql + Sync)) -> Outcome<String> {
        Ok(shown(&self.body(arguments, value)?))
    }

    fn lease(&self, sql: &str, value: &(dyn ToSql + Sync)) -> Outcome<String> {
        Ok(format!("{} seconds", self.rolled_back(&[(&lease_of(sql), &[value])])?.get::<_, i32>(0)))
    }

    /// Two requests that differ in the last of their digits, parsed and sent.
    fn long_numbers(&self, parse: impl Fn(&str) -> Box<dyn ToSql + Sync>) -> Outcome<String> {
        let sent =
            ["100000000000000000000000001", "100000000000000000000000002"].map(|n| parse(&format!("{{\"a\": {n}}}")));
        let begin = "SELECT outcome FROM idem_begin('long', $1)";
        let outcome =
            self.rolled_back(&[(begin, &[&*sent[0]]), ("SELECT idem_complete('long')", &[]), (begin, &[&*sent[1]])])?;
        Ok(format!("`{}` for the other number", outcome.get::<_, &str>(0)))
    }
}

fn tries(driver: &mut Driver, session: &Session, runtime: &Runtime) {
    let s = session;
    let (text, bytes) = (r#"{"a": 1}"#, PATH.as_bytes());
    driver.attempt("key", "`$1` with a `&str`", || s.begun("$1", &"k"));
    driver.attempt("key", "`$1` with a `Uuid`", || s.begun("$1", &Uuid::new_v4()));
    driver.attempt("key", "`$1::uuid::text` with a `Uuid`", || s.begun("$1::uuid::text", &Uuid::new_v4()));
    driver.keys("`$1` with a `Vec<&str>`", |keys| {
        runtime.block_on(async {
            s.client.batch_execute("BEGIN").await?;
            let rows = s.client.query("SELECT idem_once_each($1, scope => 'keys')", &[&keys]).await;
            s.client.batch_execute("ROLLBACK").await?;
            Ok(rows?.iter().map(|row| row.get(0)).collect())
        })
    });
    driver.attempt("request", "`$2` with a `&str` of JSON", || s.begun("'k', $1", &text));
    driver.attempt("request", "`$2::text::jsonb` with a `&str` of JSON", || s.begun("'k', $1::text::jsonb", &text));
    driver.attempt("request", "`$2` with a `serde_json::Value`", || s.begun("'k', $1", &json!({"a": 1})));
    driver.attempt("request", "`$2` with `Json(x)` of a `struct`, or of `&RawValue`", || {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        s.begun("'k', $1", &Json(raw))
    });
    driver.attempt("request", "`$2` with `&[u8]` of JSON", || s.begun("'k', $1", &text.as_bytes()));
    driver.attempt("request", "numbers of 27 digits in a `serde_json::Value`", || {
        s.long_numbers(|text| Box::new(serde_json::from_str::<Value>(text).unwrap()))
    });
    driver.attempt("request", "numbers of 27 digits in a `RawValue`", || {
        s.long_numbers(|text| Box::new(Json(serde_json::from_str::<Box<RawValue>>(text).unwrap())))
    });
    driver.attempt("body", "`$3::bytea` with `&[u8]` or `Vec<u8>`", || s.completed("$1::bytea", &bytes));
    driver.attempt("body", "`$3` with `&[u8]`", || s.completed("$1", &bytes));
    driver.attempt("body", "`$3` with a `&str`", || s.completed("$1", &PATH));
    driver.attempt("body", "`$3::bytea` with a `&str`", || s.completed("$1::bytea", &PATH));
    driver.attempt("headers", "`$4` with a `serde_json::Value`", || {
        s.body("'', $1", &json!({"X-A": ["1", "2"]})).map(|_| String::new())
    });
    driver.attempt("headers", "`$4` with `json!({\"X-A\": 1})`", || {
        s.body("'', $1", &json!({"X-A": 1})).map(|_| String::new())
    });
    driver.attempt("lease", "`$5` with `30_i32`", || s.lease("$1", &30));
    driver.attempt("lease", "`$5` with `\"30 s\"`", || s.lease("$1", &"30 s"));
    driver.attempt("lease", "`$5::text::interval` with `\"30 s\"`", || s.lease("$1::text::interval", &"30 s"));
    driver
        .attempt("lease", "`$5 * interval '1 ms'` with `30_000_i64`", || s.lease("$1 * interval '1 ms'", &30_000_i64));
    driver.attempt("lease", "`$5::bigint * interval '1 ms'` with `30_000_i64`", || {
        s.lease("$1::bigint * interval '1 ms'", &30_000_i64)
    });
    driver.attempt("status", "`$2` with `201_i64`", || {
        s.rolled_back(&[("SELECT idem_complete('k', $1)", &[&201_i64])]).map(|_| String::new())
    });
    driver.attempt("principal", "`$1` with `None::<&str>`", || s.begun("'k', principal => $1", &None::<&str>));
    driver.attempt("commit", "begin and complete, the transaction dropped without `commit()`", || {
        let mut other = runtime.block_on(client(&port()));
        runtime.block_on(async {
            let tx = other.transaction().await?;
            tx.query_one("SELECT outcome FROM idem_begin('dropped')", &[]).await?;
            tx.query_one("SELECT idem_complete('dropped', 200)", &[]).await
        })?;
        let left =
            runtime.block_on(other.query_one("SELECT count(*) FROM idempotency.record WHERE key = 'dropped'", &[]))?;
        Ok(format!("rolled back, without an error: {} records", left.get::<_, i64>(0)))
    });
    driver.token(|token| {
        Ok(runtime.block_on(s.client.query_one("SELECT idem_extend('token', $1) > now()", &[&token]))?.get(0))
    });
    driver.autocommit("begin and complete on a `Client`");
    driver.attempt("error", "`error.code().map(SqlState::code)`", || {
        let error = runtime.block_on(s.client.query_one("SELECT idem_extend('token', $1)", &[&1_i64])).unwrap_err();
        Ok(format!("`{}`", error.code().unwrap().code()))
    });
    driver.prepared(|| {
        runtime
            .block_on(s.client.query_one("SELECT outcome FROM idem_begin($1) -- ten times", &[&"prepared"]))
            .unwrap();
    });
    let through = |how| Through { runtime, client: runtime.block_on(client(&pooler_port())), how, statement: None };
    driver.pooled("", || through(How::Text));
    driver.pooled("a `Statement` that is kept, as deadpool's `prepare_cached` does", || through(How::Kept));
    driver.pooled("`query_typed`", || through(How::Typed));
}

enum How {
    Text,
    Kept,
    Typed,
}

struct Through<'a> {
    runtime: &'a Runtime,
    client: Client,
    how: How,
    statement: Option<Statement>,
}

impl Pooled for Through<'_> {
    fn begin(&mut self) -> Outcome {
        Ok(self.runtime.block_on(self.client.batch_execute("BEGIN"))?)
    }

    fn claim(&mut self, key: &str, scope: &str) -> Outcome<String> {
        let sql = format!("SELECT scope FROM idem_begin($1, scope => '{scope}')");
        self.runtime.block_on(async {
            let row = match self.how {
                How::Text => self.client.query_one(&sql, &[&key]).await?,
                How::Typed => self.client.query_typed(&sql, &[(&key, Type::TEXT)]).await?.remove(0),
                How::Kept => {
                    if self.statement.is_none() {
                        self.statement = Some(self.client.prepare(&sql).await?);
                    }
                    self.client.query_one(self.statement.as_ref().unwrap(), &[&key]).await?
                }
            };
            Ok(row.get(0))
        })
    }

    fn commit(&mut self) -> Outcome {
        Ok(self.runtime.block_on(self.client.batch_execute("COMMIT"))?)
    }
}

fn main() {
    let runtime = idempotency_drivers::runtime();
    let session = Session { runtime: &runtime, client: runtime.block_on(client(&port())) };
    let mut driver = Driver::new("tokio-postgres", code, |sql| {
        let row = runtime.block_on(session.client.query_one(sql, &[]))?;
        Ok((0..row.len()).filter_map(|index| cell(&row, index)).collect())
    });
    driver.look_at_columns();
    driver.check_pay(|| {
        let runtime = idempotency_drivers::runtime();
        let mut client = runtime.block_on(client(&port()));
        move |key: &str, tenant: &str, amount| Ok(runtime.block_on(pay(&mut client, key, tenant, amount))?)
    });
    tries(&mut driver, &session, &runtime);
    driver.print();
}
