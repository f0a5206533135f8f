//! The worker of the conformance suite, clients/conformance/README.md: the request of a record says what it is to do.

use std::{env, io::Write, time::Duration};

use deadpool_postgres::{ClientWrapper, Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod};
use http::{HeaderMap, StatusCode};
use idempotency_postgres::{Answer, Due, Error, Store, Tx, Worker, WorkerOptions};
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::{Config, NoTls};

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Task {
    effect: Option<String>,
    gate: Option<i64>,
    lost: bool,
    throw_until: i32,
    nothing_until: i32,
    status: Option<u16>,
    body: String,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let store = Store::new(pool()?).database_timeout(Duration::from_secs(2));
    let own = pool()?; // connections without a claim
    let worker = if env::var("WORKER_MODE")? == "leased" {
        Worker::leased(&store, options()?, move |due, _| handle(due, None, own.clone()))
    } else {
        Worker::transactional(&store, options()?, move |due, tx| handle(due, Some(tx), own.clone()))
    };
    let (mut terminate, told) = (signal(SignalKind::terminate())?, worker.clone());
    tokio::spawn(async move {
        terminate.recv().await;
        told.stop();
        terminate.recv().await;
        told.abort();
    });
    println!("ready");
    std::io::stdout().flush()?;
    Ok(worker.run().await?)
}

fn options() -> Result<WorkerOptions, Failed> {
    let millis = |name| Ok::<_, Failed>(Duration::from_millis(env::var(name)?.parse()?));
    let options = WorkerOptions::new(env::var("WORKER_SCOPE")?)
        .size(env::var("WORKER_SIZE")?.parse()?)
        .lease(millis("WORKER_LEASE_MS")?)
        .poll(millis("WORKER_POLL_MS")?)
        .handler_timeout(millis("WORKER_HANDLER_TIMEOUT_MS")?);
    let channel = env::var("WORKER_CHANNEL")?;
    Ok(if channel.is_empty() { options } else { options.channel(&channel, config()?, NoTls) })
}

async fn handle(due: Due, tx: Option<Tx>, own: Pool) -> Result<Option<Answer>, Failed> {
    let task: Task = serde_json::from_value(due.request.clone().unwrap_or_default())?;
    match (&task.effect, tx) {
        (Some(effect), Some(tx)) => insert(&tx, &due, effect).await?,
        (Some(effect), None) => insert(&*own.get().await?, &due, effect).await?,
        (None, _) => {}
    }
    if let Some(gate) = task.gate {
        let client = own.get().await?;
        client.execute("SELECT pg_advisory_lock_shared($1)", &[&gate]).await?;
        client.execute("SELECT pg_advisory_unlock_shared($1)", &[&gate]).await?;
    }
    if task.lost {
        due.stop.cancelled().await;
        insert(&*own.get().await?, &due, "lost").await?;
    }
    if due.info.attempt < task.throw_until {
        return Err("the handler was told to fail".into());
    }
    if due.info.attempt < task.nothing_until {
        return Err(Error::nothing_happened("nothing happened").into());
    }
    let Some(status) = task.status else { return Ok(None) };
    Ok(Some(Answer { status: StatusCode::from_u16(status)?, headers: HeaderMap::new(), body: task.body.into() }))
}

async fn insert(client: &ClientWrapper, due: &Due, note: &str) -> Result<(), tokio_postgres::Error> {
    let insert = client.prepare_cached("INSERT INTO effect (principal, key, note) VALUES ($1, $2, $3)").await?;
    client.execute(&insert, &[&due.info.principal, &due.info.key, &note]).await.map(drop)
}

/// The database of libpq's variables.
fn config() -> Result<Config, Failed> {
    let mut config = Config::new();
    config.host(env::var("PGHOST")?).port(env::var("PGPORT")?.parse()?).user(env::var("PGUSER")?);
    config.dbname(env::var("PGDATABASE")?).application_name(env::var("PGAPPNAME").unwrap_or_default());
    config.connect_timeout(Duration::from_secs(3));
    Ok(config)
}

/// Connects at its first use.
fn pool() -> Result<Pool, Failed> {
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Ok(Pool::builder(Manager::from_config(config()?, NoTls, manager))
        .max_size(20)
        .queue_mode(QueueMode::Lifo)
        .build()?)
}
