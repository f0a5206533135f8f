//! Requests, and the server's answers to them.

use std::{collections::HashMap, sync::Arc, time::Duration};

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

use crate::{Answer, Error, Outcome, Refusal, answer, contract, identity::Identity, key::Key};

pub(crate) const LEASE: Duration = Duration::from_millis(contract::LEASE_MS);
pub(crate) const ATTEMPTS: u32 = contract::ATTEMPTS;

/// A request that takes effect once: scope and key name it, among the requests of its principal.
#[derive(Clone, Debug)]
#[must_use]
pub struct Request {
    pub(crate) key: Key,
    pub(crate) scope: String,
    pub(crate) principal: String,
    pub(crate) identity: Identity,
    pub(crate) ttl: Option<Duration>,
    pub(crate) lease: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) attempts: u32,
    /// The window of a key that the server derives.
    pub(crate) derive: Option<Duration>,
    /// There is no key, and the work is done without a claim.
    pub(crate) unprotected: bool,
}

impl Request {
    /// With the defaults of a [`Route`](crate::Route).
    pub fn new(scope: impl Into<String>, principal: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            key: Key::from(key.into()),
            scope: scope.into(),
            principal: principal.into(),
            identity: Identity::default(),
            ttl: None,
            lease: LEASE,
            wait: None,
            attempts: ATTEMPTS,
            derive: None,
            unprotected: false,
        }
    }

    /// The same request with a digest of its body, if the server has refused the JSON.
    pub(crate) fn as_digest(&self, refusal: &Error) -> Option<Arc<Self>> {
        let identity = self.identity.as_digest(refusal)?;
        Some(Arc::new(Self { identity, ..self.clone() }))
    }

    /// The content that must be the same in every repeat: compared as JSON, without the fields in `exclude`.
    pub fn content(mut self, content: &impl Serialize, exclude: &[&str]) -> Result<Self, Error> {
        let json = serde_json::to_vec(content).map_err(Error::Json)?;
        self.identity = Identity {
            json: Some(json.into()),
            media_type: "application/json".to_owned(),
            exclude: (!exclude.is_empty()).then(|| exclude.iter().map(ToString::to_string).collect()),
            ..Identity::default()
        };
        Ok(self)
    }

    /// How long an answer is replayed, instead of the policy's time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long a leased claim may be silent: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long to wait for a running execution: by default it does not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How often to run work whose transaction fails to serialize, deadlocks, or loses its connection: 5.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }
}

/// A request and the result of its claim; `C` is a [`Held`](crate::Held) or a [`Lease`](crate::Lease).
#[must_use = "a claim that is not used is given back"]
#[derive(Debug)]
pub enum Begun<C> {
    /// The claim is granted: do the work, then complete it.
    Execute(C),
    /// It was done: the stored answer, and whether its body was left out.
    Replay(Answer, bool),
    /// The work must not be done, or not now.
    Refused(Refusal),
}

impl<C> Begun<C> {
    pub(crate) fn map<D>(self, f: impl FnOnce(C) -> D) -> Begun<D> {
        match self {
            Self::Execute(claim) => Begun::Execute(f(claim)),
            Self::Replay(answer, omitted) => Begun::Replay(answer, omitted),
            Self::Refused(refusal) => Begun::Refused(refusal),
        }
    }
}

/// The answer of `idem_begin` to a granted claim.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    pub token: i64,
    pub attempt: i32,
    pub recovery_point: Option<String>,
    pub state: Option<serde_json::Value>,
}

/// The row of `idem_begin`.
pub(crate) fn begun(row: &tokio_postgres::Row) -> Result<(Begun<Granted>, i32), tokio_postgres::Error> {
    let attempt: i32 = row.try_get::<_, Option<_>>("attempt")?.unwrap_or_default();
    let word: String = row.try_get("outcome")?;
    let outcome = Outcome::of(&word).unwrap_or(Outcome::Internal);
    let reason: Option<String> = row.try_get("error")?;
    let code: Option<i32> = row.try_get("status_code")?;
    let failed = row.try_get::<_, Option<String>>("status")?.as_deref() == Some("failed");
    let begun = match outcome {
        Outcome::Execute => Begun::Execute(Granted {
            token: row.try_get::<_, Option<_>>("token")?.unwrap_or_default(),
            attempt,
            recovery_point: row.try_get("recovery_point")?,
            state: row.try_get("state")?,
        }),
        Outcome::Replay if code.is_none() && failed => {
            Begun::Refused(Refusal { outcome: Outcome::Failed, retry_after: None, reason })
        }
        Outcome::Replay => {
            let headers: Option<serde_json::Value> = row.try_get("headers")?;
            let omitted: Option<bool> = row.try_get("body_omitted")?;
            let body: Option<Vec<u8>> = row.try_get("body")?;
            let status = code.and_then(|code| StatusCode::from_u16(code.try_into().ok()?).ok());
            let headers = headers.as_ref().map(answer::from_json).unwrap_or_default();
            let omitted = omitted == Some(true) || headers.contains_key(answer::BODY_HEADER);
            let body = Bytes::from(body.unwrap_or_default());
            Begun::Replay(Answer { status: status.unwrap_or(StatusCode::OK), headers, body }, omitted)
        }
        _ => {
            let seconds: Option<f64> = row.try_get("retry_after")?;
            let retry_after = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            Begun::Refused(Refusal { outcome, retry_after, reason })
        }
    };
    Ok((begun, attempt))
}

pub(crate) type Statuses = HashMap<Outcome, StatusCode>;
