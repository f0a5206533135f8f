//! What the programs of the drivers have in common: they try, they look, and they print what they saw.

use std::{collections::BTreeMap, error::Error, thread, time::Duration};

use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::{Client, NoTls};

pub type BoxError = Box<dyn Error + Send + Sync>;
pub type Outcome<T = ()> = Result<T, BoxError>;

/// What a client sends as JSON with a backslash in it; an escape that is undone leaves no JSON.
pub const PATH: &str = r#"{"path":"C:\\dir"}"#;

const COLUMNS: &str = "outcome key scope principal token attempt status status_code headers body body_omitted error
    recovery_point state holder retry_after created_at finished_at lease_until expires_at";

/// A value that is not null, of a row.
pub struct Cell {
    pub name: String,
    /// The type in Rust that it can be read as.
    pub kind: &'static str,
    /// Of text, of a number, of what is true or false.
    pub shown: String,
}

/// Reads a cell as the first type that the driver takes for it: `read_cell!(name, Kind => row.get::<Option<Kind>>(0))`.
#[macro_export]
macro_rules! read_cell {
    ($name:expr, $kind:ident => $read:expr) => {
        $crate::read_cell!($name, $kind => $read; "String": String => |x| x, "i32": i32 => |x| x.to_string(),
            "i64": i64 => |x| x.to_string(), "f64": f64 => |x| x.to_string(), "bool": bool => |x| x.to_string(),
            "Vec<u8>": Vec<u8> => |_| String::new(), "Value": serde_json::Value => |x| x.to_string(),
            "OffsetDateTime": time::OffsetDateTime => |_| String::new())
    };
    ($name:expr, $kind:ident => $read:expr; $($shown:literal: $type:ty => $show:expr),*) => {{
        $({
            type $kind = $type;
            if let Ok(value) = $read {
                let show: fn($type) -> String = $show;
                return value.map(|value| Cell { name: $name, kind: $shown, shown: show(value) });
            }
        })*
        panic!("{} can't be read", $name)
    }};
}

/// Runs a statement without parameters, in autocommit, always on the same connection: the first row.
type Rows<'a> = Box<dyn Fn(&str) -> Outcome<Vec<Cell>> + 'a>;

pub struct Driver<'a> {
    name: &'static str,
    version: String,
    rows: Rows<'a>,
    code: fn(&BoxError) -> String,
    columns: BTreeMap<String, &'static str>,
    tries: Vec<serde_json::Value>,
}

/// A client of the pooler, that claims in a scope of its own and returns the scope that it was told.
pub trait Pooled {
    fn begin(&mut self) -> Outcome;
    fn claim(&mut self, key: &str, scope: &str) -> Outcome<String>;
    fn commit(&mut self) -> Outcome;
}

impl<'a> Driver<'a> {
    pub fn new(
        name: &'static str,
        code: fn(&BoxError) -> String,
        rows: impl Fn(&str) -> Outcome<Vec<Cell>> + 'a,
    ) -> Self {
        let version = format!("{name} {}", locked_version(name));
        Driver { name, version, rows: Box::new(rows), code, columns: BTreeMap::new(), tries: Vec::new() }
    }

    fn look(&mut self, sql: &str) -> Vec<Cell> {
        let cells = (self.rows)(sql).unwrap();
        for cell in &cells {
            self.columns.entry(cell.name.clone()).or_insert(cell.kind);
        }
        cells
    }

    fn value(&self, sql: &str) -> String {
        (self.rows)(sql).unwrap().remove(0).shown
    }

    fn begin_with_token(&mut self, sql: &str) -> i64 {
        let cells = self.look(sql);
        cells.iter().find(|cell| cell.name == "token").unwrap().shown.parse().unwrap()
    }

    pub fn look_at_columns(&mut self) {
        const NAMES: &str = "'columns-1', scope => 'columns', principal => 'acme'";
        let begin = format!("SELECT * FROM idem_begin({NAMES}, lease => '1 minute', holder => 'me')");
        let ended = |this: &Self, function: &str, arguments: &str, token: i64| {
            this.value(&format!(
                "SELECT {function}('columns-1', {arguments}, scope => 'columns', principal => 'acme', token => {token})::text"
            ));
        };
        let token = self.begin_with_token(&begin);
        self.look(&begin);
        ended(self, "idem_checkpoint", "'charged', '{\"charge\": 1}'", token);
        ended(self, "idem_fail", "'no', retryable => true, retry_after => '0'", token);
        let token = self.begin_with_token(&begin);
        ended(self, "idem_complete", "201, '{\"id\": 1}', '{\"X-A\": [\"1\", \"2\"]}'", token);
        self.look(&begin);
        for name in COLUMNS.split_whitespace() {
            assert!(self.columns.contains_key(name), "nothing was seen in column {name}");
        }
    }

