//! What handlers do wrong, and what a pooler does.

use std::{
    env,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{Case, pool_at, route, send};
use axum::{Router, http::StatusCode, routing::post};
use idempotency_postgres::{Caller, Claim, Error, Failure, Info, Route, Store, Tx, new_key};
use tokio::sync::Notify;
use tokio_postgres::types::Type;

const INSERT: &str = "INSERT INTO note (tenant, what) VALUES ($1, $2)";

#[tokio::test]
async fn a_raised_answer_is_kept_without_the_work() {
    let Some(case) = Case::new().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move |tx: Tx, info: Info| {
        counted.fetch_add(1, SeqCst);
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        match info.scope.as_str() {
            "nothing" => Err::<(), _>(Error::nothing_happened("not now").into()),
            "later" => Err(Failure::answer(StatusCode::TOO_MANY_REQUESTS, "later")),
            _ => Err(Failure::answer(StatusCode::CONFLICT, "no funds")),
        }
    };
    for (scope, status, kept) in [("raised", 409, true), ("later", 429, false), ("nothing", 500, false)] {
        runs.store(0, SeqCst);
        let app = Router::new().route("/", post(handler.clone()).layer(case.store.transactional(route().scope(scope))));
        for repeat in [false, true] {
            let answer = case.post(&app, "/", "1").await;
            assert_eq!((answer.status.as_u16(), answer.is_replay()), (status, repeat && kept), "{scope}");
        }
        assert_eq!(runs.load(SeqCst), if kept { 1 } else { 2 }, "{scope}");
    }
    assert_eq!(case.count("done").await, 0);
}

#[tokio::test]
async fn a_raised_answer_completes_a_leased_claim() {
    let Some(case) = Case::new().await else { return };
    let handler = async |_: Claim| Err::<(), _>(Failure::answer(StatusCode::PAYMENT_REQUIRED, "declined"));
    let app = Router::new().route("/", post(handler).layer(case.store.leased(route())));
    for replay in [false, true] {
        let answer = case.post(&app, "/", "1").await;
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (402, replay));
    }
}

