use idempotency_drivers::{
    Answer, BoxError, Cell, Driver, Outcome, PATH, Pooled, lease_of, pooler_port, port, read_cell, shown, variable,
};
use sea_orm::{
    ActiveModelTrait, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, QueryResult,
    RuntimeErr, Set, SqlxPostgresConnector, Statement, TransactionTrait, sea_query::ArrayType,
};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::runtime::Runtime;
use uuid::Uuid;

// page: transaction
mod payment {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "payment")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i64,
        pub amount: i32,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

const BEGIN: &str = "
SELECT c.outcome, c.status_code, c.headers, c.body, idem_problem(c) AS problem
  FROM idem_begin($1, $2, scope => 'pay', principal => $3) AS c";
const COMPLETE: &str = "SELECT idem_complete($1, 201, $2, $3, scope => 'pay', principal => $4)";

fn sql<const N: usize>(text: &str, values: [sea_orm::Value; N]) -> Statement {
    Statement::from_sql_and_values(DbBackend::Postgres, text, values)
}

async fn pay(db: &DatabaseConnection, key: &str, tenant: &str, amount: i32) -> Result<Answer, DbErr> {
    let tx = db.begin().await?; // dropped without commit, it is rolled back
    let begin = sql(BEGIN, [key.into(), json!({"amount": amount}).into(), tenant.into()]);
    let claim = tx.query_one(begin).await?.unwrap();
    if let Some(problem) = claim.try_get::<Option<Value>>("", "problem")? {
        let headers = json!({"Content-Type": "application/problem+json"});
        return Ok(Answer {
            status: problem["status"].as_i64().unwrap() as i32,
            headers,
            body: problem.to_string().into(),
        });
    }
    if claim.try_get::<String>("", "outcome")? == "replay" {
        let (headers, body) = (claim.try_get("", "headers")?, claim.try_get("", "body")?);
        return Ok(Answer { status: claim.try_get("", "status_code")?, headers, body });
    }
    let paid = payment::ActiveModel { amount: Set(amount), ..Default::default() }.insert(&tx).await?;
    let body = json!({"id": paid.id}).to_string().into_bytes();
    let headers = json!({"Content-Type": "application/json"});
    let complete = sql(COMPLETE, [key.into(), body.clone().into(), headers.clone().into(), tenant.into()]);
    tx.execute(complete).await?;
    tx.commit().await?;
    Ok(Answer { status: 201, headers, body })
}
// page: end

fn code(error: &BoxError) -> String {
    match error.downcast_ref::<DbErr>() {
        Some(error) => sqlstate(error).unwrap_or("an error of SeaORM".to_owned()),
        None => error.to_string(),
    }
}

fn sqlstate(error: &DbErr) -> Option<String> {
    match error {
        DbErr::Query(RuntimeErr::SqlxError(error)) | DbErr::Exec(RuntimeErr::SqlxError(error)) => {
            Some(error.as_database_error()?.code()?.into_owned())
        }
        _ => None,
    }
}

fn cell(row: &QueryResult, index: usize) -> Option<Cell> {
    let name = row.column_names().swap_remove(index);
    read_cell!(name, Kind => row.try_get_by_index::<Option<Kind>>(index))
}

/// Of one connection: what is tried is of one session.
fn connect(runtime: &Runtime, host: &str, port: &str, capacity: usize) -> DatabaseConnection {
    let options = PgConnectOptions::new_without_pgpass().host(host).port(port.parse().unwrap());
    let options = options.username(&variable("PGUSER")).database(&variable("PGDATABASE"));
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options.statement_cache_capacity(capacity));
    SqlxPostgresConnector::from_sqlx_postgres_pool(runtime.block_on(pool).unwrap())
}

struct Session<'a> {
    runtime: &'a Runtime,
    db: DatabaseConnection,
    /// A statement of the cache has the types of the first values.
    uncached: DatabaseConnection,
}

