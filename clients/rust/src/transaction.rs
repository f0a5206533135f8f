//! Claims that live in the transaction of their work.

use std::{ops::Deref, sync::Arc, time::Duration};

use deadpool_postgres::ClientWrapper;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{
    Answer, Error, Refusal, Request, Store,
    answer::Stored,
    claim::Info,
    error::{connection_lost, pause},
    request::Begun,
    statements,
    store::Connection,
};

/// The transaction that holds the claim, as handlers get it: a [`tokio_postgres::Client`] whose methods on
/// `&self` are all usable. The layer that began the transaction ends it. A clone that outlives the handler
/// makes the request fail.
#[derive(Clone, Debug)]
pub struct Tx(Arc<Connection>);

impl Deref for Tx {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        &self.0
    }
}

impl Tx {
    pub(crate) async fn begin(store: &Store, end: Instant) -> Result<Self, Error> {
        let connection = store.connection(end).await?;
        timeout_at(end, connection.batch_execute(&store.start)).await.map_err(|_| Error::Timeout)??;
        Ok(Self(Arc::new(connection)))
    }

    /// The connection, if there is no clone.
    async fn alone(self, within: Duration) -> Result<Connection, Error> {
        match Arc::try_unwrap(self.0) {
            Ok(connection) => Ok(connection),
            Err(kept) => {
                // The clone finds a failed transaction, and so holds nothing.
                let _ = timeout(within, kept.batch_execute("SELECT 1/0")).await;
                Err(Error::TransactionKept)
            }
        }
    }

    /// For a transaction whose last statement has succeeded.
    pub(crate) async fn commit(self, within: Duration) -> Result<(), Error> {
        let connection = self.alone(within).await?;
        let committed = timeout(within, connection.batch_execute("COMMIT")).await;
        Self::committed(connection, committed.map_err(|_| Error::CommitTimeout))
    }

    /// For a transaction that ends with the work's statements: if one has failed, COMMIT rolls back without an
    /// error.
    pub(crate) async fn commit_checked(self, within: Duration) -> Result<(), Error> {
        let connection = self.alone(within).await?;
        let both = async { tokio::join!(connection.batch_execute("SELECT 1"), connection.batch_execute("COMMIT")) };
        let committed = timeout(within, both).await.map(|(whole, committed)| whole.and(committed));
        Self::committed(connection, committed.map_err(|_| Error::CommitTimeout))
    }

    fn committed(
        connection: Connection,
        committed: Result<Result<(), tokio_postgres::Error>, Error>,
    ) -> Result<(), Error> {
        let committed = committed?;
        if committed.as_ref().map_or_else(|error| error.code().is_some(), |()| true) {
            connection.give_back();
        }
        committed.map_err(|error| Error::Commit(error.into()))
    }

    /// An error means that the connection is lost, even if the work hid that.
    pub(crate) async fn roll_back(self, within: Duration) -> Result<(), Error> {
        let connection = self.alone(within).await?;
        match timeout(within, connection.batch_execute("ROLLBACK")).await {
            Ok(Ok(())) => {
                connection.give_back();
                Ok(())
            }
            _ => Err(connection_lost()),
        }
    }
}

/// A claim of ours for the length of a transaction. [`complete`](Self::complete) and
/// [`roll_back`](Self::roll_back) consume it; dropping it rolls back.
#[derive(Debug)]
#[must_use = "a claim that is dropped is rolled back, with what was done under it"]
pub struct Held {
    tx: Tx,
    store: Store,
    request: Arc<Request>,
    info: Info,
}

impl Held {
    /// The transaction for the work. No clone may outlive it.
    #[must_use]
    pub fn tx(&self) -> Tx {
        self.tx.clone()
    }

    /// The request of the claim.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Stores the answer and commits it with the work. After an error that leaves the result in doubt, such as
    /// a lost connection, begin again with the same request: the record shows whether it committed.
    pub async fn complete(self, answer: &Answer) -> Result<(), Error> {
        self.store(&Stored::of(answer)).await
    }

    pub(crate) async fn store(self, answer: &Stored) -> Result<(), Error> {
        let within = self.store.timeout;
        if self.request.unprotected {
            return self.tx.commit_checked(within).await;
        }
        let complete = statements::complete(&self.tx, &self.request, None, answer);
        if let Err(error) = timeout(within, complete).await.unwrap_or(Err(Error::Timeout)) {
            if error.state().is_some() {
                let _ = self.tx.roll_back(within).await;
            }
            return Err(error);
        }
        self.tx.commit(within).await
    }

    /// Rolls back: the key is free.
    pub async fn roll_back(self) -> Result<(), Error> {
        self.tx.roll_back(self.store.timeout).await
    }
}

