//! The store of records, and statements that commit alone.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use deadpool_postgres::{Pool, PoolError};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    Error, Request,
    connection::{Connection, Lent},
    contract, statements,
};

/// The records of requests, in a PostgreSQL that a pool reaches. Clones are the same store.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) pool: Pool,
    pub(crate) timeout: Duration,
    /// How transactions begin.
    pub(crate) start: Arc<str>,
    pub(crate) holder: Arc<str>,
    unprepared: bool,
    /// The server's documents never change, so each is requested once.
    problems: Arc<Mutex<HashMap<&'static str, Value>>>,
}

impl Store {
    /// The pool connects at its first use.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self {
            pool,
            timeout: Duration::from_millis(contract::DATABASE_TIMEOUT_MS),
            start: "BEGIN".into(),
            holder: holder().into(),
            unprepared: false,
            problems: Arc::default(),
        }
    }

    /// The longest time for the statements before a handler together, the connection for them included, and for
    /// each statement after it: 10 s. After it the connection is closed, and the database counts as away: only
    /// this detects a network that swallows bytes.
    #[must_use]
    pub fn database_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How transactions begin: `BEGIN`, or for example `BEGIN ISOLATION LEVEL SERIALIZABLE`.
    #[must_use]
    pub fn begin_with(mut self, statement: &str) -> Self {
        self.start = statement.into();
        self
    }

    /// Does not prepare statements, as a pooler needs it that gives each transaction another session: PgBouncer in
    /// transaction mode. Handlers then use `query_typed`.
    #[must_use]
    pub fn unprepared(mut self) -> Self {
        self.unprepared = true;
        self
    }

    /// A connection for a statement that commits by itself, and the time until which it may run.
    pub(crate) async fn lend(&self, extra: Duration) -> Result<Lent, Error> {
        let end = Instant::now() + self.timeout + extra;
        Ok(Lent { connection: self.connection(end).await?, end })
    }

    pub(crate) async fn connection(&self, end: Instant) -> Result<Connection, Error> {
        match timeout_at(end, self.pool.get()).await {
            Ok(Ok(object)) => Ok(Connection::new(object, self.unprepared)),
            Ok(Err(PoolError::Backend(error))) => Err(error.into()),
            Ok(Err(PoolError::Timeout(_))) | Err(_) => Err(Error::Timeout),
            Ok(Err(error)) => Err(Error::Database(error.into())),
        }
    }

    pub(crate) async fn fail(&self, q: &Request, token: i64, reason: &str, uncertain: bool) -> Result<(), Error> {
        let lent = self.lend(Duration::ZERO).await?;
        let fail = statements::fail(&lent.connection, q, token, reason, uncertain);
        let result = lent.within(fail).await;
        lent.finish(result)
    }

    pub(crate) async fn unknown(
        &self,
        q: &Request,
        token: i64,
        error: &str,
        reference: Option<&str>,
    ) -> Result<(), Error> {
        let lent = self.lend(Duration::ZERO).await?;
        let unknown = async {
            let ready = statements::ready_for_unknown(&lent.connection).await?;
            statements::unknown(&lent.connection, &ready, q, token, error, reference).await
        };
        let result = lent.within(unknown).await;
        lent.finish(result)
    }

    pub(crate) async fn problem(&self, word: &'static str) -> Result<Value, Error> {
        let known = || self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(document) = known().get(word) {
            return Ok(document.clone());
        }
        let lent = self.lend(Duration::ZERO).await?;
        let result = lent.within(statements::problem(&lent.connection, word)).await;
        let document = lent.finish(result)?;
        known().insert(word, document.clone());
        Ok(document)
    }
}

/// The name of this worker, shown to operators.
fn holder() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim()).filter(|host| !host.is_empty()).unwrap_or("rust");
    format!("{host}:{}", std::process::id())
}
