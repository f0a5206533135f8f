//! Does the work that no client sends again: webhooks, jobs, abandoned work.

use std::{fmt, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde_json::Value;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_postgres::{Config, Row, Socket, tls::MakeTlsConnect, types::FromSqlOwned};
use tokio_util::sync::CancellationToken;

use crate::{
    Answer, Claim, Error, Info, Request, Store, Tx,
    answer::Stored,
    contract, default_keep,
    error::BoxError,
    lease::{self, Lease},
    listener::Channel,
    request::{Granted, LEASE},
    statements, transaction,
    transaction::{End, Settled, Work},
};

const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Of a LISTEN that has failed.
const LONGEST_FIRST_PAUSE: Duration = Duration::from_secs(1);
const MOST_CLAIMS: usize = 1000;
const LONGEST_CHANNEL: usize = 63;

/// A record that is due, claimed by a [`Worker`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Due {
    /// Key, scope, principal and attempt.
    pub info: Info,
    /// Each claim of a key has a larger one than those before.
    pub token: i64,
    /// The function of `idem_execute`.
    pub operation: Option<String>,
    /// The method of the request.
    pub method: Option<String>,
    /// Its path.
    pub path: Option<String>,
    /// Its JSON, if the policy of the scope has `store_request`.
    pub request: Option<Value>,
    /// The last step that an earlier attempt has done.
    pub recovery_point: Option<String>,
    /// The state of its last checkpoint.
    pub state: Option<Value>,
    /// Why the attempt before failed.
    pub error: Option<String>,
    /// Cancelled when the work must stop: another session has the claim, or may have it, or the worker is aborted.
    pub stop: CancellationToken,
}

/// The result of a handler: nothing, or an answer.
pub trait Done {
    /// None completes the record without an answer. An answer that [`default_keep`] refuses is a failure.
    fn answer(self) -> Option<Answer>;
}

impl Done for () {
    fn answer(self) -> Option<Answer> {
        None
    }
}

impl Done for Answer {
    fn answer(self) -> Option<Answer> {
        Some(self)
    }
}

impl Done for Option<Answer> {
    fn answer(self) -> Option<Answer> {
        self
    }
}

type OnError = Arc<dyn Fn(&Error, Option<&Due>) + Send + Sync>;

/// Options of a [`Worker`].
#[derive(Clone)]
#[must_use]
pub struct WorkerOptions {
    scope: String,
    size: usize,
    lease: Duration,
    poll: Duration,
    handler_timeout: Duration,
    channel: Option<Channel>,
    on_error: OnError,
    fault: Option<String>,
}

