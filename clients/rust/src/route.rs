//! The options of a route.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, Method, StatusCode, request::Parts};

use crate::{
    Answer, Outcome, contract,
    request::{ATTEMPTS, LEASE, Statuses},
};

/// The treatment of a request without a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingKey {
    /// 400.
    #[default]
    Refuse,
    /// The handler runs unprotected.
    Pass,
    /// It runs under a new key, which the answer names.
    Generate,
    /// The key is a digest of method, target and canonical body, so that identical requests take effect
    /// once within [`Route::window`].
    Derive,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is stored and replayed.
    Keep,
    /// It is not, and nothing has happened: a transaction is rolled back, and a leased claim may be tried again
    /// whatever the policy of its scope says.
    Free,
    /// The work commits, and the outcome of the request is not known: repeats are answered so until an operator
    /// decides.
    Unknown,
}

/// The argument of hooks. Printing it leaves out the key, which may be a secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Event {
    /// The operation.
    pub scope: String,
    /// Empty if it is not known.
    pub key: String,
    /// 0 if it is not known.
    pub attempt: i32,
    /// The event; for a refusal its reason.
    pub outcome: Outcome,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, attempt, outcome, .. } = self;
        let mut printed = f.debug_struct("Event");
        printed.field("scope", scope).field("attempt", attempt).field("outcome", outcome).finish_non_exhaustive()
    }
}

type Of<T> = Arc<dyn Fn(&Parts) -> T + Send + Sync>;
type Fingerprint = Arc<dyn Fn(&Parts, &Bytes) -> Vec<u8> + Send + Sync>;
type Judge = Arc<dyn Fn(&Answer) -> Option<Verdict> + Send + Sync>;
type Hook = Option<Arc<dyn Fn(Event) + Send + Sync>>;

/// The protection of requests. Clones can be changed for one route.
#[derive(Clone)]
#[must_use]
pub struct Route {
    pub(crate) principal: Of<Option<String>>,
    pub(crate) scope: Option<Of<String>>,
    pub(crate) methods: Vec<Method>,
    pub(crate) missing_key: MissingKey,
    pub(crate) window: Duration,
    pub(crate) exclude: Vec<String>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) lease: Duration,
    pub(crate) wait: Option<Duration>,
    pub(crate) keep: Arc<dyn Fn(StatusCode) -> bool + Send + Sync>,
    pub(crate) verdict: Option<Judge>,
    pub(crate) handler_timeout: Option<Duration>,
    pub(crate) statuses: Statuses,
    pub(crate) key_header: HeaderName,
    pub(crate) replay_header: HeaderName,
    pub(crate) echo_key: bool,
    pub(crate) max_request_bytes: usize,
    pub(crate) max_answer_bytes: usize,
    pub(crate) omit_large_answers: bool,
    pub(crate) attempts: u32,
    pub(crate) unprotected_without_database: bool,
    pub(crate) on_execute: Hook,
    pub(crate) on_replay: Hook,
    pub(crate) on_refusal: Hook,
    pub(crate) on_lease_lost: Hook,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("methods", &self.methods).finish_non_exhaustive()
    }
}

/// The default of [`Route::keep`]: all but 408, 425, 429 and 5xx.
#[must_use]
pub fn default_keep(status: StatusCode) -> bool {
    !status.is_server_error() && !contract::NOT_KEPT.contains(&status.as_u16())
}

/// A method of the builder for each option that is only set.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        $($(#[$doc])*
        pub fn $name(mut self, $name: $type) -> Self {
            self.$name = $name;
            self
        })*
    };
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $($(#[$doc])*
        pub fn $name(mut self, hook: impl Fn(Event) + Send + Sync + 'static) -> Self {
            self.$name = Some(Arc::new(hook));
            self
        })*
    };
}

impl Route {
    /// `principal` returns the client that a request comes from, by its authentication: None is answered 401,
    /// before any byte of the body is read.
    pub fn new(principal: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        Self {
            principal: Arc::new(principal),
            scope: None,
            methods: vec![Method::POST, Method::PATCH],
            missing_key: MissingKey::Refuse,
            window: Duration::from_millis(contract::WINDOW_MS),
            exclude: Vec::new(),
            fingerprint: None,
            ttl: None,
            lease: LEASE,
            wait: None,
            keep: Arc::new(default_keep),
            verdict: None,
            handler_timeout: None,
            statuses: Statuses::new(),
            key_header: HeaderName::from_static("idempotency-key"),
            replay_header: HeaderName::from_static("idempotent-replayed"),
            echo_key: false,
            max_request_bytes: contract::MAX_REQUEST_BYTES,
            max_answer_bytes: contract::MAX_ANSWER_BYTES,
            omit_large_answers: false,
            attempts: ATTEMPTS,
            unprotected_without_database: false,
            on_execute: None,
            on_replay: None,
            on_refusal: None,
            on_lease_lost: None,
        }
    }

    options! {
        /// The protected methods: POST and PATCH. Others pass.
        methods: Vec<Method>;
        /// The treatment of a request without a key: refuse.
        missing_key: MissingKey;
        /// How long a derived key counts: a day.
        window: Duration;
        /// How long a leased claim may be silent: 30 s.
        lease: Duration;
        /// `idempotency-key`.
        key_header: HeaderName;
        /// `idempotent-replayed`.
        replay_header: HeaderName;
        /// Whether every answer carries the key: no.
        echo_key: bool;
        /// Larger bodies are 413: 1 MiB.
        max_request_bytes: usize;
        /// Larger answers are 500, and the work is rolled back, or failed retryably: 1 MiB.
        max_answer_bytes: usize;
        /// Whether only the status of a larger answer is stored: no.
        omit_large_answers: bool;
        /// How often to run a handler whose transaction fails to serialize, deadlocks, or loses its connection:
        /// 5.
        attempts: u32;
        /// Whether handlers run while the database is away, without a transaction and without protection.
        unprotected_without_database: bool;
    }

