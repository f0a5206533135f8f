//! Leased work whose outcome is not known, on a real database.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{Answer, Case, route, send};
use axum::{Router, http::StatusCode, routing::post};
use idempotency_postgres::{Begun, Claim, Error, Failure, Outcome, Request, Route, leased};

const INTERNAL: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;

impl Case {
    /// A route whose claims are unknown where they fall silent.
    async fn uncertain(&self) -> Route {
        let client = self.pool.get().await.unwrap();
        let set = "SELECT idem_policy_set($1, on_lease_expiry => 'unknown', retry_base => '1 us', retry_cap => '1 us')";
        client.execute(set, &[&self.tenant]).await.unwrap();
        route().scope(&self.tenant)
    }

    /// Status, error and reference of a record whose scope is the tenant's name.
    async fn ended(&self, key: &str) -> (String, Option<String>, Option<String>) {
        let client = self.pool.get().await.unwrap();
        let get = "SELECT status, error, reference FROM idem_get($2, scope => $1, principal => $1)";
        let row = client.query_one(get, &[&self.tenant, &key]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }

    async fn unknown(&self, key: &str, error: &str, reference: Option<&str>) {
        let told = ("unknown".to_owned(), Some(error.to_owned()), reference.map(str::to_owned));
        assert_eq!(self.ended(key).await, told);
    }

    /// Until the panic of a handler, or a drop, has been told to the server.
    async fn settled(&self, key: &str) {
        let settled = async {
            while self.ended(key).await.0 == "in_progress" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), settled).await.expect("the record changes");
    }

    async fn send(&self, app: &Router, key: &str) -> Answer {
        let mut request = self.request("/", "1");
        request.headers_mut().insert("idempotency-key", key.parse().unwrap());
        send(app, request).await
    }

    async fn panics(&self, app: &Router, key: &'static str) {
        let mut request = self.request("/", "1");
        request.headers_mut().insert("idempotency-key", key.parse().unwrap());
        let app = app.clone();
        assert!(tokio::spawn(async move { send(&app, request).await }).await.unwrap_err().is_panic());
        self.settled(key).await;
    }

    fn named(&self, key: &str) -> Request {
        Request::new(&self.tenant, &self.tenant, key)
    }
}

fn is_unknown(answer: &Answer) -> bool {
    let body = String::from_utf8_lossy(&answer.body);
    answer.status == StatusCode::CONFLICT
        && body.contains("/problems/idempotency/unknown")
        && answer.headers.contains_key("retry-after")
}

#[tokio::test]
async fn an_end_that_proves_nothing_is_unknown() {
    let Some(case) = Case::new().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move |claim: Claim| {
        counted.fetch_add(1, SeqCst);
        match &*claim.info().key {
            "error" => Err(Failure::from("no answer")),
            "status" => Ok((StatusCode::BAD_GATEWAY, String::new())),
            "large" => Ok((StatusCode::CREATED, "x".repeat(11))),
            _ => panic!("the handler"),
        }
    };
    let layer = case.store.leased(case.uncertain().await.max_answer_bytes(10));
    let app = Router::new().route("/", post(handler).layer(layer));
    assert_eq!(case.send(&app, "error").await.status, INTERNAL);
    assert_eq!(case.send(&app, "status").await.status, StatusCode::BAD_GATEWAY);
    assert_eq!(case.send(&app, "large").await.status, INTERNAL);
    case.panics(&app, "panic").await;
    for (key, error) in [
        ("error", "no answer"),
        ("status", "status 502"),
        ("large", "the answer is too large to be kept"),
        ("panic", "the work was given up, or panicked"),
    ] {
        case.unknown(key, error, None).await;
        let again = case.send(&app, key).await;
        assert!(is_unknown(&again), "{again:?}");
    }
    assert_eq!(runs.load(SeqCst), 4);
}

#[tokio::test]
async fn work_without_an_effect_is_done_again() {
    let Some(case) = Case::new().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move |claim: Claim| {
        let refused = async || match counted.fetch_add(1, SeqCst) {
            0 => Err(Error::nothing_happened("the gateway refuses connections")),
            _ => Ok(7),
        };
        Ok::<_, Failure>(claim.step("sent", refused).await?.to_string())
    };
    let app = Router::new().route("/", post(handler).layer(case.store.leased(case.uncertain().await)));
    assert_eq!(case.send(&app, "k").await.status, INTERNAL);
    let error = Some("the gateway refuses connections".to_owned());
    assert_eq!(case.ended("k").await, ("retryable".into(), error, None));
    assert_eq!(&*case.send(&app, "k").await.body, b"7");
    assert!(case.send(&app, "k").await.is_replay());
}

