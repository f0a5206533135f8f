//! Claims that commit before their work, and are extended by heartbeats.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, time::Instant};

use crate::{
    Answer, Claim, Error, Request, Store,
    answer::Stored,
    error::{again, pause},
    heartbeat::Heart,
    request::{Begun, Granted},
    statements,
    transaction::{End, Settled, Work},
};

/// A claim of ours, with beats as long as this value lives. [`complete`](Self::complete), [`fail`](Self::fail),
/// [`unknown`](Self::unknown) and [`nothing_happened`](Self::nothing_happened) consume it. Dropping it fails
/// the claim, since the work may have had an effect.
#[must_use = "a claim that is dropped is failed"]
pub struct Lease {
    claim: Claim,
    heart: Heart,
    open: bool,
    /// Whether work that is given up may have had an effect.
    pub(crate) uncertain: bool,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("claim", &self.claim).finish_non_exhaustive()
    }
}

impl Store {
    /// Claims a key and commits that. [`leased`](crate::leased) does it around a function, and the layer
    /// with HTTP.
    pub async fn begin_leased(&self, request: &Request) -> Result<Begun<Lease>, Error> {
        self.begin_lease(&Arc::new(request.clone()), |_| {}).await.map(|(begun, _)| begun)
    }

    async fn begin_lease(
        &self,
        request: &Arc<Request>,
        on_lost: impl FnOnce(i32) + Send + 'static,
    ) -> Result<(Begun<Lease>, i32), Error> {
        if request.unprotected {
            let heart = Heart::still();
            let claim = Claim::new(self.clone(), request.clone(), Granted::default(), &heart);
            return Ok((Begun::Execute(Lease { claim, heart, open: false, uncertain: true }), 0));
        }
        let (sent, begun, attempt) = match again(request.attempts, || self.ask(request)).await {
            Err(error) => match request.as_digest(&error) {
                Some(digest) => again(request.attempts, || self.ask(&digest)).await?,
                None => return Err(error),
            },
            asked => asked?,
        };
        let begun = begun.map(|granted| Lease::of(self, request, granted, sent, move || on_lost(attempt)));
        Ok((begun, attempt))
    }

    async fn ask(&self, request: &Request) -> Result<(Instant, Begun<Granted>, i32), Error> {
        let lent = self.lend(request.wait.unwrap_or_default()).await?;
        let sent = Instant::now();
        let begin = async {
            let ready = statements::ready_to_begin(&lent.connection).await?;
            statements::begin(&lent.connection, &ready, request, Some(request.lease), &self.holder).await
        };
        let result = lent.within(begin).await;
        lent.finish(result).map(|(begun, attempt)| (sent, begun, attempt))
    }
}

async fn extend(store: Store, request: Arc<Request>, token: i64) -> Result<(), Error> {
    let lent = store.lend(Duration::ZERO).await?;
    let result = lent.within(statements::extend(&lent.connection, &request, token)).await;
    lent.finish(result)
}

impl Lease {
    /// A claim that was granted; `sent` is the time of the request for it.
    pub(crate) fn of(
        store: &Store,
        request: &Arc<Request>,
        granted: Granted,
        sent: Instant,
        on_lost: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (extended, asked, token) = (store.clone(), request.clone(), granted.token);
        let extend = move || extend(extended.clone(), asked.clone(), token);
        let heart = Heart::start(request.lease, sent, Box::new(on_lost), extend);
        let claim = Claim::new(store.clone(), request.clone(), granted, &heart);
        Self { claim, heart, open: true, uncertain: true }
    }

    pub(crate) fn stop_beating(&self) {
        self.heart.stop_beating();
    }

    pub(crate) fn resume_beating(&self) {
        self.heart.resume();
    }

    /// It was completed by other means.
    pub(crate) fn over(mut self) {
        self.open = false;
    }

    /// The argument of the work.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Stores the answer. It tries as long as the claim is held: the work is done, so its answer is worth the
    /// wait. An answer that cannot be stored fails the claim. After [`Claim::unknown`] it is
    /// [`Error::Unknown`].
    pub async fn complete(self, answer: &Answer) -> Result<(), Error> {
        self.store(&Stored::of(answer)).await
    }

    pub(crate) async fn store(mut self, answer: &Stored) -> Result<(), Error> {
        self.heart.stop_beating();
        if self.claim.is_unknown() {
            return match self.end("", true).await {
                Err(lost) if lost.is_lost() => Err(lost),
                _ => Err(Error::Unknown),
            };
        }
        for attempt in 1.. {
            if self.heart.is_lost() {
                break;
            }
            match self.complete_once(answer).await {
                Ok(()) => {
                    self.open = false;
                    return Ok(());
                }
                Err(error) if error.is_lost() => self.heart.lose(),
                Err(error) if error.is_unavailable() => pause(attempt).await,
                Err(error) => {
                    self.end(&error.to_string(), true).await?;
                    return Err(error);
                }
            }
        }
        Err(Error::LeaseLost)
    }

