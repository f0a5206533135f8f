//! Leased claims, as work sees them.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Request, Store, Tx,
    error::{BoxError, again, pause},
    heartbeat::Heart,
    identity::{hex, sha256},
    request::{ATTEMPTS, Granted},
    statements,
};

/// The request under execution.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// Empty where there is none.
    pub key: String,
    /// The operation.
    pub scope: String,
    /// On whose behalf.
    pub principal: String,
    /// 1 for the first.
    pub attempt: i32,
    /// False if there is no claim: the request had no key, or the database is away, on a route that runs
    /// nevertheless.
    pub protected: bool,
}

impl Info {
    pub(crate) fn of(request: &Request, attempt: i32) -> Self {
        Self {
            key: request.key.as_str().to_owned(),
            scope: request.scope.clone(),
            principal: request.principal.clone(),
            attempt: attempt.max(1),
            protected: !request.unprotected,
        }
    }

    /// A key for a request to another service, derived from this request's key and a name: after a crash the
    /// same call is made with the same key.
    #[must_use]
    pub fn derived(&self, name: &str) -> String {
        let parts = [&self.scope, &self.principal, &self.key, name];
        let parts = parts.map(|part| part.replace('\\', "\\\\").replace(':', "\\:"));
        hex(&sha256(parts.join(":").as_bytes()))
    }
}

/// A leased claim, while its work is done. The work's result ends it, or [`unknown`](Self::unknown).
#[derive(Clone, Debug)]
pub struct Claim(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    request: Arc<Request>,
    info: Info,
    granted: Granted,
    lost: CancellationToken,
    over: CancellationToken,
    /// The arguments of [`Claim::unknown`]: error and reference.
    declared: OnceLock<(String, Option<String>)>,
    /// The results of the steps that are done.
    steps: Mutex<Map<String, Value>>,
    /// Held while a step is noted: a note contains all steps, so an older one must not overwrite a newer one.
    noting: tokio::sync::Mutex<()>,
}

impl Claim {
    pub(crate) fn new(store: Store, request: Arc<Request>, granted: Granted, heart: &Heart) -> Self {
        let mut steps = match &granted.state {
            Some(Value::Object(steps)) => steps.clone(),
            _ => Map::new(),
        };
        if let Some(point) = &granted.recovery_point {
            steps.entry(point.as_str()).or_insert(Value::Null);
        }
        let info = Info::of(&request, granted.attempt);
        Self(Arc::new(Inner {
            store,
            request,
            info,
            granted,
            lost: heart.lost.clone(),
            over: heart.over.clone(),
            declared: OnceLock::new(),
            steps: Mutex::new(steps),
            noting: tokio::sync::Mutex::default(),
        }))
    }

    /// Of work without a claim.
    pub(crate) fn unprotected(store: &Store, request: Arc<Request>) -> Self {
        Self::new(store.clone(), request, Granted::default(), &Heart::still())
    }