impl fmt::Debug for WorkerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerOptions").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl WorkerOptions {
    /// The scope of the records, or the beginning of scopes and `*`.
    pub fn new(scope: impl Into<String>) -> Self {
        Self {
            scope: scope.into(),
            size: 1,
            lease: LEASE,
            poll: Duration::from_secs(1),
            handler_timeout: Duration::from_millis(contract::LEASED_HANDLER_TIMEOUT_MS),
            channel: None,
            on_error: Arc::new(log),
            fault: None,
        }
    }

    /// Claims in work at the same time: 1.
    pub fn size(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// How long a claim may be silent: 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// The pause when nothing is due: 1 s, with jitter.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// Limit for one run of the handler: 10 minutes. Then it is dropped, and has failed.
    pub fn handler_timeout(mut self, handler_timeout: Duration) -> Self {
        self.handler_timeout = handler_timeout;
        self
    }

    /// A channel of NOTIFY: a notification ends the pause. The connection for LISTEN is none of the pool.
    pub fn channel<T>(mut self, name: &str, config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as tokio_postgres::tls::TlsConnect<Socket>>::Future: Send,
    {
        if name.is_empty() || name.len() > LONGEST_CHANNEL || name.contains('\0') {
            self.fault = Some(format!("channel is no name of 1 to {LONGEST_CHANNEL} bytes: {name}"));
        }
        self.channel = Some(Channel::new(name, config, tls));
        self
    }

    /// Gets the errors of handlers with their work, and those of the database without. By default they are logged.
    pub fn on_error(mut self, on_error: impl Fn(&Error, Option<&Due>) + Send + Sync + 'static) -> Self {
        self.on_error = Arc::new(on_error);
        self
    }

    fn fault(&self) -> Option<String> {
        let fault = if self.size == 0 || self.size > MOST_CLAIMS {
            format!("size is from 1 to {MOST_CLAIMS}: {}", self.size)
        } else if self.lease.is_zero() || self.poll.is_zero() || self.handler_timeout.is_zero() {
            "lease, poll and handler_timeout are above 0".to_owned()
        } else {
            return self.fault.clone();
        };
        Some(fault)
    }
}

fn log(error: &Error, due: Option<&Due>) {
    let scope = due.map(|due| &*due.info.scope);
    tracing::error!(%error, scope, "idempotency: a worker");
}

type Settling = Pin<Box<dyn Future<Output = Result<Settled<()>, Error>> + Send>>;
type Settle = Arc<dyn Fn(Lease, Due) -> Settling + Send + Sync>;

/// Claims the records of a scope that are due, runs the handler for each, and ends its claim. Clones are the same
/// worker.
#[derive(Clone)]
pub struct Worker {
    store: Store,
    options: WorkerOptions,
    settle: Settle,
    stopping: CancellationToken,
    aborting: CancellationToken,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Worker {
    /// The handler works in the transaction that also completes the record: both commit, or neither does. After an
    /// error the record is due again, by its policy.
    ///
    /// # Panics
    ///
    /// If an option makes no sense.
    #[must_use]
    pub fn transactional<H, F, R, E>(store: &Store, options: WorkerOptions, handler: H) -> Self
    where
        H: Fn(Due, Tx) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
        R: Done,
        E: Into<BoxError>,
    {
        let (handler, limit) = (Arc::new(handler), options.handler_timeout);
        let settle = move |lease, due: Due| -> Settling {
            let handler = handler.clone();
            Box::pin(transaction::within(lease, move |tx| {
                let (handler, due) = (handler.clone(), due.clone());
                async move { worked(limit, handler(due, tx)).await }
            }))
        };
        Self::new(store, options, Arc::new(settle))
    }

    /// The handler works outside of any transaction. After an error the record is due again, or its outcome is
    /// unknown, by its policy. After an [`Error::nothing_happened`] it is due again.
    ///
    /// # Panics
    ///
    /// If an option makes no sense.
    #[must_use]
    pub fn leased<H, F, R, E>(store: &Store, options: WorkerOptions, handler: H) -> Self
    where
        H: Fn(Due, Claim) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, E>> + Send + 'static,
        R: Done,
        E: Into<BoxError>,
    {
        let (handler, limit) = (Arc::new(handler), options.handler_timeout);
        let settle = move |lease, due| -> Settling {
            let handler = handler.clone();
            Box::pin(lease::held(lease, move |claim| async move { worked(limit, handler(due, claim)).await }))
        };
        Self::new(store, options, Arc::new(settle))
    }

    fn new(store: &Store, options: WorkerOptions, settle: Settle) -> Self {
        if let Some(fault) = options.fault() {
            panic!("idempotency: {fault}");
        }
        let (stopping, aborting) = (CancellationToken::new(), CancellationToken::new());
        Self { store: store.clone(), options, settle, stopping, aborting }
    }

    /// Claims nothing more. [`run`](Self::run) returns when the running handlers have ended.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Stops, and tells the running handlers by [`Due::stop`].
    pub fn abort(&self) {
        self.stop();
        self.aborting.cancel();
    }

    /// Works until [`stop`](Self::stop), whatever happens to the database. If it is dropped, the work is given up.
    ///
    /// An error means that the first claim is a mistake: a missing right, for example.
    pub async fn run(&self) -> Result<(), Error> {
        let (mut running, news) = (JoinSet::new(), Arc::new(Notify::new()));
        let result = tokio::select! {
            result = self.claim_until_stopped(&mut running, &news) => result,
            () = self.listen(&news) => unreachable!("it listens until it is dropped"),
        };
        self.stop();
        while let Some(ended) = running.join_next().await {
            look_at(ended);
        }
        result
    }

    async fn claim_until_stopped(&self, running: &mut JoinSet<()>, news: &Notify) -> Result<(), Error> {
        let (mut proven, mut failures) = (false, 0);
        while let Some(free) = self.free(running).await {
            let pause = match self.claim(free, running).await {
                Ok(claimed) => {
                    (proven, failures) = (true, 0);
                    if claimed == free {
                        continue;
                    }
                    self.options.poll.mul_f64(0.5 + random())
                }
                Err(error) if !proven && error.is_mistake() => return Err(error),
                Err(error) => {
                    self.report(&error, None);
                    failures += 1;
                    backoff(self.options.poll, failures - 1)
                }
            };
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = news.notified() => {}
                () = sleep(pause) => {}
            }
        }
        Ok(())
    }

    /// How many may be claimed; None when the worker is stopped.
    async fn free(&self, running: &mut JoinSet<()>) -> Option<usize> {
        while let Some(ended) = running.try_join_next() {
            look_at(ended);
        }
        while !self.stopping.is_cancelled() {
            if running.len() < self.options.size {
                return Some(self.options.size - running.len());
            }
            tokio::select! {
                () = self.stopping.cancelled() => {}
                Some(ended) = running.join_next() => look_at(ended),
            }
        }
        None
    }

    async fn claim(&self, most: usize, running: &mut JoinSet<()>) -> Result<usize, Error> {
        let lent = self.store.lend(Duration::ZERO).await?;
        let sent = Instant::now();
        let WorkerOptions { scope, lease, .. } = &self.options;
        let due = statements::due(&lent.connection, scope, most, *lease, &self.store.holder);
        let result = lent.within(due).await;
        let rows = lent.finish(result)?;
        let claimed = rows.len();
        for row in rows {
            let (lease, due) = self.claimed(&row, sent).map_err(|error| Error::Unexpected(error.into()))?;
            running.spawn(self.clone().work(lease, due));
        }
        Ok(claimed)
    }

    /// A heartbeat keeps the claim from now on. A request may be JSON that is beyond serde's numbers.
    fn claimed(&self, row: &Row, sent: Instant) -> Result<(Lease, Result<Due, Error>), tokio_postgres::Error> {
        let (scope, principal): (String, String) = (row.try_get("scope")?, row.try_get("principal")?);
        let key: String = row.try_get("key")?;
        let request = Arc::new(Request::new(scope, principal, key).lease(self.options.lease));
        let (token, attempt) = (row.try_get("token")?, row.try_get("attempt")?);
        let stop = self.aborting.child_token();
        let recovery_point: Option<String> = row.try_get("recovery_point")?;
        let state: Result<Option<Value>, Error> = json(row, "state");
        let granted = Granted {
            token,
            attempt,
            recovery_point: recovery_point.clone(),
            state: state.as_ref().map_or(None, Clone::clone),
        };
        let due = Due {
            info: Info::of(&request, attempt),
            token,
            operation: row.try_get("operation")?,
            method: row.try_get("method")?,
            path: row.try_get("path")?,
            request: None,
            recovery_point,
            state: None,
            error: row.try_get("error")?,
            stop: stop.clone(),
        };
        let due = json(row, "request").and_then(|request| state.map(|state| Due { request, state, ..due }));
        let lease = Lease::of(&self.store, &request, granted, sent, move || stop.cancel());
        Ok((lease, due))
    }

    async fn work(self, lease: Lease, due: Result<Due, Error>) {
        let due = match due {
            Ok(due) => due,
            Err(unreadable) => {
                self.report(&unreadable, None);
                return drop(lease.nothing_happened(&unreadable.to_string()).await);
            }
        };
        match (self.settle)(lease, due.clone()).await {
            Ok(Settled::Lost) => self.report(&Error::LeaseLost, Some(&due)),
            Ok(Settled::Failed((), error)) | Err(error) => self.report(&error, Some(&due)),
            Ok(_) => {}
        }
    }

    /// While it does not succeed, the worker polls.
    async fn listen(&self, news: &Arc<Notify>) {
        let Some(channel) = &self.options.channel else { return std::future::pending().await };
        let mut failures = 0;
        loop {
            let begun = Instant::now();
            let error = channel.session(self.store.timeout, news).await;
            self.report(&error, None);
            failures = if begun.elapsed() > LONGEST_PAUSE { 0 } else { failures + 1 };
            sleep(backoff(self.options.poll.min(LONGEST_FIRST_PAUSE), failures)).await;
        }
    }

    /// A hook's panic does not end the worker.
    fn report(&self, error: &Error, due: Option<&Due>) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| (self.options.on_error)(error, due))).is_err() {
            tracing::error!("idempotency: a hook panicked");
        }
    }
}

