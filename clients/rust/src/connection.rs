//! A connection of the pool, and how long a statement may use it.

use std::ops::Deref;

use deadpool_postgres::{ClientWrapper, Object};
use tokio::time::{Instant, timeout_at};

use crate::Error;

/// A connection for a while.
pub(crate) struct Lent {
    pub connection: Connection,
    pub end: Instant,
}

impl Lent {
    pub async fn within<T>(&self, statement: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout_at(self.end, statement).await.unwrap_or(Err(Error::Timeout))
    }

    /// A connection whose statement took too long is closed: the statement may still run.
    pub fn finish<T>(self, result: Result<T, Error>) -> Result<T, Error> {
        if result.as_ref().map_or_else(|error| error.state().is_some(), |_| true) {
            self.connection.give_back();
        }
        result
    }
}

/// A connection of the pool. It returns only when it is reported to be in order. Otherwise it is closed, so the
/// server rolls back its transaction.
#[derive(Debug)]
pub(crate) struct Connection {
    object: Option<Object>,
    pub unprepared: bool,
}

impl Connection {
    pub fn new(object: Object, unprepared: bool) -> Self {
        Self { object: Some(object), unprepared }
    }

    pub fn give_back(mut self) {
        drop(self.object.take());
    }
}

impl Deref for Connection {
    type Target = ClientWrapper;

    fn deref(&self) -> &ClientWrapper {
        self.object.as_ref().expect("it is there until it is given back, which consumes it")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(object) = self.object.take() {
            drop(Object::take(object));
        }
    }
}
