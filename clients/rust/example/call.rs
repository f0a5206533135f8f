//! Executes COUNT orders by the helper for callers, and prints each key with the last answer's status.

use std::{env, error::Error, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use idempotency_postgres::{Caller, new_key};
use tokio::net::TcpStream;

type Failure = Box<dyn Error + Send + Sync>;

/// Over a connection of its own.
async fn send(url: Uri, token: String, key: HeaderValue) -> Result<Response<Bytes>, Failure> {
    let authority = url.authority().ok_or("the URL has no host")?.clone();
    let stream = TcpStream::connect(authority.as_str()).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::post(url.path())
        .header(header::HOST, authority.as_str())
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header("idempotency-key", key)
        .body(Full::new(Bytes::from_static(br#"{"effect": "called"}"#)))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
}

async fn order(url: Uri, token: String) -> Result<(), Failure> {
    let key = new_key();
    let caller = Caller::default()
        .attempts(30)
        .timeout(Duration::from_secs(5))
        .pauses(Duration::from_millis(20), Duration::from_millis(500));
    let answer = caller.call(&key, |field| send(url.clone(), token.clone(), field)).await;
    println!("{key} {}", answer.map_err(|open| open.to_string())?.status().as_u16());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let words: Vec<String> = env::args().collect();
    let (url, token) = (words[1].parse::<Uri>()?, &words[2]);
    let count: usize = words[3].parse()?;
    let workers = (0..4).map(|worker| {
        let (url, token) = (url.clone(), token.clone());
        tokio::spawn(async move {
            for _ in (worker..count).step_by(4) {
                order(url.clone(), token.clone()).await?;
            }
            Ok::<_, Failure>(())
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(())
}
