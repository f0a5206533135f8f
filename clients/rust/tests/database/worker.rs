//! Workers; the suite's cases start the example, and these are the ones that it cannot see.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use axum::http::{HeaderMap, StatusCode};
use idempotency_postgres::{Answer, Claim, Due, Error, Tx, Worker, WorkerOptions};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::Case;

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(3600);
const PATIENCE: Duration = Duration::from_secs(60);
type Reported = Arc<Mutex<Vec<String>>>;

/// A scope of the case's own.
fn scope(case: &Case) -> String {
    format!("work/{}", case.tenant)
}

/// A record that is due, by a first attempt that has failed.
async fn queue(case: &Case, key: &str, request: &Value) {
    let mut client = case.pool.get().await.unwrap();
    let tx = client.transaction().await.unwrap();
    let scope = scope(case);
    tx.execute("SELECT idem_policy_set($1, store_request => true, retry_base => '0', replace => true)", &[&scope])
        .await
        .unwrap();
    let begin =
        "SELECT FROM idem_begin($1, $2::jsonb, scope => $3, principal => $4, method => 'POST', path => '/hook')";
    tx.execute(begin, &[&key, request, &scope, &case.tenant]).await.unwrap();
    let fail = "SELECT idem_fail($1, 'queued', retryable => true, retry_after => '0', scope => $2, principal => $3)";
    tx.execute(fail, &[&key, &scope, &case.tenant]).await.unwrap();
    tx.commit().await.unwrap();
}

fn options(case: &Case) -> (WorkerOptions, Reported) {
    let reported = Reported::default();
    let told = reported.clone();
    let options = WorkerOptions::new(scope(case))
        .poll(SHORT)
        .on_error(move |error, _| told.lock().unwrap().push(error.to_string()));
    (options, reported)
}

async fn run(worker: &Worker) -> Result<(), Error> {
    tokio::time::timeout(PATIENCE, worker.run()).await.expect("the worker ends")
}

/// A handler that stops its worker needs it before it is made.
#[derive(Clone, Default)]
struct Stop(Arc<Mutex<Option<Worker>>>);

impl Stop {
    fn stop(&self) {
        self.0.lock().unwrap().as_ref().unwrap().stop();
    }

    async fn run(&self, worker: Worker) {
        *self.0.lock().unwrap() = Some(worker.clone());
        run(&worker).await.unwrap();
    }
}

#[tokio::test]
async fn due_has_what_the_record_has() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({"amount": 5})).await;
    let (stop, seen) = (Stop::default(), Arc::new(Mutex::new(None)));
    let (stopping, seeing) = (stop.clone(), seen.clone());
    let (options, reported) = options(&case);
    let handler = move |due: Due, tx: Tx| {
        stopping.stop();
        *seeing.lock().unwrap() = Some(due.clone());
        async move { tx.execute("INSERT INTO note VALUES ($1, 'done')", &[&due.info.principal]).await.map(drop) }
    };
    stop.run(Worker::transactional(&case.store, options, handler)).await;
    let due = seen.lock().unwrap().take().unwrap();
    assert_eq!((&*due.info.key, &due.info.principal, due.info.attempt), ("k", &case.tenant, 2));
    assert_eq!((due.method.as_deref(), due.path.as_deref(), due.operation), (Some("POST"), Some("/hook"), None));
    assert_eq!((due.request, due.error.as_deref()), (Some(json!({"amount": 5})), Some("queued")));
    assert_eq!((case.record().await.unwrap().0.as_str(), case.count("done").await), ("completed", 1));
    assert!(reported.lock().unwrap().is_empty());
}

#[tokio::test]
async fn steps_of_an_earlier_attempt_are_not_done_again() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({})).await;
    let (stop, count) = (Stop::default(), Arc::new(AtomicU32::new(0)));
    let (stopping, counted) = (stop.clone(), count.clone());
    let (options, reported) = options(&case);
    let handler = move |due: Due, claim: Claim| {
        let (stopping, counted) = (stopping.clone(), counted.clone());
        async move {
            let send = async || Ok::<_, Error>(counted.fetch_add(1, SeqCst));
            claim.step("sent", send).await?;
            if due.info.attempt == 2 {
                return Err(Error::Work("the first time".into()));
            }
            assert_eq!((due.recovery_point.as_deref(), due.state), (Some("sent"), Some(json!({"sent": 0}))));
            stopping.stop();
            Ok(Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: "ok".into() })
        }
    };
    stop.run(Worker::leased(&case.store, options, handler)).await;
    assert_eq!(count.load(SeqCst), 1);
    assert_eq!(case.record().await.unwrap().0, "completed");
    assert_eq!(*reported.lock().unwrap(), ["the first time"]);
}

