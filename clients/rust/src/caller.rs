//! For those who call services that are protected.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, header};
use tokio::time::{sleep, timeout};

use crate::{default_keep, format_key};

/// Sends a request, by any client of HTTP, and repeats it with its key until its answer is final.
#[derive(Clone, Debug)]
#[must_use]
pub struct Caller {
    attempts: u32,
    timeout: Duration,
    first_pause: Duration,
    longest_pause: Duration,
    replay_header: HeaderName,
}

/// There is no final answer: it is not known whether the request has taken effect. Send it again later, with the
/// same key.
#[derive(Debug)]
pub struct NotFinal<E> {
    /// The last answer.
    pub response: Option<Response<Bytes>>,
    /// Why there was none. It is none either if the last sending took too long.
    pub error: Option<E>,
}

impl<E: fmt::Display> fmt::Display for NotFinal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.response, &self.error) {
            (Some(response), _) => write!(f, "no final answer: {}", response.status()),
            (None, Some(error)) => write!(f, "no final answer: {error}"),
            (None, None) => f.write_str("no final answer: the last sending took too long"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for NotFinal<E> {}

impl Default for Caller {
    fn default() -> Self {
        Self {
            attempts: 8,
            timeout: Duration::from_secs(30),
            first_pause: Duration::from_millis(200),
            longest_pause: Duration::from_secs(30),
            replay_header: HeaderName::from_static("idempotent-replayed"),
        }
    }
}

impl Caller {
    /// How often a request is sent: 8 times.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// For one sending and its answer: 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The bounds of pauses, which double: 200 ms and 30 s. Each pause is a random part of its bound. A Retry-After
    /// of the service counts if it is longer.
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.first_pause, self.longest_pause) = (first, longest);
        self
    }

    /// The service's name of `Idempotent-Replayed`.
    pub fn replay_header(mut self, name: HeaderName) -> Self {
        self.replay_header = name;
        self
    }

    /// Calls `send` with the value of `Idempotency-Key` until the answer is final. `send` reads the whole body: an
    /// answer that was cut off is an error. A final answer may be a refusal: look at its status. Dropping the
    /// future gives up; the request may have taken effect.
    ///
    /// # Panics
    ///
    /// If the key is empty or does not fit into a field of HTTP. Those of [`new_key`] do.
    pub async fn call<E, F>(
        &self,
        key: &str,
        mut send: impl FnMut(HeaderValue) -> F,
    ) -> Result<Response<Bytes>, NotFinal<E>>
    where
        F: Future<Output = Result<Response<Bytes>, E>>,
    {
        assert!(!key.is_empty(), "a request is sent under a key");
        let field = HeaderValue::try_from(format_key(key)).expect("the key is printable ASCII");
        let mut attempt = 1;
        loop {
            let (response, error) = match timeout(self.timeout, send(field.clone())).await {
                Ok(Ok(response)) if self.is_final(&response) => return Ok(response),
                Ok(Ok(response)) => (Some(response), None),
                Ok(Err(error)) => (None, Some(error)),
                Err(_) => (None, None),
            };
            if attempt >= self.attempts {
                return Err(NotFinal { response, error });
            }
            sleep(self.pause(attempt).max(response.as_ref().map(retry_after).unwrap_or_default())).await;
            attempt += 1;
        }
    }

    /// Every repeat would get the same answer. A service may give problems other statuses, so their types come
    /// first.
    fn is_final(&self, response: &Response<Bytes>) -> bool {
        if response.headers().get(&self.replay_header).is_some_and(|value| value == "true") {
            return true;
        }
        match problem_in(response).as_deref() {
            Some("in-progress" | "unknown" | "retry-later" | "unavailable" | "handler-late" | "internal") => false,
            Some(_) => true,
            None => default_keep(response.status()),
        }
    }

    fn pause(&self, attempt: u32) -> Duration {
        let doubled = self.first_pause.saturating_mul(1 << (attempt - 1).min(30));
        let random = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        doubled.min(self.longest_pause).mul_f64(random)
    }
}

/// The last word of the problem's type, if it is one of the middleware's.
fn problem_in(response: &Response<Bytes>) -> Option<String> {
    let media_type = response.headers().get(header::CONTENT_TYPE)?.to_str().ok()?.split(';').next()?;
    if !media_type.trim().eq_ignore_ascii_case("application/problem+json") {
        return None;
    }
    let document: serde_json::Value = serde_json::from_slice(response.body()).ok()?;
    let (_, word) = document.get("type")?.as_str()?.split_once("/problems/idempotency/")?;
    Some(word.to_owned())
}

/// In seconds, as the middlewares say it. A date is left out.
fn retry_after(response: &Response<Bytes>) -> Duration {
    let field = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    Duration::from_secs(field.and_then(|seconds| seconds.trim().parse::<u32>().ok()).unwrap_or_default().into())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use tokio::time::Instant;

    use super::*;

    fn answer(status: u16, fields: &[(&str, &str)], problem: &str) -> Response<Bytes> {
        let mut response = Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        if !problem.is_empty() {
            response = response.header("content-type", "application/problem+json; charset=utf-8");
        }
        response.body(format!("{{\"type\": \"/problems/idempotency/{problem}\"}}").into()).unwrap()
    }

    #[test]
    fn which_answers_are_final() {
        let caller = Caller::default();
        let replay = [("idempotent-replayed", "true")];
        for status in [200, 201, 303, 400, 404, 409, 422] {
            assert!(caller.is_final(&answer(status, &[], "")), "{status}");
        }
        for status in [408, 425, 429, 500, 503] {
            assert!(!caller.is_final(&answer(status, &[], "")), "{status}");
            assert!(caller.is_final(&answer(status, &replay, "")), "{status}");
        }
        for (status, word) in [
            (409, "in-progress"),
            (400, "in-progress"),
            (409, "unknown"),
            (503, "retry-later"),
            (503, "unavailable"),
            (500, "internal"),
        ] {
            assert!(!caller.is_final(&answer(status, &[], word)), "{word}");
        }
        for (status, word) in [(422, "mismatch"), (412, "expired"), (500, "exhausted"), (500, "failed")] {
            assert!(caller.is_final(&answer(status, &[], word)), "{word}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_and_their_bounds() {
        let (sent, start) = (AtomicU32::new(0), Instant::now());
        let caller = Caller::default();
        let answered = caller.call("k", async |key| {
            assert_eq!(key, "\"k\"");
            match sent.fetch_add(1, SeqCst) {
                0 => Ok::<_, &str>(answer(503, &[("retry-after", "60")], "unavailable")),
                1 => Err("lost"),
                2 => std::future::pending().await,
                _ => Ok(answer(201, &[], "")),
            }
        });
        assert_eq!(answered.await.unwrap().status(), 201);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(90) && took < Duration::from_secs(92), "{took:?}");
        let caller = Caller::default().attempts(3).pauses(Duration::from_secs(1), Duration::from_secs(2));
        let start = Instant::now();
        let open = caller.call("k", async |_| Err::<Response<Bytes>, _>("lost")).await.unwrap_err();
        assert_eq!((open.error, start.elapsed() < Duration::from_secs(3)), (Some("lost"), true));
    }
}
