//! Leased routes, functions and values, on a real database.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{Case, route, send};
use axum::{Router, http::StatusCode, response::IntoResponse, routing::post};
use idempotency_postgres::{Answer, Begun, Claim, Error, Failure, Outcome, Request, Tx, leased, once, transactionally};
use tokio::sync::{Notify, mpsc};

const INSERT: &str = "INSERT INTO note (tenant, what) VALUES ($1, $2)";

async fn insert(tx: Tx, tenant: String, what: &str) -> Result<u64, tokio_postgres::Error> {
    tx.execute(INSERT, &[&tenant, &what]).await
}

/// Until a drop has been told to the server.
async fn until(case: &Case, status: &str) {
    let settled = async {
        while case.record().await.map(|record| record.0).as_deref() != Some(status) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settled).await.expect("the record changes");
}

#[tokio::test]
async fn steps_are_done_once() {
    let Some(case) = Case::new().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move |claim: Claim| {
        let run = counted.fetch_add(1, SeqCst);
        let sent: u32 =
            claim.step("sent", async || Ok::<_, Failure>(run + 7).map_err(|error| error.to_string())).await?;
        let tenant = claim.info().principal.clone();
        claim.step_tx("booked", |tx| insert(tx, tenant.clone(), "booked")).await?;
        assert_eq!(claim.recovery_point(), (run > 0).then_some("booked"));
        if run == 0 {
            return Err(Failure::from("after the steps"));
        }
        Ok((StatusCode::CREATED, sent.to_string()))
    };
    let app = Router::new().route("/", post(handler).layer(case.store.leased(route())));
    assert_eq!(case.post(&app, "/", "1").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(case.record().await, Some(("retryable".into(), Some("booked".into()))));
    case.resolve("POST /", "release").await;
    let second = case.post(&app, "/", "1").await;
    assert_eq!((second.status, &*second.body), (StatusCode::CREATED, &b"7"[..]));
    let third = case.post(&app, "/", "1").await;
    assert_eq!((third.is_replay(), third.body), (true, second.body));
    assert_eq!((runs.load(SeqCst), case.count("booked").await), (2, 1));
}

#[tokio::test]
async fn steps_that_are_done_at_once_are_all_remembered() {
    const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let Some(case) = Case::new().await else { return };
    let request = Request::new("at once", &case.tenant, "k");
    let (meet, tenant) = (tokio::sync::Barrier::new(NAMES.len()), case.tenant.clone());
    let (meet, tenant) = (&meet, &tenant);
    let work = |claim: Claim| async move {
        let one = async |name: &'static str| -> Result<u64, Error> {
            if name < "d" {
                let work = async || {
                    meet.wait().await;
                    Ok::<_, Error>(7)
                };
                return claim.step(name, work).await;
            }
            let work = |tx: Tx| async move {
                meet.wait().await;
                insert(tx, tenant.clone(), name).await
            };
            claim.step_tx(name, work).await
        };
        let done = tokio::join!(one("a"), one("b"), one("c"), one("d"), one("e"), one("f"));
        assert!(
            done.0.is_ok() && done.1.is_ok() && done.2.is_ok() && done.3.is_ok() && done.4.is_ok() && done.5.is_ok()
        );
        Err::<(), _>("after the steps")
    };
    let failed: Result<(), Error> = Box::pin(leased(&case.store, request.clone(), work)).await;
    assert!(matches!(failed, Err(Error::Work(_))), "{failed:?}");
    case.resolve("at once", "release").await;
    let known: Vec<u64> = leased(&case.store, request, |claim: Claim| async move {
        let mut results = vec![];
        for name in NAMES {
            results.push(claim.step(name, async || Err::<u64, _>(name)).await?);
        }
        Ok::<_, Error>(results)
    })
    .await
    .expect("each is known");
    assert_eq!(known, [7, 7, 7, 1, 1, 1]);
}

#[tokio::test]
async fn errors_say_what_the_server_says() {
    let Some(case) = Case::new().await else { return };
    let refused = case.store.begin(&Request::new("errors", &case.tenant, "")).await.expect_err("the key is empty");
    assert!(
        refused.to_string().starts_with("the database failed: ") && refused.to_string().contains("key"),
        "{refused}"
    );
    let work = async |tx: Tx| tx.execute("SELECT 1/0", &[]).await.map(drop);
    let failed = once(&case.store, "errors", &case.tenant, "k", work).await.expect_err("it fails");
    assert!(failed.to_string().ends_with("division by zero (22012)"), "{failed}");
}

#[tokio::test]
async fn a_step_meets_conflicts_again() {
    let Some(case) = Case::new().await else { return };
    let runs = AtomicU32::new(0);
    let request = Request::new("steps", &case.tenant, "k");
    let work = async |claim: Claim| {
        let run = |tx: Tx| {
            let (tenant, first) = (case.tenant.clone(), runs.fetch_add(1, SeqCst) == 0);
            async move {
                insert(tx.clone(), tenant, "done").await?;
                if first {
                    tx.batch_execute("DO $$BEGIN RAISE EXCEPTION SQLSTATE '40001'; END$$").await
                } else {
                    Ok(())
                }
            }
        };
        claim.step_tx("done", run).await
    };
    leased(&case.store, request, work).await.unwrap();
    assert_eq!((runs.load(SeqCst), case.count("done").await), (2, 1));
}