    fn note(&mut self, about: &str, write: &str, gives: &str) {
        self.tries.push(json!({"about": about, "write": write, "gives": gives}));
    }

    /// The code that the page shows does what it says. Each of its callers has a connection of its own.
    pub fn check_pay<P: Pay>(&self, connect: impl Fn() -> P) {
        let mut pay = connect();
        let first = pay("pay-1", "acme", 100).unwrap();
        let again = pay("pay-1", "acme", 100).unwrap();
        let other = pay("pay-1", "acme", 200).unwrap();
        assert!(first.status == 201 && first.body.starts_with(b"{\"id\":"), "{first:?}");
        assert!(again.status == 201 && again.body == first.body && again.headers == first.headers, "{again:?}");
        assert!(other.status == 422 && String::from_utf8_lossy(&other.body).contains("mismatch"), "{other:?}");
        assert_eq!(self.value("SELECT count(*) FROM payment"), "1");
        check_rolled_back_in_the_middle(pay, connect(), &Gate::close());
    }

    /// An empty text says that it works.
    pub fn attempt(&mut self, about: &str, write: &str, work: impl FnOnce() -> Outcome<String>) {
        let gives = match work() {
            Ok(text) if text.is_empty() => "works".to_owned(),
            Ok(text) => text,
            Err(error) => (self.code)(&error),
        };
        self.note(about, write, &gives);
    }

    /// `each` is idem_once_each with these keys, and its rows.
    pub fn keys(&mut self, write: &str, each: impl Fn(Vec<Option<&str>>) -> Outcome<Vec<String>>) {
        let tries = [
            (write, vec![Some("b"), Some("a"), Some("b")], vec!["b", "a"]),
            ("the same, empty", vec![], vec![]),
            ("the same, of `Option`, with a `None` in it", vec![Some("b"), None], vec!["b"]),
        ];
        for (write, keys, wanted) in tries {
            self.attempt("keys", write, || {
                let found = each(keys)?;
                Ok(if found == wanted { String::new() } else { format!("`{found:?}`") })
            });
        }
    }

    pub fn token(&mut self, extend: impl FnOnce(i64) -> Outcome<bool>) {
        let token = self.begin_with_token("SELECT token FROM idem_begin('token', lease => '1 minute')");
        self.attempt("token", "the token as it came", || {
            assert!(extend(token)?);
            Ok(String::new())
        });
    }

    pub fn autocommit(&mut self, write: &str) {
        self.value("SELECT outcome FROM idem_begin('autocommit')");
        let error = (self.rows)("SELECT idem_complete('autocommit', 200)").err().unwrap();
        let status = self.value("SELECT status FROM idem_get('autocommit')");
        self.note("autocommit", write, &format!("{}, and the key stays `{status}`", (self.code)(&error)));
    }

    /// How many prepared statements the session has of one that names itself so.
    pub fn prepared(&mut self, call: impl Fn()) {
        (0..10).for_each(|_| call());
        let count = self
            .value("SELECT count(*) FROM pg_prepared_statements WHERE position('ten' || ' times' IN statement) > 0");
        let verb = if count == "1" { " stays" } else { "s stay" };
        let left = format!("{count} prepared statement{verb} in the session");
        self.note("prepared", "the same statement ten times", &left);
    }

    /// Through a pooler in transaction mode; the other client takes the server connection that was used last.
    pub fn pooled<P: Pooled>(&mut self, write: &str, connect: impl Fn() -> P) {
        fn claim(client: &mut impl Pooled, scope: &str) -> Outcome {
            let claimed = client.claim("key", scope)?;
            assert_eq!(claimed, scope);
            Ok(())
        }
        let write = format!("behind a pooler in transaction mode{}{write}", if write.is_empty() { "" } else { ", " });
        self.attempt("pooler", &write, || {
            let (mut client, mut other) = (connect(), connect());
            for _ in 0..10 {
                for (one, scope) in [(&mut client, "mine"), (&mut other, "yours")] {
                    one.begin()?;
                    claim(one, scope)?;
                    one.commit()?;
                }
                other.begin()?;
                claim(&mut other, "yours")?;
                client.begin()?;
                claim(&mut client, "mine")?;
                client.commit()?;
                other.commit()?;
            }
            Ok(String::new())
        });
    }