    /// The request of the claim.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.0.info
    }

    /// [`Info::derived`].
    #[must_use]
    pub fn derived(&self, name: &str) -> String {
        self.0.info.derived(name)
    }

    /// The last step that an earlier attempt has done.
    #[must_use]
    pub fn recovery_point(&self) -> Option<&str> {
        self.0.granted.recovery_point.as_deref()
    }

    /// The results of the steps of earlier attempts, by name.
    #[must_use]
    pub fn state(&self) -> Option<&Value> {
        self.0.granted.state.as_ref()
    }

    /// Cancelled when another session has the claim, or may have it: the work must have no further effect.
    #[must_use]
    pub fn lost(&self) -> &CancellationToken {
        &self.0.lost
    }

    /// Ends the claim with an unknown outcome: for example, a gateway did not answer. Repeats get the problem
    /// `unknown` and are never executed, until an operator decides. Operators see the error, and the reference
    /// by which the provider knows the attempt. The handler's later answer goes only to its client.
    ///
    /// An error means that this could not be stored yet. It is tried once more when the handler has returned.
    pub async fn unknown(&self, error: impl std::fmt::Display, reference: Option<&str>) -> Result<(), Error> {
        self.0.declared.get_or_init(|| (text(&error.to_string()), reference.map(text)));
        self.store_unknown().await
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.0.declared.get().is_some()
    }

    async fn store_unknown(&self) -> Result<(), Error> {
        let Inner { store, request, lost, over, declared, .. } = &*self.0;
        if lost.is_cancelled() {
            return Err(Error::LeaseLost);
        }
        let Some((error, reference)) = declared.get().filter(|_| !over.is_cancelled() && !request.unprotected) else {
            return Ok(());
        };
        let unknown = || store.unknown(request, self.token(), error, reference.as_deref());
        again(request.attempts, unknown).await.map_err(|error| self.told(error))?;
        over.cancel();
        Ok(())
    }

    /// Ends the claim retryably, unless its outcome was declared unknown.
    pub(crate) async fn fail(&self, reason: &str, uncertain: bool) -> Result<(), Error> {
        if self.is_unknown() {
            return self.store_unknown().await;
        }
        let Inner { store, request, .. } = &*self.0;
        let reason = text(reason);
        let fail = || store.fail(request, self.token(), &reason, uncertain);
        again(request.attempts, fail).await.map_err(|error| self.told(error))
    }

    pub(crate) fn token(&self) -> i64 {
        self.0.granted.token
    }

    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.0.request
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    /// Does a part of the work and notes that it is done, with its result. An attempt after a crash does not
    /// repeat the part, but gets the result. A crash between work and note repeats the work: a service that it
    /// calls must recognize a repetition, by [`derived`](Self::derived). When the lease is lost, the work is
    /// dropped at its next await.
    pub async fn step<T, E, F>(&self, name: &str, work: impl FnOnce() -> F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
        F: Future<Output = Result<T, E>>,
    {
        if let Some(result) = self.done(name)? {
            return Ok(result);
        }
        let result = self.unless_lost(work()).await?.map_err(|error| Error::Work(error.into()))?;
        let noted = serde_json::to_value(&result).map_err(Error::Json)?;
        again(ATTEMPTS, || self.note(name, &noted)).await.map_err(|error| self.told(error))?;
        Ok(result)
    }

    async fn note(&self, name: &str, result: &Value) -> Result<(), Error> {
        if self.0.request.unprotected {
            self.keep(self.with(name, result.clone()));
            return Ok(());
        }
        // The lock's holder already has its connection, so it never waits for a task that waits for the lock.
        let lent = self.0.store.lend(std::time::Duration::ZERO).await?;
        let noted = async {
            let _noting = self.0.noting.lock().await;
            let state = self.with(name, result.clone());
            statements::checkpoint(&lent.connection, &self.0.request, self.token(), name, &state).await?;
            self.keep(state);
            Ok(())
        };
        let noted = lent.within(noted).await;
        lent.finish(noted)
    }

    /// A step whose work is SQL: effect and note commit together, so that it is done once. It is repeated after
    /// a conflict or a lost connection, but not if it is unknown whether it has committed: that is an error,
    /// and the next attempt sees whether the step was done.
    pub async fn step_tx<T, E, F>(&self, name: &str, mut work: impl FnMut(Tx) -> F) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned,
        E: Into<BoxError>,
        F: Future<Output = Result<T, E>>,
    {
        if let Some(result) = self.done(name)? {
            return Ok(result);
        }
        let mut attempt = 1;
        loop {
            match self.step_tx_once(name, &mut work).await {
                Err(error) if attempt < ATTEMPTS && error.is_retryable() && !error.is_in_doubt() => {
                    pause(attempt).await;
                }
                done => return done.map_err(|error| self.told(error)),
            }
            attempt += 1;
        }
    }

    async fn step_tx_once<T, E, F>(&self, name: &str, work: &mut impl FnMut(Tx) -> F) -> Result<T, Error>
    where
        T: Serialize,
        E: Into<BoxError>,
        F: Future<Output = Result<T, E>>,
    {
        let within = self.0.store.timeout;
        let tx = Tx::begin(&self.0.store, Instant::now() + within).await?;
        let result = match self.unless_lost(work(tx.clone())).await? {
            Ok(result) => result,
            Err(error) => {
                let error = Error::Work(error.into());
                return match tx.roll_back(within).await {
                    Err(lost) if error.state().is_none() => Err(lost),
                    _ => Err(error),
                };
            }
        };
        let noted = serde_json::to_value(&result).map_err(Error::Json)?;
        let _noting = self.0.noting.lock().await;
        let state = self.with(name, noted);
        let committed = if self.0.request.unprotected {
            tx.commit_checked(within).await
        } else {
            let note = statements::checkpoint(tx.connection(), &self.0.request, self.token(), name, &state);
            timeout(within, note).await.unwrap_or(Err(Error::Timeout))?;
            tx.commit(within).await
        };
        committed?;
        self.keep(state);
        Ok(result)
    }

    /// Drops the work when the lease is lost.
    async fn unless_lost<R>(&self, work: impl Future<Output = R>) -> Result<R, Error> {
        tokio::select! {
            biased;
            () = self.0.lost.cancelled() => Err(Error::LeaseLost),
            result = work => Ok(result),
        }
    }

    /// The result of a step that was done.
    fn done<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        if self.0.lost.is_cancelled() {
            return Err(Error::LeaseLost);
        }
        if self.is_unknown() {
            return Err(Error::Unknown);
        }
        let found = self.steps().get(name).cloned();
        found.map(serde_json::from_value).transpose().map_err(Error::Json)
    }

    /// The state after a step.
    fn with(&self, name: &str, result: Value) -> Value {
        let mut steps = self.steps().clone();
        steps.insert(name.to_owned(), result);
        Value::Object(steps)
    }

    fn keep(&self, state: Value) {
        if let Value::Object(steps) = state {
            *self.steps() = steps;
        }
    }

    /// The server's errors for a claim that it does not know, or that another session has.
    fn told(&self, error: Error) -> Error {
        if error.is_lost() {
            self.0.lost.cancel();
            return Error::LeaseLost;
        }
        error
    }

    fn steps(&self) -> std::sync::MutexGuard<'_, Map<String, Value>> {
        self.0.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text of the server cannot hold a NUL.
fn text(text: &str) -> String {
    text.replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_tell_parts_apart() {
        let info = |scope, principal| Info::of(&Request::new(scope, principal, "k"), 1).derived("n");
        assert_eq!(info("a:b", "c"), hex(&sha256(b"a\\:b:c:k:n")));
        assert_ne!(info("a:b", "c"), info("a", "b:c"));
    }
}
