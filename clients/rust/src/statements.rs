//! The calls of the statements, with their arguments.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio_postgres::{
    Row, Statement,
    types::{IsNull, ToSql, Type, to_sql_checked},
};

use crate::{
    Error, Request,
    answer::Stored,
    connection::Connection,
    contract::{BEGIN, CHECKPOINT, COMPLETE, DUE, EXTEND, FAIL, ONCE, PROBLEM, UNKNOWN},
    error::BoxError,
    identity::Identity,
    request::{Begun, Granted, begun},
};

/// The text of a body. The server parses it, and so decides whether it is JSON.
#[derive(Debug)]
struct Unread<'a>(&'a [u8]);

impl ToSql for Unread<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_u8(1); // the version of jsonb's binary form
        out.put_slice(self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
}

fn unread(identity: &Identity) -> Option<Unread<'_>> {
    identity.json.as_deref().map(Unread)
}

fn milliseconds(span: Option<Duration>) -> Option<i64> {
    span.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX).max(1))
}

type Arguments<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A statement that can be sent at once, so that another one can follow it in the same message.
pub(crate) enum Ready {
    Prepared(Statement),
    /// Parsed with each execution.
    Text,
}

/// Statements are prepared once for each connection, unless the store says otherwise.
async fn ready(client: &Connection, sql: &str) -> Result<Ready, Error> {
    Ok(if client.unprepared { Ready::Text } else { Ready::Prepared(client.prepare_cached(sql).await?) })
}

pub(crate) async fn ready_to_begin(client: &Connection) -> Result<Ready, Error> {
    ready(client, BEGIN).await
}

pub(crate) async fn ready_to_complete(client: &Connection) -> Result<Ready, Error> {
    ready(client, COMPLETE).await
}

pub(crate) async fn ready_for_unknown(client: &Connection) -> Result<Ready, Error> {
    ready(client, UNKNOWN).await
}

/// A missing statement, or one whose result type changed with an update of the extension, is prepared again,
/// because [`Error::is_retryable`] repeats the call.
async fn send_all(client: &Connection, sql: &str, ready: &Ready, arguments: Arguments<'_>) -> Result<Vec<Row>, Error> {
    let result = match ready {
        Ready::Prepared(statement) => {
            let values: Vec<_> = arguments.iter().map(|argument| argument.0).collect();
            client.query(statement, &values).await.map_err(Error::from)
        }
        Ready::Text => client.query_typed(sql, arguments).await.map_err(Error::from),
    };
    if result.as_ref().is_err_and(Error::is_stale) {
        client.statement_cache.remove(sql, &[]);
    }
    result
}

async fn send(client: &Connection, sql: &str, ready: &Ready, arguments: Arguments<'_>) -> Result<Row, Error> {
    let mut rows = send_all(client, sql, ready, arguments).await?;
    match (rows.pop(), rows.len()) {
        (Some(row), 0) => Ok(row),
        (row, more) => Err(Error::Unexpected(format!("{} rows", more + usize::from(row.is_some())).into())),
    }
}

async fn one(client: &Connection, sql: &str, arguments: Arguments<'_>) -> Result<Row, Error> {
    let ready = ready(client, sql).await?;
    send(client, sql, &ready, arguments).await
}

fn unexpected(error: tokio_postgres::Error) -> Error {
    Error::Unexpected(error.into())
}

pub(crate) async fn begin(
    client: &Connection,
    ready: &Ready,
    q: &Request,
    lease: Option<Duration>,
    holder: &str,
) -> Result<(Begun<Granted>, i32), Error> {
    let i = &q.identity;
    let transactional = lease.is_none();
    let (ttl, lease, wait, derive) =
        (milliseconds(q.ttl), milliseconds(lease), milliseconds(q.wait), milliseconds(q.derive));
    let key = q.derive.is_none().then_some(q.key.as_str());
    let arguments: Arguments = &[
        (&key, Type::TEXT),
        (&unread(i), Type::JSONB),
        (&i.digest, Type::BYTEA),
        (&i.method, Type::TEXT),
        (&i.target, Type::TEXT),
        (&i.exclude, Type::TEXT_ARRAY),
        (&q.scope, Type::TEXT),
        (&q.principal, Type::TEXT),
        (&ttl, Type::INT8),
        (&lease, Type::INT8),
        (&wait, Type::INT8),
        (&holder, Type::TEXT),
        (&transactional, Type::BOOL),
        (&derive, Type::INT8),
    ];
    let row = send(client, BEGIN, ready, arguments).await?;
    q.key.learn(row.try_get("key").map_err(unexpected)?);
    begun(&row).map_err(unexpected)
}