impl Store {
    /// Claims a key in a new transaction. [`transactionally`](crate::transactionally) does it with the
    /// retries that this needs, and the layer with HTTP.
    pub async fn begin(&self, request: &Request) -> Result<Begun<Held>, Error> {
        self.begin_held(&Arc::new(request.clone())).await.map(|(begun, _)| begun)
    }

    async fn begin_held(&self, request: &Arc<Request>) -> Result<(Begun<Held>, i32), Error> {
        match self.ask_held(request).await {
            Err(error) => match request.as_digest(&error) {
                Some(digest) => self.ask_held(&digest).await,
                None => Err(error),
            },
            asked => asked,
        }
    }

    async fn ask_held(&self, request: &Arc<Request>) -> Result<(Begun<Held>, i32), Error> {
        let end = Instant::now() + self.timeout + request.wait.unwrap_or_default();
        let tx = Tx::begin(self, end).await?;
        let held = |tx, info| Held { tx, store: self.clone(), request: request.clone(), info };
        if request.unprotected {
            return Ok((Begun::Execute(held(tx, Info::of(request, 0))), 0));
        }
        let begin = statements::begin(&tx, request, None, &self.holder);
        match timeout_at(end, begin).await.unwrap_or(Err(Error::Timeout)) {
            Ok((Begun::Execute(granted), attempt)) => {
                Ok((Begun::Execute(held(tx, Info::of(request, granted.attempt))), attempt))
            }
            Ok((other, attempt)) => {
                tx.roll_back(self.timeout).await?;
                Ok((other.map(|_| unreachable!("it is no execution")), attempt))
            }
            Err(error) => {
                if error.state().is_some() {
                    let _ = tx.roll_back(self.timeout).await;
                }
                Err(error)
            }
        }
    }
}

/// The result of work.
pub(crate) struct Work<A> {
    pub answer: A,
    /// The stored form, or the reason why it is not to be kept.
    pub stored: Result<Stored, String>,
    pub failure: Option<Error>,
}

/// The result of a request.
pub(crate) enum Verdict<A> {
    Worked(A),
    /// The work has failed, with this answer.
    Failed(A, Error),
    Replay(Answer, bool, i32),
    Refused(Refusal, i32),
    /// The claim has ended, or another session has it.
    Lost,
}

/// Does work in the transaction of its claim and stores its answer there; if the answer is not to be kept, all
/// of it rolls back. All of it is repeated after a conflict or a lost connection. After a COMMIT without an
/// answer the repetition finds the record, if it was done.
pub(crate) async fn transactional<A, F>(
    store: &Store,
    request: &Arc<Request>,
    mut work: impl FnMut(Tx, Info) -> F,
) -> Result<Verdict<A>, Error>
where
    F: Future<Output = Work<A>>,
{
    let mut again = false;
    for attempt in 1.. {
        let last = attempt >= request.attempts;
        match transactional_once(store, request, &mut work).await {
            // Without a record it is not known whether it was done.
            Err(error) if request.unprotected && error.is_in_doubt() => return Err(error),
            Err(error) if error.is_retryable() && !last => again = true,
            // Our previous transaction may not have ended on the server.
            Ok(Verdict::Refused(refusal, _)) if again && !last && refusal.outcome == crate::Outcome::InProgress => {}
            result => return result,
        }
        pause(attempt).await;
    }
    unreachable!("the last attempt returns")
}

async fn transactional_once<A, F>(
    store: &Store,
    request: &Arc<Request>,
    work: &mut impl FnMut(Tx, Info) -> F,
) -> Result<Verdict<A>, Error>
where
    F: Future<Output = Work<A>>,
{
    let held = match store.begin_held(request).await? {
        (Begun::Execute(held), _) => held,
        (Begun::Replay(answer, omitted), attempt) => return Ok(Verdict::Replay(answer, omitted, attempt)),
        (Begun::Refused(refusal), attempt) => return Ok(Verdict::Refused(refusal, attempt)),
    };
    let Work { answer, stored, failure } = work(held.tx(), held.info().clone()).await;
    if let (Ok(stored), None) = (stored, &failure) {
        held.store(&stored).await?;
        return Ok(Verdict::Worked(answer));
    }
    match (failure, held.roll_back().await) {
        (Some(failure), _) if failure.is_retryable() => Err(failure),
        (None, Ok(()) | Err(Error::TransactionKept)) => Ok(Verdict::Worked(answer)),
        (Some(failure), Ok(()) | Err(Error::TransactionKept)) => Ok(Verdict::Failed(answer, failure)),
        (Some(failure), Err(_)) if failure.state().is_some() => Ok(Verdict::Failed(answer, failure)),
        (_, Err(lost)) => Err(lost),
    }
}