#[tokio::test]
async fn nothing_is_stored_after_unknown() {
    let Some(case) = Case::new().await else { return };
    let lease = Duration::from_secs(1);
    let handler = async move |claim: Claim| {
        claim.unknown("no answer in 30\0s", Some("ch_1")).await?;
        claim.unknown("again", Some("ch_2")).await?;
        let late = claim.step("late", async || Ok::<_, Error>(1)).await;
        assert!(matches!(late, Err(Error::Unknown)), "{late:?}");
        match &*claim.info().key {
            "error" => return Err(Failure::from("late")),
            "nothing" => return Err(Error::nothing_happened("late").into()),
            "panic" => panic!("the handler"),
            _ => {}
        }
        tokio::time::sleep(lease + lease / 2).await;
        assert!(!claim.lost().is_cancelled());
        Ok("asked")
    };
    let lost = Arc::new(AtomicBool::new(false));
    let told = lost.clone();
    // No policy says so.
    let scope = route().scope(&case.tenant).lease(lease).on_lease_lost(move |_| told.store(true, SeqCst));
    let app = Router::new().route("/", post(handler).layer(case.store.leased(scope)));
    assert_eq!(&*case.send(&app, "answer").await.body, b"asked");
    assert_eq!(case.send(&app, "error").await.status, INTERNAL);
    assert_eq!(case.send(&app, "nothing").await.status, INTERNAL);
    case.panics(&app, "panic").await;
    for key in ["answer", "error", "nothing", "panic"] {
        case.unknown(key, "no answer in 30 s", Some("ch_1")).await;
        assert!(is_unknown(&case.send(&app, key).await));
    }
    assert!(!lost.load(SeqCst));
}

#[tokio::test]
async fn unknown_of_a_claim_that_is_lost() {
    let Some(case) = Case::new().await else { return };
    let case = Arc::new(case);
    let resolve = case.clone();
    let handler = async move |claim: Claim| {
        resolve.resolve("POST /", "fail").await;
        assert!(matches!(claim.unknown("late", None).await, Err(Error::LeaseLost)) && claim.lost().is_cancelled());
        "late"
    };
    let app = Router::new().route("/", post(handler).layer(case.store.leased(route())));
    let first = case.send(&app, "k").await;
    assert!(first.status == StatusCode::CONFLICT && !is_unknown(&first), "{first:?}");
    assert_eq!(case.record().await.unwrap().0, "failed");
}

#[tokio::test]
async fn unknown_is_stored_in_the_end() {
    let Some(case) = Case::new().await else { return };
    let pool = case.pool.clone();
    let handler = async move |claim: Claim| {
        let mut all = Vec::new(); // so that there is no connection for it
        while all.len() < 4 {
            all.push(pool.get().await.unwrap());
        }
        assert!(matches!(claim.unknown("no answer", None).await, Err(Error::Timeout)));
        "asked"
    };
    let store = case.store.clone().database_timeout(Duration::from_secs(2));
    let app = Router::new().route("/", post(handler).layer(store.leased(route().scope(&case.tenant))));
    assert_eq!(&*case.send(&app, "k").await.body, b"asked");
    case.unknown("k", "no answer", None).await;
}

#[tokio::test]
async fn functions_and_values() {
    let Some(case) = Case::new().await else { return };
    let _ = case.uncertain().await;
    let fails = async |_| Err::<(), _>("no");
    let failed: Result<(), Error> = leased(&case.store, case.named("work"), fails).await;
    assert!(matches!(failed, Err(Error::Work(_))), "{failed:?}");
    match leased(&case.store, case.named("work"), async |_| Ok::<_, Error>(())).await {
        Err(Error::Refused(refusal)) => assert_eq!(refusal.outcome, Outcome::Unknown),
        other => panic!("{other:?}"),
    }
    let begin = async |key: &str| match case.store.begin_leased(&case.named(key)).await {
        Ok(Begun::Execute(lease)) => lease,
        other => panic!("{other:?}"),
    };
    begin("fails").await.fail("failed").await.unwrap();
    case.unknown("fails", "failed", None).await;
    begin("nothing").await.nothing_happened("refused").await.unwrap();
    assert_eq!(case.ended("nothing").await.0, "retryable");
    begin("unknown").await.unknown("no answer", Some("ch_1")).await.unwrap();
    case.unknown("unknown", "no answer", Some("ch_1")).await;

    let answer = idempotency_postgres::Answer::json(StatusCode::OK, &1).unwrap();
    let lease = begin("late").await;
    lease.claim().unknown("no answer", None).await.unwrap();
    assert!(matches!(lease.complete(&answer).await, Err(Error::Unknown)));
    case.unknown("late", "no answer", None).await;
    drop(begin("dropped").await);
    case.settled("dropped").await;
    case.unknown("dropped", "the work was given up, or panicked", None).await;
}
