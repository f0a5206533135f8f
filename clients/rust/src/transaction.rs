//! Claims that live in the transaction of their work.

use std::{ops::Deref, sync::Arc, time::Duration};

use deadpool_postgres::ClientWrapper;
use futures_util::future::join;
use tokio::time::{Instant, error::Elapsed, sleep, timeout, timeout_at};
use tokio_postgres::NoTls;

use crate::{
    Answer, Error, Refusal, Request, Store,
    answer::Stored,
    claim::Info,
    connection::Connection,
    error::{connection_lost, pause},
    lease::Lease,
    request::{ATTEMPTS, Begun, Granted},
    statements,
};

/// How often a connection is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// The answers to a last statement and COMMIT, or the reason why they were not sent.
type Both = Result<(Result<(), Error>, Result<(), tokio_postgres::Error>), Error>;

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

    /// BEGIN and the claim go to the server together.
    async fn begin_with(
        store: &Store,
        request: &Request,
        end: Instant,
    ) -> Result<(Self, Result<(Begun<Granted>, i32), Error>), Error> {
        let connection = store.connection(end).await?;
        let both = async {
            let ready = statements::ready_to_begin(&connection).await?;
            let claim = statements::begin(&connection, &ready, request, None, &store.holder);
            let (started, claimed) = join(connection.batch_execute(&store.start), claim).await;
            started?;
            Ok(claimed)
        };
        let begun = timeout_at(end, both).await.unwrap_or(Err(Error::Timeout))?;
        Ok((Self(Arc::new(connection)), begun))
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.0
    }

    /// Returns when the connection is lost.
    pub(crate) async fn lost(self) {
        while !self.0.is_closed() {
            sleep(LOOK).await;
        }
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
        let both = join(connection.batch_execute("SELECT 1"), connection.batch_execute("COMMIT"));
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
    token: i64,
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
        self.store_with(None, answer).await
    }

    /// The token is of a claim that has committed before this transaction.
    async fn store_with(self, token: Option<i64>, answer: &Stored) -> Result<(), Error> {
        let within = self.store.timeout;
        if self.request.unprotected {
            return self.tx.commit_checked(within).await;
        }
        let (connection, request) = (self.tx.alone(within).await?, self.request);
        let both = async {
            let ready = statements::ready_to_complete(&connection).await?;
            let complete = statements::complete(&connection, &ready, &request, token, answer);
            Ok(join(complete, connection.batch_execute("COMMIT")).await)
        };
        let both = timeout(within, both).await;
        Self::ended(connection, both, within).await
    }

    /// Commits the work under a claim whose outcome is not known.
    async fn unknown(self, reason: &str) -> Result<(), Error> {
        let within = self.store.timeout;
        if self.request.unprotected {
            return self.tx.commit_checked(within).await;
        }
        let (connection, request, token) = (self.tx.alone(within).await?, self.request, self.token);
        let both = async {
            let ready = statements::ready_for_unknown(&connection).await?;
            let unknown = statements::unknown(&connection, &ready, &request, token, reason, None);
            Ok(join(unknown, connection.batch_execute("COMMIT")).await)
        };
        let both = timeout(within, both).await;
        Self::ended(connection, both, within).await
    }

    /// The last statement and COMMIT were sent together. If the statement fails, the server makes a ROLLBACK of
    /// the COMMIT, and says nothing of it. If the connection is lost, both may have been done.
    async fn ended(connection: Connection, both: Result<Both, Elapsed>, within: Duration) -> Result<(), Error> {
        match both.map_err(|_| Error::CommitTimeout)? {
            Ok((Ok(()), committed)) => Tx::committed(connection, Ok(committed)),
            Ok((Err(error), committed)) => {
                if committed.is_ok() {
                    connection.give_back();
                }
                Err(if error.state().is_some() { error } else { Error::Commit(error.into()) })
            }
            // It could not be prepared, so neither was sent.
            Err(error) => {
                if error.state().is_some() {
                    let _ = Tx(Arc::new(connection)).roll_back(within).await;
                }
                Err(error)
            }
        }
    }

    /// Rolls back, though a statement may be running. Where the server wants TLS, it is not cancelled. The server
    /// may hear of the cancellation later: the connection is closed, so that it finds no other request's statement.
    async fn give_up(self) {
        let _ = timeout(LOOK, self.tx.cancel_token().cancel_query(NoTls)).await;
        let within = self.store.timeout;
        if let Ok(connection) = self.tx.alone(within).await {
            let _ = timeout(within, connection.batch_execute("ROLLBACK")).await;
        }
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
        let held = |tx, info, token| Held { tx, store: self.clone(), request: request.clone(), info, token };
        if request.unprotected {
            let tx = Tx::begin(self, end).await?;
            return Ok((Begun::Execute(held(tx, Info::of(request, 0), 0)), 0));
        }
        match Tx::begin_with(self, request, end).await? {
            (tx, Ok((Begun::Execute(granted), attempt))) => {
                Ok((Begun::Execute(held(tx, Info::of(request, granted.attempt), granted.token)), attempt))
            }
            (tx, Ok((other, attempt))) => {
                // The answer does not wait for it.
                tokio::spawn(tx.roll_back(self.timeout));
                Ok((other.map(|_| unreachable!("it is no execution")), attempt))
            }
            (tx, Err(error)) => {
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
    pub end: End,
    pub failure: Option<Error>,
}

/// What becomes of an answer; all but the first with a reason.
pub(crate) enum End {
    Keep(Stored),
    /// The work may have had an effect.
    NotKept(String),
    /// It has had none.
    Free(String),
    Unknown(String),
}

impl End {
    /// The work has failed with an answer that is kept without it.
    pub fn is_raised(&self, failure: &Error) -> bool {
        let kept = matches!(self, Self::Keep(answer) if answer.status.is_some_and(|status| status.is_client_error()));
        kept && failure.is_uncertain() && !failure.is_retryable() && !matches!(failure, Error::HandlerTimeout)
    }
}

/// The result of a request.
pub(crate) enum Settled<A> {
    Worked(A),
    /// The work has failed, with this answer.
    Failed(A, Error),
    Replay(Answer, bool, i32),
    Refused(Refusal, i32),
    /// The claim has ended, or another session has it.
    Lost,
}

/// Does work in the transaction of its claim and stores its answer there; if the answer is not to be kept, all
/// of it rolls back. An answer that the work raises is stored in a transaction of its own, after that of the work
/// has been rolled back. All of it is repeated after a conflict or a lost connection. After a COMMIT without an
/// answer the repetition finds the record, if it was done.
pub(crate) async fn transactional<A, F>(
    store: &Store,
    request: &Arc<Request>,
    mut work: impl FnMut(Tx, Info) -> F,
) -> Result<Settled<A>, Error>
where
    F: Future<Output = Work<A>>,
{
    let (mut again, mut raised) = (false, None);
    for attempt in 1.. {
        let last = attempt >= request.attempts;
        match transactional_once(store, request, &mut work, &mut raised).await {
            // Without a record it is not known whether it was done.
            Err(error) if request.unprotected && error.is_in_doubt() => return Err(error),
            Err(error) if error.is_retryable() && !last => again = true,
            // Our previous transaction may not have ended on the server.
            Ok(Settled::Refused(refusal, _)) if again && !last && refusal.outcome == crate::Outcome::InProgress => {}
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
    raised: &mut Option<(A, Stored)>,
) -> Result<Settled<A>, Error>
where
    F: Future<Output = Work<A>>,
{
    loop {
        let held = match store.begin_held(request).await? {
            (Begun::Execute(held), _) => held,
            (Begun::Replay(answer, omitted), attempt) => return Ok(Settled::Replay(answer, omitted, attempt)),
            (Begun::Refused(refusal), attempt) => return Ok(Settled::Refused(refusal, attempt)),
        };
        if let Some((answer, stored)) = raised.take() {
            return match held.store(&stored).await {
                Ok(()) => Ok(Settled::Worked(answer)),
                Err(error) => {
                    *raised = Some((answer, stored));
                    Err(error)
                }
            };
        }
        let Work { answer, end, failure } = work(held.tx(), held.info().clone()).await;
        match (end, failure) {
            (End::Keep(stored), None) => return held.store(&stored).await.map(|()| Settled::Worked(answer)),
            (End::Unknown(reason), None) => return held.unknown(&reason).await.map(|()| Settled::Worked(answer)),
            (end, Some(failure)) if end.is_raised(&failure) => {
                held.roll_back().await?;
                match end {
                    End::Keep(stored) if !request.unprotected => *raised = Some((answer, stored)),
                    _ => return Ok(Settled::Worked(answer)),
                }
            }
            (_, failure) => return undone(held, answer, failure).await,
        }
    }
}

/// Does work in a transaction that also completes its claim, which has committed before: both commit, or neither
/// does. Work that fails has had no effect. After a conflict it runs again.
pub(crate) async fn within<F>(lease: Lease, mut work: impl FnMut(Tx) -> F) -> Result<Settled<()>, Error>
where
    F: Future<Output = Work<()>>,
{
    let mut lease = lease;
    lease.uncertain = false;
    let mut attempt = 1;
    let result = loop {
        match committed(&lease, &mut work).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => pause(attempt).await,
            result => break result,
        }
        // During COMMIT or the pause.
        if lease.claim().lost().is_cancelled() {
            break Err(Error::LeaseLost);
        }
        lease.resume_beating();
        attempt += 1;
    };
    let reason = match result {
        Ok(None) => {
            lease.over();
            return Ok(Settled::Worked(()));
        }
        Ok(Some(End::NotKept(reason))) => (reason, None),
        Ok(_) => ("nothing to keep".to_owned(), None),
        Err(error) => (error.to_string(), Some(error)),
    };
    // The server refuses it if the transaction has committed nevertheless, and its answer was lost.
    match (lease.nothing_happened(&reason.0).await, reason.1) {
        (Err(error), None) if error.is_lost() => Ok(Settled::Lost),
        (_, Some(error)) if error.is_lost() => Ok(Settled::Lost),
        (_, Some(error)) => Ok(Settled::Failed((), error)),
        (_, None) => Ok(Settled::Worked(())),
    }
}

/// None: it has committed.
async fn committed<F>(lease: &Lease, work: impl FnOnce(Tx) -> F) -> Result<Option<End>, Error>
where
    F: Future<Output = Work<()>>,
{
    let claim = lease.claim();
    let (store, request) = (claim.store().clone(), claim.request().clone());
    let tx = Tx::begin(&store, Instant::now() + store.timeout).await?;
    let held = Held { tx, store, request, info: claim.info().clone(), token: claim.token() };
    let Work { end, failure, .. } = work(held.tx()).await;
    lease.stop_beating();
    match (failure, end) {
        _ if claim.lost().is_cancelled() => {
            held.roll_back().await?;
            Err(Error::LeaseLost)
        }
        (None, End::Keep(stored)) => {
            let token = Some(held.token);
            held.store_with(token, &stored).await.map(|()| None)
        }
        (None, end) => held.roll_back().await.map(|()| Some(end)),
        (Some(Error::HandlerTimeout), _) => {
            held.give_up().await;
            Err(Error::HandlerTimeout)
        }
        (Some(failure), _) => match held.roll_back().await {
            Err(lost) if failure.state().is_none() && !matches!(lost, Error::TransactionKept) => Err(lost),
            _ => Err(failure),
        },
    }
}

/// Work without an answer to keep.
async fn undone<A>(held: Held, answer: A, failure: Option<Error>) -> Result<Settled<A>, Error> {
    if let Some(failure @ Error::HandlerTimeout) = failure {
        // The answer waits for it, but not for a database that is silent.
        let _ = timeout(Duration::from_secs(1), tokio::spawn(held.give_up())).await;
        return Ok(Settled::Failed(answer, failure));
    }
    match (failure, held.roll_back().await) {
        (Some(failure), _) if failure.is_retryable() => Err(failure),
        (None, Ok(()) | Err(Error::TransactionKept)) => Ok(Settled::Worked(answer)),
        (Some(failure), Ok(()) | Err(Error::TransactionKept)) => Ok(Settled::Failed(answer, failure)),
        (Some(failure), Err(_)) if failure.state().is_some() => Ok(Settled::Failed(answer, failure)),
        (_, Err(lost)) => Err(lost),
    }
}