    async fn complete_once(&self, answer: &Stored) -> Result<(), Error> {
        let (store, request) = (self.claim.store(), self.claim.request());
        if request.unprotected {
            return Ok(());
        }
        let lent = store.lend(Duration::ZERO).await?;
        let complete = async {
            let ready = statements::ready_to_complete(&lent.connection).await?;
            statements::complete(&lent.connection, &ready, request, Some(self.claim.token()), answer).await
        };
        let result = lent.within(complete).await;
        lent.finish(result)
    }

    /// The work has failed, and may have had an effect. It is repeated after the policy's pause, with the notes
    /// of its steps. If the policy has `on_lease_expiry => 'unknown'`, the outcome is unknown.
    pub async fn fail(self, reason: &str) -> Result<(), Error> {
        self.end(reason, true).await
    }

    /// The work has failed, and has had no effect. It is repeated after the policy's pause.
    pub async fn nothing_happened(self, reason: &str) -> Result<(), Error> {
        self.end(reason, false).await
    }

    /// [`Claim::unknown`].
    pub async fn unknown(self, error: impl std::fmt::Display, reference: Option<&str>) -> Result<(), Error> {
        let declared = self.claim.unknown(error, reference).await;
        match declared {
            Ok(()) | Err(Error::LeaseLost) => self.end("", true).await,
            error => error, // stored once more when this is dropped
        }
    }

    async fn end(mut self, reason: &str, uncertain: bool) -> Result<(), Error> {
        self.heart.stop_beating();
        let open = std::mem::take(&mut self.open) && !self.heart.is_lost();
        let ended = if open { self.claim.fail(reason, uncertain).await } else { Ok(()) };
        if self.heart.is_lost() {
            self.heart.lose(); // and tell
            return Err(Error::LeaseLost);
        }
        ended
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.open || self.heart.is_lost() {
            return;
        }
        // Without a runtime this cannot be reported, and the lease expires by itself.
        if let Ok(runtime) = Handle::try_current() {
            let (claim, uncertain) = (self.claim.clone(), self.uncertain);
            runtime.spawn(async move {
                if let Err(error) = claim.fail("the work was given up, or panicked", uncertain).await {
                    let scope = &claim.request().scope;
                    tracing::error!(%error, scope, "idempotency: a claim could not be failed");
                }
            });
        }
    }
}

/// Does work under a claim that commits before it, and stores its answer with the token. If the answer is not
/// to be kept, or the work fails, the claim is failed retryably, never released. If work has declared its
/// outcome unknown, nothing else is stored.
pub(crate) async fn leased<A, F>(
    store: &Store,
    request: &Arc<Request>,
    on_lost: impl FnOnce(i32) + Send + 'static,
    work: impl FnOnce(Claim) -> F,
) -> Result<Settled<A>, Error>
where
    F: Future<Output = Work<A>>,
{
    let lease = match store.begin_lease(request, on_lost).await? {
        (Begun::Execute(lease), _) => lease,
        (Begun::Replay(answer, omitted), attempt) => return Ok(Settled::Replay(answer, omitted, attempt)),
        (Begun::Refused(refusal), attempt) => return Ok(Settled::Refused(refusal, attempt)),
    };
    held(lease, work).await
}

/// The same with a claim that was granted.
pub(crate) async fn held<A, F>(lease: Lease, work: impl FnOnce(Claim) -> F) -> Result<Settled<A>, Error>
where
    F: Future<Output = Work<A>>,
{
    let Work { answer, end, mut failure } = work(lease.claim().clone()).await;
    if failure.as_ref().is_some_and(|failure| end.is_raised(failure)) {
        failure = None;
    }
    let ended = match (&failure, end) {
        (Some(failure), _) => lease.end(&failure.to_string(), failure.is_uncertain()).await,
        (None, End::NotKept(reason)) => lease.end(&reason, true).await,
        (None, End::Free(reason)) => lease.end(&reason, false).await,
        (None, End::Unknown(reason)) => lease.unknown(reason, None).await,
        (None, End::Keep(stored)) => match lease.store(&stored).await {
            Err(error) if !error.is_lost() && !matches!(error, Error::Unknown) => return Err(error),
            ended => ended,
        },
    };
    match (ended, failure) {
        (Err(error), _) if error.is_lost() => Ok(Settled::Lost),
        (_, Some(failure)) => Ok(Settled::Failed(answer, failure)),
        // A failure that could not be reported ends with the lease.
        (_, None) => Ok(Settled::Worked(answer)),
    }
}
