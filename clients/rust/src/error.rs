//! Errors, and which of them a repetition may cure.

use std::{error::Error as StdError, fmt, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use tokio_postgres::error::DbError;

use crate::Outcome;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a request was not executed, or why its result is not known.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A failure of a statement of ours, or of getting a connection. Without an SQLSTATE the connection is
    /// lost.
    Database(BoxError),
    /// This crate does not understand the server's answer: is the extension of this version installed?
    Unexpected(BoxError),
    /// A failure of COMMIT. Without an SQLSTATE it is not known whether it committed.
    Commit(BoxError),
    /// The database did not answer in time.
    Timeout,
    /// COMMIT had no answer in time: it is not known whether it committed.
    CommitTimeout,
    /// Another session has the claim, or may have it: the work must have no further effect.
    LeaseLost,
    /// The claim was not granted.
    Refused(Refusal),
    /// A clone of [`Tx`](crate::Tx) has outlived the work, which was rolled back.
    TransactionKept,
    /// The result of work, or content to compare, does not fit into JSON.
    Json(serde_json::Error),
    /// The work itself has failed.
    Work(BoxError),
    /// Leased work has failed, and has had no effect: [`Error::nothing_happened`].
    NothingHappened(BoxError),
    /// The handler has not answered within [`Route::handler_timeout`](crate::Route::handler_timeout).
    HandlerTimeout,
    /// The claim has ended by [`Claim::unknown`](crate::Claim::unknown).
    Unknown,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database(error) => write!(f, "the database failed: {}", Causes(&**error)),
            Self::Unexpected(error) => write!(f, "the database has said what is not understood: {}", Causes(&**error)),
            Self::Commit(error) => write!(f, "COMMIT failed: {}", Causes(&**error)),
            Self::Timeout => f.write_str("the database did not answer in time"),
            Self::CommitTimeout => f.write_str("COMMIT was not answered in time"),
            Self::HandlerTimeout => f.write_str("the handler did not answer in time"),
            Self::LeaseLost => f.write_str("the lease of this claim is lost"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::TransactionKept => f.write_str("a clone of Tx has outlived the handler"),
            Self::Json(error) => write!(f, "JSON: {error}"),
            Self::Work(error) | Self::NothingHappened(error) => Causes(&**error).fmt(f),
            Self::Unknown => f.write_str("the outcome of this claim was declared unknown"),
        }
    }
}

/// An error with its causes, because the driver's own text is only "db error". Of the server's errors only
/// message and SQLSTATE: details quote rows of tables.
struct Causes<'a>(&'a (dyn StdError + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        let mut next = Some(self.0);
        while let Some(error) = next {
            let one = match error.downcast_ref::<DbError>() {
                Some(error) => format!("{} ({})", error.message(), error.code().code()),
                None => error.to_string(),
            };
            // Some repeat the text of their cause.
            if !said.ends_with(&one) {
                said = if said.is_empty() { one } else { format!("{said}: {one}") };
            }
            next = error.source();
        }
        f.write_str(&said)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Database(error) | Self::Unexpected(error) | Self::Commit(error) => Some(&**error),
            Self::Work(error) | Self::NothingHappened(error) => error.source(),
            Self::Json(error) => error.source(),
            _ => None,
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Database(error.into())
    }
}

/// The server's reason why work was not done.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Refusal {
    /// One of `idem_begin`, or [`Outcome::Failed`]: the request has failed for good.
    pub outcome: Outcome,
    /// If it is known.
    pub retry_after: Option<Duration>,
    /// Why the earlier attempt failed, if that is known.
    pub reason: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not executed: {}", self.outcome)?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

impl Error {
    /// Marks the error of leased work that has had no effect: for example, the gateway refused the connection.
    /// The request may then be tried again, even if the policy of the scope has `on_lease_expiry => 'unknown'`.
    pub fn nothing_happened(error: impl Into<BoxError>) -> Self {
        Self::NothingHappened(error.into())
    }

    /// Whether the work may have had an effect.
    pub(crate) fn is_uncertain(&self) -> bool {
        !says_nothing_happened(self)
    }

    fn db_error(&self) -> Option<&DbError> {
        let error: &BoxError = match self {
            Self::Database(error) | Self::Commit(error) | Self::Work(error) | Self::NothingHappened(error) => error,
            _ => return None,
        };
        let mut error: Option<&(dyn StdError + 'static)> = Some(&**error);
        while let Some(one) = error {
            if let Some(found) = one.downcast_ref() {
                return Some(found);
            }
            error = one.source();
        }
        None
    }

    pub(crate) fn state(&self) -> Option<&str> {
        self.db_error().map(|error| error.code().code())
    }

    pub(crate) fn state_in(&self, states: &[&str]) -> bool {
        self.state().is_some_and(|state| states.contains(&state))
    }

    pub(crate) fn is_conflict(&self) -> bool {
        self.state_in(&["40001", "40P01"])
    }

    fn is_lost_connection(&self) -> bool {
        match self.state() {
            Some(state) => state.starts_with("08") || ["57P01", "57P02", "57P03"].contains(&state),
            // Errors of handlers do not mean that, for they may have other connections than ours.
            None => matches!(self, Self::Database(_) | Self::Commit(_)),
        }
    }

    /// Of a prepared statement: feature_not_supported is "cached plan must not change result type".
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Database(_)) && self.state_in(&["26000", "0A000"])
    }

    /// A repetition from `idem_begin` on may succeed. After a COMMIT without an answer it finds the result.
    pub(crate) fn is_retryable(&self) -> bool {
        self.is_conflict() || self.is_lost_connection() || self.is_stale() || matches!(self, Self::CommitTimeout)
    }

    /// It is not known whether the transaction has committed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        matches!(self, Self::CommitTimeout) || matches!(self, Self::Commit(_)) && !self.is_conflict()
    }

    /// Every error that means "not now": the database is away, full, or a standby.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.is_retryable()
            || matches!(self, Self::Timeout)
            || self.state().is_some_and(|state| state.starts_with("53"))
            || self.state_in(&["25006", "25P03", "25P04", "55P03", "57014", "57P05"])
    }

    /// No repetition can succeed: a right, a function, the database or a value is wrong.
    pub(crate) fn is_mistake(&self) -> bool {
        matches!(self, Self::Unexpected(_))
            || self.state().is_some_and(|state| ["0A", "22", "28", "3D", "3F", "42"].contains(&&state[..2]))
    }

    /// The claim has ended, or another session has it.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, Self::LeaseLost) || self.state_in(&["ID404", "ID409"])
    }
}