    pub fn print(self) {
        let Driver { name, version, columns, tries, .. } = self;
        println!(
            "{}",
            json!({"driver": format!("rust/{name}"), "version": version, "columns": columns, "tries": tries})
        );
    }
}

/// `pay` of a page: a key, a tenant, an amount.
pub trait Pay: FnMut(&str, &str, i32) -> Outcome<Answer> + Send {}
impl<P: FnMut(&str, &str, i32) -> Outcome<Answer> + Send> Pay for P {}

/// Stops each payment behind its insert, and lets its transaction write no more.
struct Gate {
    runtime: Runtime,
    owner: Client,
}

impl Gate {
    const WAITING: &str = "FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE datname = current_database() AND locktype = 'advisory' AND objid = 31 AND NOT granted";

    fn close() -> Self {
        let runtime = runtime();
        let owner = runtime.block_on(client(&port()));
        let gate = Gate { runtime, owner };
        gate.run(
            "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 PERFORM pg_advisory_xact_lock_shared(31), set_config('transaction_read_only', 'on', true);
                 RETURN NULL;
             END $$;
             CREATE TRIGGER gate AFTER INSERT ON payment FOR EACH ROW EXECUTE FUNCTION gate();
             SELECT pg_advisory_lock(31)",
        );
        gate
    }

    fn run(&self, sql: &str) {
        self.runtime.block_on(self.owner.batch_execute(sql)).unwrap();
    }

    fn count(&self, what: &str) -> i64 {
        let counted = self.runtime.block_on(self.owner.query_one(&format!("SELECT count(*) {what}"), &[]));
        counted.unwrap().get(0)
    }
}

/// A payment that fails behind its insert leaves neither record nor payment. While it runs, a duplicate is
/// refused; afterwards a repeat pays, on the connection that was rolled back, and its own repeat does not.
fn check_rolled_back_in_the_middle(mut pay: impl Pay, mut duplicate: impl Pay, gate: &Gate) {
    fn send(pay: &mut impl Pay) -> Outcome<Answer> {
        pay("pay-2", "acme", 100)
    }
    let (refused, failed) = thread::scope(|scope| {
        let paying = scope.spawn(|| send(&mut pay));
        while gate.count(Gate::WAITING) == 0 {
            assert!(!paying.is_finished(), "it does not wait at the gate");
            thread::sleep(Duration::from_millis(10));
        }
        let refused = send(&mut duplicate);
        gate.run("SELECT pg_advisory_unlock(31)");
        (refused, paying.join().unwrap())
    });
    let refused = refused.unwrap();
    assert!(refused.status == 409 && String::from_utf8_lossy(&refused.body).contains("in-progress"), "{refused:?}");
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(gate.count("FROM idempotency.record WHERE key = 'pay-2'"), 0);
    assert_eq!(gate.count("FROM payment"), 1);
    gate.run("DROP FUNCTION gate() CASCADE");
    let (first, again) = (send(&mut pay).unwrap(), send(&mut duplicate).unwrap());
    assert!(first.status == 201 && again.status == 201 && again.body == first.body, "{first:?}, {again:?}");
    assert_eq!(gate.count("FROM payment"), 2);
}

#[must_use]
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Of libpq's variables, but for the port.
#[must_use]
pub fn connection_string(port: &str) -> String {
    let (user, database) = (variable("PGUSER"), variable("PGDATABASE"));
    format!("host={} port={port} user={user} dbname={database}", variable("PGHOST"))
}

pub async fn client(port: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(&connection_string(port), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The version that Cargo.lock has of a crate.
fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let package = &lock[lock.find(&format!("name = \"{name}\"\n")).unwrap()..];
    package.split('"').nth(3).unwrap()
}

/// A statement that tells how many seconds this lease has.
pub fn lease_of(sql: &str) -> String {
    format!("SELECT round(extract(epoch FROM lease_until - created_at))::integer FROM idem_begin('k', lease => {sql})")
}

/// Of a body that came back: as it was sent, or what has become of it.
pub fn shown(stored: &[u8]) -> String {
    if stored == PATH.as_bytes() {
        return String::new();
    }
    format!("the body is `{}`", String::from_utf8_lossy(stored))
}

/// What a handler sends.
#[derive(Debug)]
pub struct Answer {
    pub status: i32,
    pub headers: serde_json::Value,
    pub body: Vec<u8>,
}

pub fn port() -> String {
    std::env::var("PGPORT").unwrap_or_else(|_| "5432".to_owned())
}

pub fn pooler_port() -> String {
    std::env::var("POOLER_PORT").unwrap()
}

pub fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