    hooks! {
        /// Before the handler runs, once for a request.
        on_execute;
        /// Before a stored answer is sent.
        on_replay;
        /// Before any other answer of ours.
        on_refusal;
        /// When the work is told to stop.
        on_lease_lost;
    }

    /// The operation, as in policies and statistics: method and matched path, `POST /payments/{id}`.
    pub fn scope(self, scope: impl Into<String>) -> Self {
        let scope = scope.into();
        self.scope_of(move |_| scope.clone())
    }

    /// The operation as a function of the request.
    pub fn scope_of(mut self, scope: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.scope = Some(Arc::new(scope));
        self
    }

    /// Fields of the JSON body that may differ in repeats.
    pub fn exclude(mut self, fields: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.exclude = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Bytes to compare instead of method, target and body.
    pub fn fingerprint(mut self, of: impl Fn(&Parts, &Bytes) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.fingerprint = Some(Arc::new(of));
        self
    }

    /// How long an answer is replayed, instead of the policy's time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long a repeat waits for a running execution: by default it does not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Which answers are stored and replayed: [`default_keep`].
    pub fn keep(mut self, keep: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.keep = Arc::new(keep);
        self
    }

    /// Decides on an answer before [`keep`](Self::keep), which decides where this is None.
    pub fn verdict(mut self, verdict: impl Fn(&Answer) -> Option<Verdict> + Send + Sync + 'static) -> Self {
        self.verdict = Some(Arc::new(verdict));
        self
    }

    /// How long a handler may take to answer: a minute, or ten minutes on a leased route. Then it is dropped at
    /// its next await, as after a [`Failure`](crate::Failure), and its client gets 503.
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.handler_timeout = Some(timeout);
        self
    }

    /// Another status for an outcome.
    pub fn status(mut self, outcome: Outcome, status: StatusCode) -> Self {
        self.statuses.insert(outcome, status);
        self
    }

    /// An option that can't be meant.
    pub(crate) fn fault(&self) -> Option<String> {
        let spans = [
            ("window", Some(self.window)),
            ("ttl", self.ttl),
            ("lease", Some(self.lease)),
            ("handler_timeout", self.handler_timeout),
        ];
        if let Some((name, _)) = spans.iter().find(|(_, span)| span.is_some_and(|span| span.is_zero())) {
            return Some(format!("{name} is zero"));
        }
        let sizes = [self.max_request_bytes, self.max_answer_bytes, self.attempts as usize];
        let mut statuses = self.statuses.values();
        match statuses.find(|status| !status.is_client_error() && !status.is_server_error()) {
            Some(status) => Some(format!("{status} is no status of an error")),
            None if sizes.contains(&0) => Some("max_request_bytes, max_answer_bytes or attempts is zero".into()),
            None if self.methods.is_empty() => Some("methods is empty".into()),
            None if self.exclude.iter().any(String::is_empty) => Some("exclude has an empty entry".into()),
            None => None,
        }
    }

    pub(crate) fn scope_for(&self, parts: &Parts) -> String {
        self.scope.as_ref().map_or_else(|| format!("{} {}", parts.method, path(parts)), |scope| scope(parts))
    }
}

/// As the router knows it; a path that no route has matched stands for itself.
fn path(parts: &Parts) -> &str {
    #[cfg(feature = "axum")]
    if let Some(matched) = parts.extensions.get::<::axum::extract::MatchedPath>() {
        return matched.as_str();
    }
    parts.uri.path()
}

/// The target as it was sent, even if a router has changed the path since.
pub(crate) fn target(parts: &Parts) -> String {
    #[cfg(feature = "axum")]
    let uri = parts.extensions.get::<::axum::extract::OriginalUri>().map_or(&parts.uri, |uri| &uri.0);
    #[cfg(not(feature = "axum"))]
    let uri = &parts.uri;
    uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string)
}

/// A hook's panic does not fail the request.
pub(crate) fn tell(hook: Option<&(dyn Fn(Event) + Send + Sync)>, event: Event) {
    if let Some(hook) = hook {
        if std::panic::catch_unwind(AssertUnwindSafe(|| hook(event))).is_err() {
            tracing::error!("idempotency: a hook panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_printed_without_its_key() {
        let event = Event { scope: "s".into(), key: "secret".into(), attempt: 1, outcome: Outcome::Replay };
        assert_eq!(format!("{event:?}"), "Event { scope: \"s\", attempt: 1, outcome: Replay, .. }");
    }

    #[test]
    fn what_is_kept() {
        let kept = |status: u16| default_keep(StatusCode::from_u16(status).unwrap());
        assert!([200, 201, 204, 302, 400, 404, 409, 422].into_iter().all(kept));
        assert!(![408, 425, 429, 500, 503, 599].into_iter().any(kept));
    }

    #[test]
    fn a_hook_may_panic() {
        tell(
            Some(&|_| panic!("a hook")),
            Event { scope: String::new(), key: String::new(), attempt: 0, outcome: Outcome::Replay },
        );
    }

    #[test]
    fn scope_and_target() {
        let parts = http::Request::post("http://host/a%2Fb?c=d").body(()).unwrap().into_parts().0;
        let route = Route::new(|_| None);
        assert_eq!(route.scope_for(&parts), "POST /a%2Fb");
        assert_eq!(target(&parts), "/a%2Fb?c=d");
        assert_eq!(route.scope("pay").scope_for(&parts), "pay");
    }
}