pub(crate) async fn complete(
    client: &Connection,
    ready: &Ready,
    q: &Request,
    token: Option<i64>,
    answer: &Stored,
) -> Result<(), Error> {
    let status = answer.status.map(|status| i32::from(status.as_u16()));
    let body = answer.body.as_deref();
    let key = q.key.as_str();
    let arguments: Arguments = &[
        (&key, Type::TEXT),
        (&status, Type::INT4),
        (&body, Type::BYTEA),
        (&answer.headers, Type::JSONB),
        (&q.scope, Type::TEXT),
        (&q.principal, Type::TEXT),
        (&token, Type::INT8),
    ];
    send(client, COMPLETE, ready, arguments).await.map(drop)
}

pub(crate) async fn fail(
    client: &Connection,
    q: &Request,
    token: i64,
    reason: &str,
    uncertain: bool,
) -> Result<(), Error> {
    let arguments: Arguments = &[
        (&q.key.as_str(), Type::TEXT),
        (&reason, Type::TEXT),
        (&q.scope, Type::TEXT),
        (&q.principal, Type::TEXT),
        (&token, Type::INT8),
        (&uncertain, Type::BOOL),
    ];
    one(client, FAIL, arguments).await.map(drop)
}

pub(crate) async fn unknown(
    client: &Connection,
    ready: &Ready,
    q: &Request,
    token: i64,
    error: &str,
    reference: Option<&str>,
) -> Result<(), Error> {
    let arguments: Arguments = &[
        (&q.key.as_str(), Type::TEXT),
        (&error, Type::TEXT),
        (&reference, Type::TEXT),
        (&q.scope, Type::TEXT),
        (&q.principal, Type::TEXT),
        (&token, Type::INT8),
    ];
    send(client, UNKNOWN, ready, arguments).await.map(drop)
}

pub(crate) async fn extend(client: &Connection, q: &Request, token: i64) -> Result<(), Error> {
    one(
        client,
        EXTEND,
        &[(&q.key.as_str(), Type::TEXT), (&token, Type::INT8), (&q.scope, Type::TEXT), (&q.principal, Type::TEXT)],
    )
    .await
    .map(drop)
}

pub(crate) async fn checkpoint(
    client: &Connection,
    q: &Request,
    token: i64,
    point: &str,
    state: &serde_json::Value,
) -> Result<(), Error> {
    one(
        client,
        CHECKPOINT,
        &[
            (&q.key.as_str(), Type::TEXT),
            (&point, Type::TEXT),
            (state, Type::JSONB),
            (&q.scope, Type::TEXT),
            (&q.principal, Type::TEXT),
            (&token, Type::INT8),
        ],
    )
    .await
    .map(drop)
}

pub(crate) async fn once(client: &Connection, key: &str, scope: &str, principal: &str) -> Result<bool, Error> {
    one(client, ONCE, &[(&key, Type::TEXT), (&scope, Type::TEXT), (&principal, Type::TEXT)])
        .await?
        .try_get("first")
        .map_err(unexpected)
}

pub(crate) async fn due(
    client: &Connection,
    scope: &str,
    most: usize,
    lease: Duration,
    holder: &str,
) -> Result<Vec<Row>, Error> {
    let (most, lease) = (i32::try_from(most).unwrap_or(i32::MAX), milliseconds(Some(lease)));
    let arguments: Arguments =
        &[(&scope, Type::TEXT), (&most, Type::INT4), (&lease, Type::INT8), (&holder, Type::TEXT)];
    let ready = ready(client, DUE).await?;
    send_all(client, DUE, &ready, arguments).await
}

pub(crate) async fn problem(client: &Connection, word: &str) -> Result<serde_json::Value, Error> {
    one(client, PROBLEM, &[(&word, Type::TEXT)]).await?.try_get("problem").map_err(unexpected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_never_nothing() {
        assert_eq!(milliseconds(Some(Duration::from_micros(1))), Some(1));
        assert_eq!(milliseconds(Some(Duration::from_secs(2))), Some(2000));
        assert_eq!(milliseconds(None), None);
    }
}