impl Session<'_> {
    /// The value is bound to the last but `after`; the row of the last is the answer.
    fn rolled_back(
        &self,
        before: &[&str],
        text: &str,
        value: impl Into<sea_orm::Value>,
        after: &[&str],
    ) -> Outcome<QueryResult> {
        let value = value.into();
        self.runtime.block_on(async {
            let tx = self.uncached.begin().await?;
            for sql in before {
                tx.execute_unprepared(sql).await?;
            }
            let mut row = tx.query_one(sql(text, [value])).await?;
            for text in after {
                row = tx.query_one(sql(text, [])).await?;
            }
            tx.rollback().await?;
            Ok(row.unwrap())
        })
    }

    fn begun(&self, arguments: &str, value: impl Into<sea_orm::Value>) -> Outcome<String> {
        self.rolled_back(&[], &format!("SELECT outcome FROM idem_begin({arguments})"), value, &[])?;
        Ok(String::new())
    }

    fn body(&self, arguments: &str, value: impl Into<sea_orm::Value>) -> Outcome<Vec<u8>> {
        let complete = format!("SELECT idem_complete('k', 200, {arguments})");
        let row =
            self.rolled_back(&["SELECT idem_begin('k')"], &complete, value, &["SELECT body FROM idem_get('k')"])?;
        Ok(row.try_get_by_index(0)?)
    }

    fn completed(&self, arguments: &str, value: impl Into<sea_orm::Value>) -> Outcome<String> {
        Ok(shown(&self.body(arguments, value)?))
    }

    fn lease(&self, text: &str, value: impl Into<sea_orm::Value>) -> Outcome<String> {
        let seconds: i32 = self.rolled_back(&[], &lease_of(text), value, &[])?.try_get_by_index(0)?;
        Ok(format!("{seconds} seconds"))
    }
}

fn tries(driver: &mut Driver, session: &Session) {
    const JSON: &str = r#"{"a": 1}"#;
    let s = session;
    let wait = s.runtime;
    let _inside = wait.enter(); // connections of a pool are dropped there
    driver.attempt("key", "`$1` with a `&str`", || s.begun("$1", "k"));
    driver.attempt("key", "`$1` with a `Uuid`", || s.begun("$1", Uuid::new_v4()));
    driver.attempt("key", "`$1::uuid::text` with a `Uuid`", || s.begun("$1::uuid::text", Uuid::new_v4()));
    driver.keys("`$1` with a `Vec<String>`", |keys| {
        let keys = keys.into_iter().map(|key| key.map(str::to_owned).into()).collect();
        let keys = sea_orm::Value::Array(ArrayType::String, Some(Box::new(keys)));
        let db = s.db.clone();
        let each = async move {
            let tx = db.begin().await?;
            let each = tx.query_all(sql("SELECT idem_once_each($1, scope => 'keys')", [keys])).await?;
            let each: Result<_, DbErr> = each.iter().map(|row| row.try_get_by_index(0)).collect();
            Ok(each?)
        };
        wait.block_on(async { tokio::spawn(each).await }).unwrap_or(Err("a panic of SeaORM".into()))
    });
    driver.attempt("request", "`$2` with a `&str` of JSON", || s.begun("'k', $1", JSON));
    driver.attempt("request", "`$2::jsonb` with a `&str` of JSON", || s.begun("'k', $1::jsonb", JSON));
    driver.attempt("request", "`$2` with a `serde_json::Value`", || s.begun("'k', $1", json!({"a": 1})));
    driver.attempt("request", "`$2` with a `Vec<u8>` of JSON", || s.begun("'k', $1", JSON.as_bytes().to_vec()));
    driver.attempt("body", "`$3` with a `Vec<u8>`", || s.completed("$1", PATH.as_bytes().to_vec()));
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
    driver.attempt("lease", "`$5 * interval '1 ms'` with `30_000_i64`", || s.lease("$1 * interval '1 ms'", 30_000_i64));
    driver.attempt("principal", "`$1` with `None::<String>`", || s.begun("'k', principal => $1", None::<String>));
    driver.attempt("token", "read as `i32`", || {
        let row = s.rolled_back(&[], "SELECT token FROM idem_begin($1)", "k", &[])?;
        Ok(row.try_get_by_index::<i32>(0)?.to_string())
    });
    driver.attempt("commit", "begin and complete, the transaction dropped without `commit()`", || {
        wait.block_on(async {
            let tx = s.db.begin().await?;
            tx.execute_unprepared("SELECT idem_begin('dropped')").await?;
            tx.execute_unprepared("SELECT idem_complete('dropped', 200)").await
        })?;
        let left = "SELECT count(*) FROM idempotency.record WHERE key = 'dropped'";
        let left: i64 = wait.block_on(s.db.query_one(sql(left, [])))?.unwrap().try_get_by_index(0)?;
        Ok(format!("rolled back, without an error: {left} records"))
    });
    driver.token(|token| {
        let extend = sql("SELECT idem_extend('token', $1) > now()", [token.into()]);
        Ok(wait.block_on(s.db.query_one(extend))?.unwrap().try_get_by_index(0)?)
    });
    driver.autocommit("begin and complete on a `DatabaseConnection`");
    driver.attempt("error", "`DbErr::Query` or `DbErr::Exec` with `RuntimeErr::SqlxError(e)`", || {
        let error = wait.block_on(s.db.query_one(sql("SELECT idem_extend('token', 1)", []))).unwrap_err();
        Ok(format!("`{}`", sqlstate(&error).unwrap()))
    });
    driver.prepared(|| {
        let begin = sql("SELECT outcome FROM idem_begin($1) -- ten times", ["prepared".into()]);
        wait.block_on(s.db.query_one(begin)).unwrap();
    });
    let through =
        |capacity| Through { runtime: wait, db: connect(wait, "127.0.0.1", &pooler_port(), capacity), tx: None };
    driver.pooled("", || through(100));
    driver.pooled("`statement_cache_capacity(0)`", || through(0));
}

