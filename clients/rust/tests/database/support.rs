//! A PostgreSQL that libpq's variables name, and requests.

use std::{env, sync::LazyLock};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, Request, StatusCode, request::Parts},
};
use deadpool_postgres::{Manager, Pool};
use http_body_util::BodyExt;
use idempotency_postgres::{Route, Store};
use tokio::sync::Mutex;
use tokio_postgres::NoTls;
use tower::ServiceExt;

/// What every test starts from; each has a tenant of its own.
pub struct Case {
    pub pool: Pool,
    pub store: Store,
    pub tenant: String,
}

static PREPARED: LazyLock<Mutex<bool>> = LazyLock::new(Mutex::default);

pub fn pool_at(host: &str, port: u16) -> Pool {
    let mut config = tokio_postgres::Config::new();
    config.host(host).port(port).user(env::var("PGUSER").unwrap_or("postgres".into()));
    config.dbname(env::var("PGDATABASE").unwrap_or("postgres".into()));
    Pool::builder(Manager::new(config, NoTls)).max_size(4).build().unwrap()
}

impl Case {
    /// None, and a word about it, where no server is named; ./test insists on one.
    pub async fn new() -> Option<Self> {
        let Ok(host) = env::var("PGHOST") else {
            eprintln!("left out: PGHOST names no server to test against");
            return None;
        };
        let port = env::var("PGPORT").map_or(5432, |port| port.parse().unwrap());
        let pool = pool_at(&host, port);
        let mut prepared = PREPARED.lock().await;
        if !*prepared {
            let client = pool.get().await.unwrap();
            // Test binaries may run at the same time.
            let setup = "SELECT pg_advisory_lock(1); SET client_min_messages = warning;
                CREATE EXTENSION IF NOT EXISTS idempotency; CREATE TABLE IF NOT EXISTS note (tenant text, what text);
                SELECT pg_advisory_unlock(1)";
            client.batch_execute(setup).await.unwrap();
            *prepared = true;
        }
        Some(Self { store: Store::new(pool.clone()), pool, tenant: uuid::Uuid::new_v4().to_string() })
    }

    pub async fn count(&self, what: &str) -> i64 {
        let client = self.pool.get().await.unwrap();
        let count = "SELECT count(*) FROM note WHERE tenant = $1 AND what = $2";
        client.query_one(count, &[&self.tenant, &what]).await.unwrap().get(0)
    }

    /// Status and recovery point of the tenant's record.
    pub async fn record(&self) -> Option<(String, Option<String>)> {
        let client = self.pool.get().await.unwrap();
        let record = "SELECT status, recovery_point FROM idempotency.records WHERE principal = $1";
        let row = client.query_opt(record, &[&self.tenant]).await.unwrap()?;
        Some((row.get(0), row.get(1)))
    }

    pub async fn resolve(&self, scope: &str, action: &str) {
        let client = self.pool.get().await.unwrap();
        let resolve = "SELECT idem_resolve('k', $1, scope => $2, principal => $3)";
        client.execute(resolve, &[&action, &scope, &self.tenant]).await.unwrap();
    }

    pub fn request(&self, path: &str, body: &str) -> Request<Body> {
        let request = Request::post(path).header("x-tenant", &self.tenant).header("idempotency-key", "\"k\"");
        request.header("content-type", "application/json").body(Body::from(body.to_owned())).unwrap()
    }

    pub async fn post(&self, app: &Router, path: &str, body: &str) -> Answer {
        send(app, self.request(path, body)).await
    }
}

/// A store whose database is away: no process gets this port by chance.
pub fn away() -> Store {
    Store::new(pool_at("127.0.0.1", 1))
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn is_replay(&self) -> bool {
        self.headers.contains_key("idempotent-replayed")
    }
}

pub async fn send(app: &Router, request: Request<Body>) -> Answer {
    let (parts, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    Answer { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
}

pub fn tenant(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-tenant")?.to_str().ok()?.to_owned())
}

pub fn route() -> Route {
    Route::new(tenant)
}