fn look_at(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "idempotency: the work of a record");
    }
}

fn json<T: FromSqlOwned>(row: &Row, column: &str) -> Result<T, Error> {
    row.try_get(column).map_err(|error| Error::Unexpected(error.into()))
}

async fn worked<R: Done, E: Into<BoxError>>(limit: Duration, running: impl Future<Output = Result<R, E>>) -> Work<()> {
    let done = timeout(limit, AssertUnwindSafe(running).catch_unwind()).await;
    let (end, failure) = match done {
        Ok(Ok(Ok(done))) => (end_of(done.answer()), None),
        Ok(Ok(Err(error))) => failed(Error::Work(error.into())),
        Ok(Err(_)) => failed(Error::Work("the handler panicked".into())),
        Err(_) => failed(Error::HandlerTimeout),
    };
    Work { answer: (), end, failure }
}

fn failed(error: Error) -> (End, Option<Error>) {
    (End::NotKept(error.to_string()), Some(error))
}

fn end_of(answer: Option<Answer>) -> End {
    match answer {
        None => End::Keep(Stored::nothing()),
        Some(answer) if default_keep(answer.status) => End::Keep(Stored::of(&answer)),
        Some(answer) => End::NotKept(format!("status {}", answer.status.as_u16())),
    }
}

/// Doubles with each failure, up to 30 s; half of it is random.
fn backoff(first: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(30)).min(LONGEST_PAUSE).mul_f64(0.5 + random() / 2.0)
}

/// From 0 to 1.
fn random() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let second = Duration::from_secs(1);
        for (failures, longest) in [(0, 1), (1, 2), (4, 16), (5, 30), (4_000_000_000, 30)] {
            let pause = backoff(second, failures);
            assert!(pause >= longest * second / 2 && pause <= longest * second, "{failures}: {pause:?}");
        }
        assert!(backoff(Duration::from_secs(600), 0) <= LONGEST_PAUSE);
    }

    #[test]
    fn options_that_make_no_sense_are_found() {
        let options = || WorkerOptions::new("jobs");
        let channel = |name: &str| options().channel(name, Config::new(), tokio_postgres::NoTls).fault();
        assert_eq!(options().fault(), None);
        assert!(options().size(0).fault().is_some() && options().size(1001).fault().is_some());
        assert!(options().lease(Duration::ZERO).fault().is_some() && options().poll(Duration::ZERO).fault().is_some());
        assert!(channel("").is_some() && channel("a\0b").is_some() && channel(&"x".repeat(64)).is_some());
        assert_eq!(channel("jobs"), None);
    }
}
