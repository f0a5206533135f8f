//! Transactional routes, on a real database.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::support::{Answer, Case, away, route, send};
use axum::{
    Json, Router,
    body::Bytes,
    http::{HeaderMap, Request, Response, StatusCode},
    response::{AppendHeaders, IntoResponse},
    routing::post,
};
use http_body_util::{BodyExt, Full};
use idempotency_postgres::{Failure, Info, MissingKey, Outcome, Tx, format_key};
use tokio::sync::{Notify, mpsc};
use tower::{Layer, ServiceExt};

const INSERT: &str = "INSERT INTO note (tenant, what) VALUES ($1, $2)";

async fn note(tx: Tx, info: Info) -> Result<impl IntoResponse, Failure> {
    tx.execute(INSERT, &[&info.principal, &"done"]).await?;
    let headers = AppendHeaders([("x-several", "b"), ("x-several", "a"), ("set-cookie", "a=b")]);
    Ok((StatusCode::CREATED, headers, Bytes::from_static(b"\x00\xff")))
}

#[tokio::test]
async fn a_replay_is_the_first_answer() {
    let Some(case) = Case::new().await else { return };
    let app = Router::new().route("/notes", post(note).layer(case.store.transactional(route())));
    let first = case.post(&app, "/notes", "{\"a\":1,\"b\":2}").await;
    let again = case.post(&app, "/notes", "{ \"b\":2.0,\"a\":1}").await;
    assert_eq!((first.status, first.is_replay()), (StatusCode::CREATED, false));
    assert_eq!((again.status, again.is_replay(), &again.body), (StatusCode::CREATED, true, &first.body));
    let several: Vec<_> = again.headers.get_all("x-several").iter().collect();
    assert_eq!(several, ["b", "a"]);
    assert!(first.headers.contains_key("set-cookie") && !again.headers.contains_key("set-cookie"));
    assert_eq!(case.count("done").await, 1);
    let other = case.post(&app, "/notes", "{\"a\":2}").await;
    assert_eq!(
        (other.status, &other.headers["content-type"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &"application/problem+json".parse().unwrap())
    );
    assert_eq!(case.post(&app, "/notes?x", "{\"a\":1,\"b\":2}").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn scope_and_target_of_nested_routers() {
    let Some(case) = Case::new().await else { return };
    let inner = Router::new().route("/notes/{id}", post(note).layer(case.store.transactional(route())));
    let app = Router::new().nest("/v1", inner.clone()).nest("/{version}", inner);
    assert_eq!(case.post(&app, "/v1/notes/7", "1").await.status, StatusCode::CREATED);
    let client = case.pool.get().await.unwrap();
    let scope = "SELECT scope FROM idempotency.records WHERE principal = $1";
    assert_eq!(client.query_one(scope, &[&case.tenant]).await.unwrap().get::<_, String>(0), "POST /v1/notes/{id}");
    // Other scopes are other keys; below one of them, prefixes tell targets apart.
    assert_eq!(case.post(&app, "/v2/notes/7", "1").await.status, StatusCode::CREATED);
    assert_eq!(case.post(&app, "/v3/notes/7", "1").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn conflicts_run_the_handler_again() {
    let Some(case) = Case::new().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = runs.clone();
    let handler = async move |tx: Tx, info: Info| {
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        if counted.fetch_add(1, SeqCst) < 2 {
            tx.batch_execute("DO $$BEGIN RAISE EXCEPTION SQLSTATE '40001'; END$$").await?;
        }
        Ok::<_, Failure>(StatusCode::CREATED)
    };
    let app = Router::new().route("/", post(handler).layer(case.store.transactional(route())));
    assert_eq!(case.post(&app, "/", "1").await.status, StatusCode::CREATED);
    assert_eq!((runs.load(SeqCst), case.count("done").await), (3, 1));
}

#[tokio::test]
async fn a_connection_that_is_lost_is_noticed_though_hidden() {
    let Some(case) = Case::new().await else { return };
    for status in [StatusCode::CREATED, StatusCode::INTERNAL_SERVER_ERROR] {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let handler = async move |tx: Tx| {
            if counted.fetch_add(1, SeqCst) == 0 {
                let _ = tx.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await;
                return status;
            }
            StatusCode::CREATED
        };
        let scope = format!("lost {status}");
        let app = Router::new().route("/", post(handler).layer(case.store.transactional(route().scope(scope))));
        assert_eq!(case.post(&app, "/", "1").await.status, StatusCode::CREATED);
        assert_eq!(runs.load(SeqCst), 2);
    }
}

#[tokio::test]
async fn an_error_that_is_hidden_is_no_success() {
    let Some(case) = Case::new().await else { return };
    let handler = async |tx: Tx| {
        let _ = tx.execute("SELECT 1/0", &[]).await;
        StatusCode::CREATED
    };
    let layer = case.store.transactional(route().missing_key(MissingKey::Pass));
    let app = Router::new().route("/", post(handler).layer(layer));
    assert_eq!(case.post(&app, "/", "1").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(case.record().await, None);
    let mut keyless = case.request("/", "1");
    keyless.headers_mut().remove("idempotency-key");
    assert_eq!(send(&app, keyless).await.status, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn no_clone_of_the_transaction_outlives_its_handler() {
    let Some(case) = Case::new().await else { return };
    let (keep, mut kept) = mpsc::unbounded_channel();
    let handler = async move |tx: Tx, info: Info| {
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        keep.send(tx).unwrap();
        Ok::<_, Failure>(StatusCode::CREATED)
    };
    let app = Router::new().route("/", post(handler).layer(case.store.transactional(route())));
    assert_eq!(case.post(&app, "/", "1").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    // The key is free, though the clone is still there, which can do nothing any more.
    assert_eq!((case.count("done").await, case.record().await), (0, None));
    let tx = kept.recv().await.unwrap();
    let late = tx.execute(INSERT, &[&case.tenant, &"late"]).await;
    assert_eq!(late.unwrap_err().code().unwrap().code(), "25P02");
    let locks = "SELECT count(*) FROM idempotency.in_flight WHERE principal = $1";
    let client = case.pool.get().await.unwrap();
    assert_eq!(client.query_one(locks, &[&case.tenant]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_panic_rolls_back_and_goes_on() {
    let Some(case) = Case::new().await else { return };
    let handler = async |tx: Tx, info: Info| -> StatusCode {
        tx.execute(INSERT, &[&info.principal, &"done"]).await.unwrap();
        panic!("the handler")
    };
    let app = Router::new().route("/", post(handler).layer(case.store.transactional(route())));
    let request = case.request("/", "1");
    let running = tokio::spawn(async move { send(&app, request).await });
    assert!(running.await.unwrap_err().is_panic());
    assert_eq!((case.count("done").await, case.record().await), (0, None));
}

#[tokio::test]
async fn a_failure_is_never_kept() {
    let Some(case) = Case::new().await else { return };
    for (said, told) in [(502, 502), (201, 500)] {
        let handler = async move |tx: Tx, info: Info| {
            tx.execute(INSERT, &[&info.principal, &"done"]).await.unwrap();
            let mut response = StatusCode::from_u16(said).unwrap().into_response();
            response.extensions_mut().insert(Failure::from("it has failed"));
            response
        };
        let app = Router::new().route("/", post(handler).layer(case.store.transactional(route().keep(|_| true))));
        assert_eq!(case.post(&app, "/", "1").await.status.as_u16(), told);
        assert_eq!((case.count("done").await, case.record().await), (0, None));
    }
}

#[tokio::test]
async fn work_goes_on_when_the_client_leaves() {
    let Some(case) = Case::new().await else { return };
    let (tell, mut told) = mpsc::unbounded_channel();
    let left = Arc::new(Notify::new());
    let gone = left.clone();
    let handler = async move |tx: Tx, info: Info| {
        tell.send(()).unwrap();
        gone.notified().await;
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        Ok::<_, Failure>(StatusCode::CREATED)
    };
    let app =
        Router::new().route("/", post(handler).layer(case.store.transactional(route().wait(Duration::from_secs(20)))));
    tokio::select! {
        answer = case.post(&app, "/", "1") => panic!("answered {answer:?}"),
        _ = told.recv() => left.notify_one(),
    }
    let again = case.post(&app, "/", "1").await;
    assert_eq!((again.status, again.is_replay(), case.count("done").await), (StatusCode::CREATED, true, 1));
}

#[tokio::test]
async fn keys_that_are_missing() {
    let Some(case) = Case::new().await else { return };
    let keyless = |path: &str| {
        let mut request = case.request(path, "{\"a\":1}");
        request.headers_mut().remove("idempotency-key");
        request
    };
    let layer = |missing| case.store.transactional(route().missing_key(missing));
    let app = Router::new()
        .route("/refuse", post(note).layer(layer(MissingKey::Refuse)))
        .route("/pass", post(note).layer(layer(MissingKey::Pass)))
        .route("/generate", post(note).layer(layer(MissingKey::Generate)))
        .route("/derive", post(note).layer(layer(MissingKey::Derive)));
    assert_eq!(send(&app, keyless("/refuse")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(send(&app, keyless("/pass")).await.status, StatusCode::CREATED);
    let generated = send(&app, keyless("/generate")).await;
    assert_eq!(generated.headers["idempotency-key"].len(), 38);
    let first = send(&app, keyless("/derive")).await;
    let again = send(&app, keyless("/derive")).await;
    assert!(!first.is_replay() && again.is_replay());
    assert_eq!(first.headers["idempotency-key"], again.headers["idempotency-key"]);
    assert_eq!(case.count("done").await, 3);
}

#[tokio::test]
async fn derived_keys_are_forgotten_with_their_window() {
    let Some(case) = Case::new().await else { return };
    let client = case.pool.get().await.unwrap();
    client.execute("SELECT idem_policy_set($1, retention => '30 days')", &[&case.tenant]).await.unwrap();
    let derive = route().scope(&case.tenant).missing_key(MissingKey::Derive).window(Duration::from_millis(500));
    let runs = Arc::new(AtomicU32::new(0));
    let handler = async move |info: Info| format!("{} {}", info.key, runs.fetch_add(1, SeqCst));
    let app = Router::new()
        .route("/transactional", post(handler.clone()).layer(case.store.transactional(derive.clone())))
        .route("/leased", post(handler).layer(case.store.leased(derive)));
    for (path, media_type) in [("/transactional", "text/plain"), ("/transactional", "application/json")]
        .into_iter()
        .chain([("/leased", "text/plain"), ("/leased", "application/json")])
    {
        let post = async || {
            let mut request = case.request(path, "1");
            request.headers_mut().remove("idempotency-key");
            request.headers_mut().insert("content-type", media_type.parse().unwrap());
            send(&app, request).await
        };
        let first = post().await;
        assert!(first.status == StatusCode::OK && !first.is_replay(), "{first:?}");
        let mut next = post().await;
        for _ in 0..1000 {
            if next.body != first.body {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            next = post().await;
        }
        assert!(next.status == StatusCode::OK && next.body != first.body, "{next:?}");
        let key = |answer: &Answer| String::from_utf8_lossy(&answer.body).split(' ').next().map(str::to_owned).unwrap();
        assert_eq!(key(&next), key(&first));
        assert_eq!(first.headers["idempotency-key"], format_key(&key(&first)));
    }
}

#[tokio::test]
async fn json_that_jsonb_refuses_counts_byte_by_byte() {
    let Some(case) = Case::new().await else { return };
    let echo = async |body: Bytes| body;
    let of_path = route().fingerprint(|parts, _| parts.uri.query().unwrap_or_default().into());
    let app = Router::new()
        .route("/transactional", post(echo).layer(case.store.transactional(route())))
        .route("/leased", post(echo).layer(case.store.leased(route())))
        .route("/own", post(echo).layer(case.store.transactional(of_path)));
    for path in ["/transactional", "/leased"] {
        for (run, [one, other]) in [["\"\\u0000\"", "\"\\u0000 \""], ["[1e400000]", "[1e400001]"]].iter().enumerate() {
            let post = async |body: &str| {
                let mut request = case.request(path, body);
                request.headers_mut().insert("idempotency-key", run.into());
                send(&app, request).await
            };
            let (first, again) = (post(one).await, post(one).await);
            assert_eq!((first.status, first.is_replay(), &*first.body), (StatusCode::OK, false, one.as_bytes()));
            assert_eq!((again.is_replay(), again.body), (true, first.body));
            assert_eq!(post(other).await.status, StatusCode::UNPROCESSABLE_ENTITY);
        }
    }
    assert!(!case.post(&app, "/own?one", "[1e400000]").await.is_replay());
    assert!(case.post(&app, "/own?one", "[1e400001]").await.is_replay());
    assert_eq!(case.post(&app, "/own?two", "[1e400000]").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    for malformed in ["{", "\"\\ud800\"", "{}\0"] {
        assert_eq!(case.post(&app, "/leased", malformed).await.status, StatusCode::BAD_REQUEST, "{malformed}");
        assert_eq!(case.post(&app, "/transactional", malformed).await.status, StatusCode::BAD_REQUEST, "{malformed}");
    }
}

#[tokio::test]
async fn answers_that_are_too_large() {
    let Some(case) = Case::new().await else { return };
    let handler = async |tx: Tx, info: Info, Json(size): Json<usize>| {
        tx.execute(INSERT, &[&info.principal, &"done"]).await?;
        Ok::<_, Failure>((StatusCode::CREATED, vec![b'x'; size]))
    };
    let layer = |omit| case.store.transactional(route().max_answer_bytes(100).omit_large_answers(omit));
    let app = Router::new()
        .route("/fail", post(handler).layer(layer(false)))
        .route("/omit", post(handler).layer(layer(true)));
    assert_eq!(case.post(&app, "/fail", "101").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(case.count("done").await, 0);
    let first = case.post(&app, "/omit", "101").await;
    let again = case.post(&app, "/omit", "101").await;
    assert_eq!((first.body.len(), again.body.len(), again.status), (101, 0, StatusCode::CREATED));
    assert_eq!(again.headers["idempotent-body"], "omitted");
    assert!(!again.headers.contains_key("content-type") && !first.headers.contains_key("idempotent-body"));
}

#[tokio::test]
async fn while_the_database_is_away() {
    let handler =
        async |tx: Option<Tx>, info: Info| (StatusCode::CREATED, format!("{} {}", tx.is_some(), info.protected));
    let hooked = Arc::new(AtomicU32::new(0));
    let count = hooked.clone();
    let counted = route().attempts(2).on_refusal(move |event| {
        assert_eq!(event.outcome, Outcome::Unavailable);
        count.fetch_add(1, SeqCst);
    });
    let app = Router::new().route("/closed", post(handler).layer(away().transactional(counted))).route(
        "/open",
        post(handler).layer(away().transactional(route().attempts(1).unprotected_without_database(true))),
    );
    let request = |path: &str| {
        Request::post(path)
            .header("x-tenant", "t")
            .header("idempotency-key", "k")
            .body(axum::body::Body::empty())
            .unwrap()
    };
    let closed = send(&app, request("/closed")).await;
    assert_eq!(
        (closed.status, &closed.headers["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    assert_eq!(hooked.load(SeqCst), 1);
    let open = send(&app, request("/open")).await;
    assert_eq!((open.status, &*open.body), (StatusCode::CREATED, &b"false false"[..]));
}

#[tokio::test]
async fn without_axum() {
    let Some(case) = Case::new().await else { return };
    let service = tower::service_fn(async |request: Request<Full<Bytes>>| {
        let tx: &Tx = request.extensions().get().unwrap();
        let info: &Info = request.extensions().get().unwrap();
        tx.execute(INSERT, &[&info.principal, &"done"]).await.unwrap();
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"done"))))
    });
    let service = case.store.transactional(route().scope("plain")).layer(service);
    for replayed in [false, true] {
        let (parts, body) = case.request("/", "").into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut request = Request::from_parts(parts, Full::new(body));
        request.headers_mut().insert("content-type", "text/plain".parse().unwrap());
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers().contains_key("idempotent-replayed"), replayed);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done");
    }
    assert_eq!(case.count("done").await, 1);
}

#[tokio::test]
async fn other_methods_pass() {
    let Some(case) = Case::new().await else { return };
    let handler = async |tx: Option<Tx>, headers: HeaderMap| format!("{} {}", tx.is_some(), headers.len());
    let app = Router::new().route("/", axum::routing::put(handler).layer(case.store.transactional(route())));
    let mut request = case.request("/", "");
    *request.method_mut() = axum::http::Method::PUT;
    let answer = send(&app, request).await;
    assert_eq!((answer.status, &*answer.body, case.record().await), (StatusCode::OK, &b"false 3"[..], None));
}

#[tokio::test]
async fn statements_that_are_gone_are_prepared_anew() {
    let Some(case) = Case::new().await else { return };
    let app = Router::new()
        .route("/transactional", post(note).layer(case.store.transactional(route())))
        .route("/leased", post(async || "done").layer(case.store.leased(route())));
    for run in 0..2 {
        for path in ["/transactional", "/leased"] {
            let mut request = case.request(path, "1");
            request.headers_mut().insert("idempotency-key", run.into());
            let answer = send(&app, request).await;
            assert!(answer.status.is_success(), "{answer:?}");
        }
        let mut clients = Vec::new();
        while clients.len() < case.pool.status().size {
            clients.push(case.pool.get().await.unwrap());
        }
        for client in clients {
            client.batch_execute("DEALLOCATE ALL").await.unwrap();
        }
    }
}
