//! The one handler of all routes: the body of a request says what it is to do.

use std::{
    collections::HashMap,
    convert::Infallible,
    env,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use deadpool_postgres::{ClientWrapper, Pool};
use idempotency_postgres::{Claim, Error, Event, Failure, Info, Tx};
use serde::Deserialize;
use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};

#[derive(Clone)]
pub struct Service {
    /// Connections without a claim.
    own: Pool,
    /// Runs of the handler.
    runs: Arc<Mutex<HashMap<Name, u32>>>,
}

type Name = (String, String, String);

#[derive(Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_excessive_bools)] // the suite's own
struct Task {
    gate: Option<i64>,
    effect: Option<String>,
    unknown: Option<(String, Option<String>)>,
    commit: Option<String>,
    hide_error: Value,
    never: bool,
    idle: Option<u64>,
    stranger: Option<String>,
    raise: Option<u16>,
    serialization_failures: u32,
    hang: bool,
    nothing_happened: bool,
    throw: bool,
    exit: bool,
    status: Option<u16>,
    headers: Vec<(String, String)>,
    body: String,
    repeat: Option<usize>,
}

/// What the layer has given.
struct Given {
    tx: Option<Tx>,
    claim: Option<Claim>,
    info: Info,
}

const INSERT_EFFECT: &str = "INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)";

pub async fn handle(
    State(service): State<Service>,
    tx: Option<Tx>,
    claim: Option<Claim>,
    info: Info,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Failure> {
    let given = Given { tx, claim, info };
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().ends_with(b"json"));
    let task = (json && body.trim_ascii().starts_with(b"{")).then(|| serde_json::from_slice::<Task>(&body).ok());
    let Some(task) = task.flatten() else {
        service.effect(&given, "raw").await?;
        return Ok(body.into_response());
    };
    service.work(&given, &task).await?;
    drop(given); // the transaction is not needed for the answer
    let content = Bytes::from(STANDARD.decode(&task.body)?.repeat(task.repeat.unwrap_or(1)));
    let body = if uri.path() == "/streamed" { stream(&content) } else { Body::from(content) };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(task.status.unwrap_or(201))?;
    for (name, value) in &task.headers {
        response.headers_mut().append(name.parse::<HeaderName>()?, HeaderValue::from_str(value)?);
    }
    Ok(response)
}

/// The work of /transactional without the client.
pub async fn bare(State(service): State<Service>, body: Bytes) -> Result<StatusCode, Failure> {
    let task: Task = serde_json::from_slice(&body)?;
    let mut client = service.own.get().await?;
    let tx = client.transaction().await?;
    let insert = tx.prepare_cached(INSERT_EFFECT).await?;
    tx.execute(&insert, &[&"bench", &"", &task.effect.as_deref().unwrap_or("")]).await?;
    tx.commit().await?;
    Ok(StatusCode::CREATED)
}

fn stream(content: &Bytes) -> Body {
    let chunks: Vec<_> = content.chunks(100).map(|chunk| Ok::<_, Infallible>(content.slice_ref(chunk))).collect();
    Body::from_stream(futures_util::stream::iter(chunks))
}

/// Behind a pooler nothing is prepared.
async fn insert(client: &ClientWrapper, info: &Info, note: &str) -> Result<(), tokio_postgres::Error> {
    if env::var_os("POOLED").is_some() {
        let row: [(&(dyn ToSql + Sync), Type); 3] =
            [(&info.principal, Type::TEXT), (&info.key, Type::TEXT), (&note, Type::TEXT)];
        return client.query_typed(INSERT_EFFECT, &row).await.map(drop);
    }
    let insert = client.prepare_cached(INSERT_EFFECT).await?;
    client.execute(&insert, &[&info.principal, &info.key, &note]).await.map(drop)
}

/// The calls of tokio-postgres that can run a statement.
pub const HIDING: [&str; 8] =
    ["batch_execute", "simple_query", "execute", "query", "query_one", "query_opt", "query_typed", "prepare"];
pub const COMMITTING: [&str; 3] = ["sql", "simple_query", "execute"];

async fn hide(tx: &Tx, way: &str) {
    const WRONG: &str = "SELECT 1/0";
    match way {
        "simple_query" => drop(tx.simple_query(WRONG).await),
        "execute" => drop(tx.execute(WRONG, &[]).await),
        "query" => drop(tx.query(WRONG, &[]).await),
        "query_one" => drop(tx.query_one(WRONG, &[]).await),
        "query_opt" => drop(tx.query_opt(WRONG, &[]).await),
        "query_typed" => drop(tx.query_typed(WRONG, &[]).await),
        "prepare" => drop(tx.prepare("SELECT no_such_column").await),
        _ => drop(tx.batch_execute(WRONG).await),
    }
}