#[tokio::test]
async fn a_claim_that_is_lost_is_reported_and_nothing_stays() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({})).await;
    let (told, mut claimed) = mpsc::channel(1);
    let (options, reported) = options(&case);
    let handler = move |due: Due, tx: Tx| {
        let told = told.clone();
        async move {
            tx.execute("INSERT INTO note VALUES ($1, 'done')", &[&due.info.principal]).await?;
            told.send(()).await.unwrap();
            due.stop.cancelled().await;
            Ok::<_, tokio_postgres::Error>(())
        }
    };
    let worker = Worker::transactional(&case.store, options.lease(Duration::from_secs(2)), handler);
    let decided = async {
        claimed.recv().await.unwrap();
        case.resolve(&scope(&case), "fail").await;
        worker.stop();
    };
    tokio::join!(decided, async { run(&worker).await.unwrap() });
    assert_eq!((case.record().await.unwrap().0.as_str(), case.count("done").await), ("failed", 0));
    assert_eq!(*reported.lock().unwrap(), [Error::LeaseLost.to_string()]);
}

#[tokio::test]
async fn a_conflict_after_the_lease_does_not_run_the_handler_again() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({})).await;
    let (stop, runs, (options, reported)) = (Stop::default(), Arc::new(AtomicU32::new(0)), options(&case));
    let (stopping, counted) = (stop.clone(), runs.clone());
    let handler = move |_, tx: Tx| {
        stopping.stop();
        counted.fetch_add(1, SeqCst);
        async move {
            // Its COMMIT takes longer than the lease.
            tx.batch_execute(
                "CREATE TEMP TABLE late ();
                CREATE FUNCTION pg_temp.late() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
                    PERFORM pg_sleep(0.7);
                    RAISE EXCEPTION SQLSTATE '40001';
                END$$;
                CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
                    FOR EACH ROW EXECUTE FUNCTION pg_temp.late();
                INSERT INTO late DEFAULT VALUES",
            )
            .await
        }
    };
    stop.run(Worker::transactional(&case.store, options.lease(Duration::from_millis(600)), handler)).await;
    assert_eq!(runs.load(SeqCst), 1);
    assert_eq!(*reported.lock().unwrap(), [Error::LeaseLost.to_string()]);
}

#[tokio::test]
async fn a_panic_of_a_transaction_leaves_nothing() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({})).await;
    let (stop, (options, reported)) = (Stop::default(), options(&case));
    let stopping = stop.clone();
    let handler = move |due: Due, tx: Tx| {
        let stopping = stopping.clone();
        async move {
            stopping.stop();
            tx.execute("INSERT INTO note VALUES ($1, 'done')", &[&due.info.principal]).await?;
            assert!(due.request.is_none(), "it panics");
            Ok::<_, tokio_postgres::Error>(())
        }
    };
    stop.run(Worker::transactional(&case.store, options, handler)).await;
    assert_eq!((case.record().await.unwrap().0.as_str(), case.count("done").await), ("retryable", 0));
    assert_eq!(*reported.lock().unwrap(), ["the handler panicked"]);
}

#[tokio::test]
async fn a_request_beyond_our_numbers_is_reported() {
    let Some(case) = Case::new().await else { return };
    let client = case.pool.get().await.unwrap();
    queue(&case, "k", &json!({})).await;
    let (options, reported) = options(&case);
    // Of jsonb's, not of serde's.
    let begin = "SELECT FROM idem_begin('big', '1e400'::jsonb, scope => $1, principal => $2, lease => '1 ms')";
    client.execute(begin, &[&scope(&case), &case.tenant]).await.unwrap();
    let worker = Worker::transactional(&case.store, options, |_, _| async { Ok::<_, Error>(()) });
    let heard = async {
        while !reported.lock().unwrap().iter().any(|error| error.contains("not understood")) {
            tokio::time::sleep(SHORT).await;
        }
        worker.stop();
    };
    tokio::join!(heard, async { run(&worker).await.unwrap() });
}

#[tokio::test]
async fn abort_tells_the_handlers() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({})).await;
    let (told, mut working) = mpsc::channel(1);
    let (options, _) = options(&case);
    let handler = move |due: Due, claim: Claim| {
        let told = told.clone();
        async move {
            told.send(()).await.unwrap();
            due.stop.cancelled().await;
            assert!(!claim.lost().is_cancelled());
            Err::<(), _>(Error::nothing_happened("aborted"))
        }
    };
    let worker = Worker::leased(&case.store, options.poll(LONG), handler);
    let aborted = async {
        working.recv().await.unwrap();
        worker.abort();
    };
    tokio::join!(aborted, async { run(&worker).await.unwrap() });
    assert_eq!(case.record().await.unwrap().0, "retryable", "the claim was held, so it has ended");
}

#[tokio::test]
async fn a_mistake_ends_it_and_one_that_was_stopped_claims_nothing() {
    let Some(case) = Case::new().await else { return };
    queue(&case, "k", &json!({})).await;
    let worker = |scope: &str| {
        Worker::transactional(&case.store, WorkerOptions::new(scope), |_, _| async { Ok::<_, Error>(()) })
    };
    assert!(matches!(run(&worker(" ")).await, Err(Error::Database(_))));
    let stopped = worker(&scope(&case));
    stopped.stop();
    stopped.stop();
    run(&stopped).await.unwrap();
    assert_eq!(case.record().await.unwrap().0, "retryable");
}