/// More of them than connections. Their statements are cancelled.
#[tokio::test]
async fn handlers_that_never_answer() {
    let Some(case) = Case::new().await else { return };
    let handler = async |tx: Tx, info: Info| {
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        tx.batch_execute("SELECT pg_sleep(600) /* seams */").await?;
        Ok::<_, Failure>(())
    };
    let layer = case.store.transactional(route().handler_timeout(Duration::from_millis(300)));
    let app = Router::new().route("/", post(handler).layer(layer));
    for _ in 0..6 {
        assert_eq!(case.post(&app, "/", "1").await.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    let client = case.pool.get().await.unwrap();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%/* seams */'";
    loop {
        if client.query_one(running, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            break;
        }
    }
    assert_eq!(case.count("done").await, 0);
}

/// The server hears of a cancellation when it does: it must find no other request's statement.
#[tokio::test]
async fn handlers_that_are_late_disturb_no_other_request() {
    let Some(case) = Case::new().await else { return };
    case.pool.resize(1);
    let waits = async |_: Tx| pending::<()>().await;
    let works = async |tx: Tx| {
        tx.batch_execute("SELECT pg_sleep(0.02)").await?;
        Ok::<_, Failure>(())
    };
    let late = case.store.transactional(route().handler_timeout(Duration::from_millis(20)));
    let app = Router::new()
        .route("/late", post(waits).layer(late))
        .route("/works", post(works).layer(case.store.transactional(route())));
    for number in 0..20 {
        assert_eq!(case.post(&app, "/late", "1").await.status, StatusCode::SERVICE_UNAVAILABLE);
        let mut request = case.request("/works", "1");
        request.headers_mut().insert("idempotency-key", format!("\"{number}\"").parse().unwrap());
        assert_eq!(send(&app, request).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_wait_beyond_the_timeout() {
    let Some(case) = Case::new().await else { return };
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let slow = async move |_: Info| {
        begins.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    let at = |store: Store| {
        let waits = store.transactional(route().wait(Duration::from_secs(60)));
        Router::new().route("/", post(slow.clone()).layer(waits))
    };
    let (patient, app) = (at(case.store.clone()), at(case.store.clone().database_timeout(Duration::from_millis(500))));
    let (first, second) = tokio::join!(case.post(&patient, "/", "1"), async {
        begun.notified().await;
        case.post(&app, "/", "1").await
    });
    assert_eq!((first.status, second.status), (StatusCode::OK, StatusCode::OK));
    assert!(!first.is_replay() && second.is_replay());
}

#[tokio::test]
async fn options_that_cannot_be_meant() {
    let store = Store::new(pool_at("127.0.0.1", 1));
    let zero = Duration::ZERO;
    let changes: [fn(Route) -> Route; 8] = [
        |route| route.window(Duration::ZERO),
        |route| route.ttl(Duration::ZERO),
        |route| route.lease(Duration::ZERO),
        |route| route.handler_timeout(Duration::ZERO),
        |route| route.attempts(0),
        |route| route.methods(Vec::new()),
        |route| route.exclude([""]),
        |route| route.status(idempotency_postgres::Outcome::InProgress, StatusCode::OK),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.transactional(change(route()))));
        assert!(made.is_err(), "change {number} is accepted");
    }
    let _ = store.leased(route().wait(zero));
}

/// Between the caller and the service a request is lost, and an answer.
#[tokio::test]
async fn a_call_through_faults() {
    let Some(case) = Case::new().await else { return };
    let pay = async |tx: Tx, info: Info| {
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        Ok::<_, Failure>((StatusCode::CREATED, "paid"))
    };
    let app = Router::new().route("/", post(pay).layer(case.store.transactional(route())));
    let sent = AtomicU32::new(0);
    let caller = Caller::default().pauses(Duration::from_millis(1), Duration::from_millis(10));
    let key = new_key();
    let answered = caller.call(&key, async |key| {
        let number = sent.fetch_add(1, SeqCst);
        if number == 0 {
            return Err("the request is lost");
        }
        let mut request = case.request("/", "100");
        request.headers_mut().insert("idempotency-key", key);
        let answer = crate::support::send(&app, request).await;
        if number == 1 {
            return Err("the answer is lost");
        }
        let mut response = axum::http::Response::new(answer.body);
        (*response.status_mut(), *response.headers_mut()) = (answer.status, answer.headers);
        Ok(response)
    });
    let answer = answered.await.unwrap();
    assert_eq!((answer.status(), answer.body().as_ref()), (StatusCode::CREATED, &b"paid"[..]));
    assert_eq!((sent.load(SeqCst), case.count("done").await), (3, 1));
}

/// With PgBouncer in transaction mode: ./test starts it, where it is installed.
#[tokio::test]
async fn behind_a_pooler() {
    let Ok(port) = env::var("POOLER_PORT") else { return };
    let Some(case) = Case::new().await else { return };
    let store = Store::new(pool_at("127.0.0.1", port.parse().unwrap())).unprepared();
    let pay = async |tx: Tx, info: Info| {
        tx.query_typed(INSERT, &[(&info.principal, Type::TEXT), (&"done", Type::TEXT)]).await?;
        Ok::<_, Failure>(StatusCode::CREATED)
    };
    let send = async |claim: Claim| {
        claim.step("sent", async || Ok::<_, Error>(1)).await.map(|one: i64| one.to_string()).map_err(Failure::from)
    };
    let app = Router::new()
        .route("/pay", post(pay).layer(store.transactional(route())))
        .route("/send", post(send).layer(store.leased(route())));
    for round in 0..20 {
        for path in ["/pay", "/send"] {
            let bodies: Vec<String> = (0..8).map(|number| format!("[{round}, {number}]")).collect();
            let (case, app) = (&case, &app);
            let calls = bodies.iter().map(|body| async move {
                let mut request = case.request(path, body);
                let key = format!("\"{path}{body}\"").parse().unwrap();
                request.headers_mut().insert("idempotency-key", key);
                crate::support::send(app, request).await.status.as_u16()
            });
            for status in futures_util::future::join_all(calls).await {
                assert!(status == 200 || status == 201, "{status}");
            }
        }
    }
    assert_eq!(case.count("done").await, 160);
}
