//! Functions for code without HTTP.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    Answer, Claim, Error, Request, Store, Tx,
    answer::Stored,
    error::{BoxError, pause},
    lease,
    request::ATTEMPTS,
    statements,
    transaction::{End, Settled, Work, transactional},
};

/// Does work in the transaction that holds its claim, and keeps its result, which must fit into JSON, for every
/// repeat. An error of the work rolls all of it back. Work that is not done is [`Error::Refused`]. Work may run
/// several times, of which one commits.
pub async fn transactionally<T, E, F>(
    store: &Store,
    request: Request,
    mut work: impl FnMut(Tx) -> F,
) -> Result<T, Error>
where
    T: Serialize + DeserializeOwned,
    E: Into<BoxError>,
    F: Future<Output = Result<T, E>>,
{
    let run = |tx, _| {
        let running = work(tx);
        async move { worked(running.await) }
    };
    result_of(transactional(store, &Arc::new(request), run).await?)
}

/// Does work outside the database, under a claim that commits before it and is extended while it runs. An error
/// of the work ends the claim: it may be tried again, or its outcome is unknown if the policy of the scope has
/// `on_lease_expiry => 'unknown'`. An [`Error::nothing_happened`] may always be tried again. When the lease is
/// lost, [`Claim::lost`] is cancelled, and the result is [`Error::LeaseLost`].
pub async fn leased<T, E, F>(store: &Store, request: Request, work: impl FnOnce(Claim) -> F) -> Result<T, Error>
where
    T: Serialize + DeserializeOwned,
    E: Into<BoxError>,
    F: Future<Output = Result<T, E>>,
{
    let run = |claim| async { worked(work(claim).await) };
    result_of(lease::leased(store, &Arc::new(request), |_| {}, run).await?)
}

/// Handles a message that may be delivered several times, in a transaction: true if this was the first. An
/// error of the work rolls all of it back, so that the next delivery is the first. Acknowledge the message
/// after `Ok`, whether true or false.
pub async fn once<E, F>(
    store: &Store,
    scope: &str,
    principal: &str,
    id: &str,
    mut work: impl FnMut(Tx) -> F,
) -> Result<bool, Error>
where
    E: Into<BoxError>,
    F: Future<Output = Result<(), E>>,
{
    for attempt in 1.. {
        match once_in(store, scope, principal, id, &mut work).await {
            Err(error) if error.is_retryable() && attempt < ATTEMPTS => pause(attempt).await,
            result => return result,
        }
    }
    unreachable!("the last attempt returns")
}

async fn once_in<E, F>(
    store: &Store,
    scope: &str,
    principal: &str,
    id: &str,
    work: impl FnOnce(Tx) -> F,
) -> Result<bool, Error>
where
    E: Into<BoxError>,
    F: Future<Output = Result<(), E>>,
{
    let tx = Tx::begin(store, Instant::now() + store.timeout).await?;
    // Waits without limit for another delivery.
    if !statements::once(tx.connection(), id, scope, principal).await? {
        tx.roll_back(store.timeout).await?;
        return Ok(false);
    }
    match work(tx.clone()).await {
        Ok(()) => tx.commit_checked(store.timeout).await.map(|()| true),
        Err(error) => {
            let error = Error::Work(error.into());
            match tx.roll_back(store.timeout).await {
                Err(lost) if error.state().is_none() => Err(lost),
                _ => Err(error),
            }
        }
    }
}

fn worked<T: Serialize, E: Into<BoxError>>(result: Result<T, E>) -> Work<Option<T>> {
    let failure = match result {
        Ok(result) => match Answer::json(StatusCode::OK, &result) {
            Ok(answer) => return Work { answer: Some(result), end: End::Keep(Stored::of(&answer)), failure: None },
            Err(error) => Error::Json(error),
        },
        Err(error) => Error::Work(error.into()),
    };
    Work { answer: None, end: End::NotKept(failure.to_string()), failure: Some(failure) }
}

fn result_of<T: DeserializeOwned>(verdict: Settled<Option<T>>) -> Result<T, Error> {
    match verdict {
        Settled::Worked(Some(result)) => Ok(result),
        Settled::Worked(None) | Settled::Lost => Err(Error::LeaseLost),
        Settled::Failed(_, failure) => Err(failure),
        Settled::Refused(refusal, _) => Err(Error::Refused(refusal)),
        Settled::Replay(answer, ..) => {
            // A record that an operator has completed may have no body.
            let body = if answer.body.is_empty() { Bytes::from_static(b"null") } else { answer.body };
            serde_json::from_slice(&body).map_err(Error::Json)
        }
    }
}