struct Through<'a> {
    runtime: &'a Runtime,
    db: DatabaseConnection,
    tx: Option<DatabaseTransaction>,
}

impl Pooled for Through<'_> {
    fn begin(&mut self) -> Outcome {
        self.tx = Some(self.runtime.block_on(self.db.begin())?);
        Ok(())
    }

    fn claim(&mut self, key: &str, scope: &str) -> Outcome<String> {
        let begin = sql(&format!("SELECT scope FROM idem_begin($1, scope => '{scope}')"), [key.into()]);
        let claimed = self.runtime.block_on(self.tx.as_ref().unwrap().query_one(begin))?;
        Ok(claimed.unwrap().try_get_by_index(0)?)
    }

    fn commit(&mut self) -> Outcome {
        let tx = self.tx.take().unwrap();
        self.runtime.block_on(async {
            tx.commit().await?;
            // The pool pings before it takes the connection back.
            while self.db.get_postgres_connection_pool().num_idle() == 0 {
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }
}

fn main() {
    let runtime = idempotency_drivers::runtime();
    let own = |runtime: &Runtime, capacity| connect(runtime, &variable("PGHOST"), &port(), capacity);
    let session = Session { runtime: &runtime, db: own(&runtime, 100), uncached: own(&runtime, 0) };
    let mut driver = Driver::new("sea-orm", code, |text| {
        let row = runtime.block_on(session.db.query_one(sql(text, [])))?.ok_or("no row")?;
        Ok((0..row.column_names().len()).filter_map(|index| cell(&row, index)).collect())
    });
    driver.look_at_columns();
    driver.check_pay(|| {
        let runtime = idempotency_drivers::runtime();
        let db = own(&runtime, 100);
        move |key: &str, tenant: &str, amount| Ok(runtime.block_on(pay(&db, key, tenant, amount))?)
    });
    tries(&mut driver, &session);
    driver.print();
}