impl Service {
    pub fn new(own: Pool) -> Self {
        Self { own, runs: Arc::default() }
    }

    async fn work(&self, given: &Given, task: &Task) -> Result<(), Failure> {
        if let Some(gate) = task.gate {
            self.pass(gate).await?;
        }
        if let Some(effect) = &task.effect {
            self.effect(given, effect).await?;
        }
        if let (Some((error, reference)), Some(claim)) = (&task.unknown, &given.claim) {
            claim.unknown(error, reference.as_deref()).await?;
        }
        if let (Some(way), Some(tx)) = (&task.commit, &given.tx) {
            // tokio-postgres commits by an object that handlers don't get
            match way.as_str() {
                "execute" => drop(tx.execute("COMMIT", &[]).await?),
                "simple_query" => drop(tx.simple_query("COMMIT").await?),
                _ => tx.batch_execute("COMMIT").await?,
            }
        }
        match (&task.hide_error, &given.tx) {
            (Value::String(way), Some(tx)) => hide(tx, way).await,
            (Value::Bool(true), Some(tx)) => hide(tx, "batch_execute").await,
            _ => {}
        }
        if self.run(&given.info) <= task.serialization_failures {
            self.conflict(given).await?;
        }
        if task.hang {
            if let Some(claim) = &given.claim {
                claim.lost().cancelled().await;
            }
            let info = &given.info;
            let own = self.own.get().await?;
            insert(&own, info, "lost").await?;
        }
        if task.never {
            std::future::pending::<()>().await;
        }
        if let (Some(limit), Some(tx)) = (task.idle, &given.tx) {
            tx.batch_execute(&format!("SET LOCAL idle_in_transaction_session_timeout = {limit}")).await?;
            tokio::time::sleep(std::time::Duration::from_millis(limit + 1000)).await;
        }
        match task.stranger.as_deref() {
            Some("words") => return Err("Connection closed".into()),
            Some(_) => return Err("the gateway says 40004".into()),
            None => {}
        }
        if let Some(status) = task.raise {
            return Err(Failure::answer(StatusCode::from_u16(status)?, "raised"));
        }
        if task.nothing_happened {
            return Err(Error::nothing_happened("nothing happened").into());
        }
        if task.throw {
            return Err("the handler was told to fail".into());
        }
        if task.exit {
            std::process::exit(3);
        }
        Ok(())
    }

    /// Waits for a gate that the suite opens.
    async fn pass(&self, gate: i64) -> Result<(), Failure> {
        let client = self.own.get().await?;
        client.execute("SELECT pg_advisory_lock_shared($1)", &[&gate]).await?;
        client.execute("SELECT pg_advisory_unlock_shared($1)", &[&gate]).await?;
        Ok(())
    }

    /// Part of the claim's transaction, or a step of a leased claim.
    async fn effect(&self, given: &Given, note: &str) -> Result<(), Failure> {
        let info = &given.info;
        if let Some(tx) = &given.tx {
            insert(tx, info, note).await?;
        } else if let Some(claim) = &given.claim {
            claim.step_tx("effect", |tx: Tx| async move { insert(&tx, info, note).await }).await?;
        } else {
            let own = self.own.get().await?;
            insert(&own, info, note).await?;
        }
        Ok(())
    }

    fn run(&self, info: &Info) -> u32 {
        let name = (info.scope.clone(), info.principal.clone(), info.key.clone());
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let count = runs.entry(name).or_default();
        *count += 1;
        *count
    }

    /// Meets SQLSTATE 40001.
    async fn conflict(&self, given: &Given) -> Result<(), Failure> {
        let raise = "DO $$BEGIN RAISE EXCEPTION 'conflict' USING ERRCODE = 'serialization_failure'; END$$";
        match &given.tx {
            Some(tx) => tx.batch_execute(raise).await?,
            None => self.own.get().await?.batch_execute(raise).await?,
        }
        Ok(())
    }

    /// Hooks are called on the way, so what takes time is not waited for.
    pub fn hook(&self, name: &'static str) -> impl Fn(Event) + Send + Sync + 'static {
        let own = self.own.clone();
        move |event| {
            let own = own.clone();
            tokio::spawn(async move {
                let insert = "INSERT INTO hook (name, scope, key, attempt, outcome) VALUES ($1, $2, $3, $4, $5)";
                let outcome = event.outcome.as_str();
                let row: [(&(dyn ToSql + Sync), Type); 5] = [
                    (&name, Type::TEXT),
                    (&event.scope, Type::TEXT),
                    (&event.key, Type::TEXT),
                    (&event.attempt, Type::INT4),
                    (&outcome, Type::TEXT),
                ];
                if let Ok(client) = own.get().await {
                    let _ = client.query_typed(insert, &row).await;
                }
            });
        }
    }
}
