//! The server of the conformance suite, clients/conformance/README.md: each route is one line, and all of
//! them have one handler.

mod service;

use std::{env, io::Write, time::Duration};

use axum::{
    Json, Router,
    http::{HeaderName, StatusCode, header, request::Parts},
    routing::{get, post},
};
use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod};
use idempotency_postgres::{Answer, IdempotencyLayer, MissingKey, Outcome, Route, Store, Verdict};
use serde_json::{Value, json};
use service::{COMMITTING, HIDING, Service, bare, handle};
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::NoTls;
use tower_http::decompression::RequestDecompressionLayer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mut store = Store::new(pool()?).database_timeout(Duration::from_secs(2));
    if env::var_os("POOLED").is_some() {
        store = store.unprepared();
    }
    let service = Service::new(pool()?);
    let port: u16 = env::var("PORT")?.parse()?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!("ready");
    std::io::stdout().flush()?;
    tokio::select! {
        result = axum::serve(listener, routes(&store, service)) => result?,
        // Running handlers are interrupted, as by a crash.
        _ = terminate.recv() => std::process::exit(0),
    }
    Ok(())
}

/// The database of libpq's variables. Connects at its first use.
fn pool() -> Result<Pool, Box<dyn std::error::Error>> {
    let mut config = tokio_postgres::Config::new();
    config.host(env::var("PGHOST")?).port(env::var("PGPORT")?.parse()?).user(env::var("PGUSER")?);
    config.dbname(env::var("PGDATABASE")?).application_name(env::var("PGAPPNAME").unwrap_or_default());
    config.connect_timeout(Duration::from_secs(3));
    let manager = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    Ok(Pool::builder(Manager::from_config(config, NoTls, manager)).max_size(20).queue_mode(QueueMode::Lifo).build()?)
}

/// The token of the one Authorization field.
fn tenant(request: &Parts) -> Option<String> {
    let mut fields = request.headers.get_all(header::AUTHORIZATION).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else { return None };
    let (scheme, token) = field.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn verdict(answer: &Answer) -> Option<Verdict> {
    match answer.headers.get("x-verdict")?.as_bytes() {
        b"keep" => Some(Verdict::Keep),
        b"free" => Some(Verdict::Free),
        b"unknown" => Some(Verdict::Unknown),
        _ => None,
    }
}

fn ways() -> Value {
    json!({ "hide_error": HIDING, "commit": COMMITTING, "waits": { "execute": 3, "replay": 1, "leased": 3 } })
}

fn routes(store: &Store, service: Service) -> Router {
    // BENCH: for bench/clients, without the suite's hooks and with the route /bare.
    let bench = env::var_os("BENCH").is_some();
    let plain = if bench {
        Route::new(tenant)
    } else {
        Route::new(tenant)
            .on_execute(service.hook("execute"))
            .on_replay(service.hook("replay"))
            .on_refusal(service.hook("refusal"))
            .on_lease_lost(service.hook("lease_lost"))
    };
    let second = Duration::from_secs(1);
    let configured = plain
        .clone()
        .status(Outcome::InProgress, StatusCode::TOO_EARLY)
        .status(Outcome::Mismatch, StatusCode::BAD_REQUEST)
        .status(Outcome::Unavailable, StatusCode::INTERNAL_SERVER_ERROR)
        .key_header(HeaderName::from_static("x-request-key"))
        .replay_header(HeaderName::from_static("x-replay"))
        .echo_key(true)
        .exclude(["ts"])
        .keep(|_| true)
        .ttl(second);
    let missing = |missing_key| store.transactional(plain.clone().window(2 * second).missing_key(missing_key));
    let protect = |layer: IdempotencyLayer| post(handle).layer(layer);
    let router = if bench { Router::new().route("/bare", post(bare)) } else { Router::new() };
    router
        .route("/transactional", protect(store.transactional(plain.clone())))
        .route("/streamed", protect(store.transactional(plain.clone())))
        .route("/leased", protect(store.leased(plain.clone().lease(2 * second))))
        .route("/uncertain", protect(store.leased(plain.clone().lease(2 * second))))
        .route("/generate", protect(missing(MissingKey::Generate)))
        .route("/derive", protect(missing(MissingKey::Derive)))
        .route("/pass", protect(missing(MissingKey::Pass)))
        .route("/configured", protect(store.transactional(configured)))
        .route("/small", protect(store.transactional(plain.clone().max_request_bytes(1000).max_answer_bytes(1000))))
        .route("/omit", protect(store.transactional(plain.clone().max_answer_bytes(1000).omit_large_answers(true))))
        .route("/judged", protect(store.transactional(plain.clone().verdict(verdict))))
        .route("/judged_leased", protect(store.leased(plain.clone().verdict(verdict).lease(2 * second))))
        .route("/impatient", protect(store.transactional(plain.clone().handler_timeout(second))))
        .route("/patient", protect(store.transactional(plain.clone().wait(4 * second))))
        .route("/unprotected", protect(store.transactional(plain.unprotected_without_database(true))))
        // Before the layers of the routes, so that what is decoded is limited and compared. What it does
        // not know it passes on, for them to refuse.
        .layer(RequestDecompressionLayer::new().pass_through_unaccepted(true))
        .route("/health", get(|| async { "ok\n" }))
        .route("/ways", get(|| async { Json(ways()) }))
        .with_state(service)
}