#[tokio::test]
async fn a_panic_fails_retryably() {
    let Some(case) = Case::new().await else { return };
    let handler = async |_: Claim| -> StatusCode { panic!("the handler") };
    let app = Router::new().route("/", post(handler).layer(case.store.leased(route())));
    let request = case.request("/", "1");
    assert!(tokio::spawn(async move { send(&app, request).await }).await.unwrap_err().is_panic());
    until(&case, "retryable").await;
}

#[tokio::test]
async fn who_has_lost_the_claim_is_told_to_stop() {
    let Some(case) = Case::new().await else { return };
    let (tell, mut told) = mpsc::unbounded_channel();
    let begun = Arc::new(Notify::new());
    let begins = begun.clone();
    let handler = async move |claim: Claim| {
        begins.notify_one();
        // Dropped where it waits.
        let step = claim.step("never", pending::<Result<(), String>>).await;
        assert!(matches!(step, Err(Error::LeaseLost)) && claim.lost().is_cancelled());
        "what no client gets".into_response()
    };
    let lost = route().lease(Duration::from_secs(3)).on_lease_lost(move |event| tell.send(event).unwrap());
    let app = Router::new().route("/", post(handler).layer(case.store.leased(lost)));
    let (answer, ()) = tokio::join!(case.post(&app, "/", "1"), async {
        begun.notified().await;
        case.resolve("POST /", "complete").await;
    });
    assert_eq!(answer.status, StatusCode::CONFLICT);
    let event = told.recv().await.unwrap();
    assert_eq!((event.outcome, event.attempt, &*event.key), (Outcome::Lost, 1, "k"));
    assert!(told.try_recv().is_err());
    assert_eq!(case.record().await.unwrap().0, "completed");
}

#[tokio::test]
async fn functions_keep_results() {
    let Some(case) = Case::new().await else { return };
    let request = Request::new("f", &case.tenant, "k").content(&[1, 2], &[]).unwrap();
    for _ in 0..2 {
        let work = |tx: Tx| {
            let tenant = case.tenant.clone();
            async move { insert(tx, tenant, "done").await.map(|rows| rows + 41) }
        };
        assert_eq!(transactionally(&case.store, request.clone(), work).await.unwrap(), 42);
    }
    assert_eq!(case.count("done").await, 1);
    let other = Request::new("f", &case.tenant, "k").content(&[3], &[]).unwrap();
    match transactionally(&case.store, other, async |_| Ok::<_, Error>(0)).await {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.outcome, Outcome::Mismatch),
        result => panic!("{result:?}"),
    }
    let failing = transactionally(&case.store, Request::new("f", &case.tenant, "k2"), async |_| Err::<(), _>("no"));
    assert!(matches!(failing.await, Err(Error::Work(error)) if error.to_string() == "no"));
}

#[tokio::test]
async fn messages_are_handled_once() {
    let Some(case) = Case::new().await else { return };
    let mut fails = true;
    for expected in [None, Some(true), Some(false)] {
        let work = |tx: Tx| {
            let (tenant, fails) = (case.tenant.clone(), std::mem::take(&mut fails));
            async move {
                insert(tx, tenant, "done").await?;
                if fails { Err("no".into()) } else { Ok::<_, Box<dyn std::error::Error + Send + Sync>>(()) }
            }
        };
        assert_eq!(once(&case.store, "inbox", &case.tenant, "m", work).await.ok(), expected);
    }
    assert_eq!(case.count("done").await, 1);
}

#[tokio::test]
async fn values_that_are_dropped_are_given_back() {
    let Some(case) = Case::new().await else { return };
    let request = Request::new("v", &case.tenant, "k").wait(Duration::from_secs(20));
    let answer = Answer::json(StatusCode::CREATED, &"done").unwrap();
    {
        let Begun::Execute(held) = case.store.begin(&request).await.unwrap() else { panic!("it is new") };
        insert(held.tx(), case.tenant.clone(), "dropped").await.unwrap();
    }
    let Begun::Execute(held) = case.store.begin(&request).await.unwrap() else { panic!("it is free") };
    insert(held.tx(), case.tenant.clone(), "done").await.unwrap();
    held.complete(&answer).await.unwrap();
    let Begun::Replay(again, false) = case.store.begin_leased(&request).await.unwrap() else { panic!("it is done") };
    assert_eq!(again, answer);
    assert_eq!((case.count("dropped").await, case.count("done").await), (0, 1));
}

#[tokio::test]
async fn leases_that_are_dropped_fail() {
    let Some(case) = Case::new().await else { return };
    let request = Request::new("v", &case.tenant, "k");
    let Begun::Execute(lease) = case.store.begin_leased(&request).await.unwrap() else { panic!("it is new") };
    drop(lease);
    until(&case, "retryable").await;
    case.resolve("v", "release").await;
    let Begun::Execute(lease) = case.store.begin_leased(&request).await.unwrap() else { panic!("it is due") };
    assert_eq!(lease.claim().info().attempt, 2);
    lease.complete(&Answer::json(StatusCode::OK, &1).unwrap()).await.unwrap();
    until(&case, "completed").await;
}

#[tokio::test]
async fn a_message_whose_error_is_hidden_is_not_handled() {
    let Some(case) = Case::new().await else { return };
    for broken in [true, false] {
        let work = async |tx: Tx| {
            if broken {
                let _ = tx.execute("SELECT 1/0", &[]).await;
            }
            Ok::<_, Error>(())
        };
        let first = once(&case.store, "inbox", &case.tenant, "m", work).await;
        assert_eq!(first.ok(), (!broken).then_some(true));
    }
}