/// By the error itself, by that of work, or by a cause.
fn says_nothing_happened(error: &(dyn StdError + 'static)) -> bool {
    match error.downcast_ref() {
        Some(Error::NothingHappened(_)) => true,
        Some(Error::Work(error)) => says_nothing_happened(&**error),
        _ => error.source().is_some_and(says_nothing_happened),
    }
}

/// What a handler answers that has failed: its transaction is rolled back, or its claim fails retryably,
/// and after a conflict it is run again. It is made of any error, by `?`:
///
/// ```
/// # use idempotency_postgres::Failure;
/// fn handler() -> Result<u64, Failure> {
///     Ok("17".parse()?)
/// }
/// ```
///
/// As a response it is 500, or the answer of [`Failure::answer`]. A handler with answers of its own to errors puts
/// it into their extensions. If such an answer is one to keep, from 400 to 499, it is stored without the work.
#[derive(Clone, Debug)]
pub struct Failure {
    error: Arc<BoxError>,
    answer: Option<(StatusCode, Bytes)>,
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { error: Arc::new(error.into()), answer: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Failure {
    /// Raises an answer: the work is rolled back. The answer is kept if its status is from 400 to 499, and none of
    /// 408, 425 and 429.
    pub fn answer(status: StatusCode, text: impl Into<String>) -> Self {
        let text = text.into();
        let body = Bytes::from(text.clone());
        Self { error: Arc::new(format!("{status}: {text}").into()), answer: Some((status, body)) }
    }

    /// The answer, or an empty 500, with this failure in its extensions. axum does it by itself.
    #[must_use]
    pub fn into_response_of<B: From<Bytes>>(self) -> http::Response<B> {
        let (status, body) = self.answer.clone().unwrap_or((StatusCode::INTERNAL_SERVER_ERROR, Bytes::new()));
        let text = !body.is_empty();
        let mut response = http::Response::new(B::from(body));
        if text {
            let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
        }
        *response.status_mut() = status;
        response.extensions_mut().insert(self);
        response
    }

    /// The error of which it was made.
    #[must_use]
    pub fn error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &**self.error
    }

    pub(crate) fn into_error(self) -> Error {
        Error::Work(Shared(self.error).into())
    }
}

/// Failures are cloned, errors are not.
#[derive(Debug)]
struct Shared(Arc<BoxError>);

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Shared {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&**self.0)
    }
}

pub(crate) fn connection_lost() -> Error {
    Error::Database(io::Error::from(io::ErrorKind::ConnectionReset).into())
}

/// Repeats a call while a repetition may cure its error.
pub(crate) async fn again<T, F>(attempts: u32, mut call: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempt = 1;
    loop {
        match call().await {
            Err(error) if error.is_retryable() && attempt < attempts => pause(attempt).await,
            result => return result,
        }
        attempt += 1;
    }
}

/// Doubling from 10 ms to a second, half of it random.
pub(crate) async fn pause(attempt: u32) {
    let longest = (10_u64 << attempt.min(10)).min(1000);
    let random = u64::from(uuid::Uuid::new_v4().as_fields().0);
    tokio::time::sleep(Duration::from_millis(longest / 2 + random % (longest / 2))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_repetition_cures() {
        assert!(connection_lost().is_retryable());
        assert!(Error::CommitTimeout.is_retryable() && Error::CommitTimeout.is_in_doubt());
        assert!(!Error::Timeout.is_retryable() && Error::Timeout.is_unavailable());
        let work = Failure::from(io::Error::from(io::ErrorKind::ConnectionReset)).into_error();
        assert!(!work.is_retryable() && !work.is_unavailable(), "a handler's connection is not ours");
        assert!(Error::LeaseLost.is_lost() && !Error::LeaseLost.is_unavailable());
    }

    #[test]
    fn nothing_happened_is_found_in_causes() {
        let error = || Error::nothing_happened("refused");
        let step = Error::Work(error().into());
        assert!(!error().is_uncertain() && !step.is_uncertain());
        assert!(!Failure::from(step).into_error().is_uncertain());
        assert!(Failure::from("refused").into_error().is_uncertain());
        assert_eq!(error().to_string(), "refused");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_counted() {
        let mut calls = 0;
        let result = again(3, || {
            calls += 1;
            std::future::ready(Err::<(), _>(connection_lost()))
        });
        assert!(result.await.is_err());
        assert_eq!(calls, 3);
    }
}
