//! The calls of the statements, with their arguments.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use deadpool_postgres::ClientWrapper;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

use crate::{
    Error, Request,
    answer::Stored,
    contract::{BEGIN, CHECKPOINT, COMPLETE, EXTEND, FAIL, ONCE, PROBLEM, UNKNOWN},
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

type Arguments<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Statements are prepared once for each connection. A missing statement, or one whose result type changed with
/// an update of the extension, is prepared again, because [`Error::is_retryable`] repeats the call.
async fn one(client: &ClientWrapper, sql: &str, arguments: Arguments<'_>) -> Result<tokio_postgres::Row, Error> {
    let statement = client.prepare_cached(sql).await?;
    let result = client.query_one(&statement, arguments).await.map_err(Error::from);
    if result.as_ref().is_err_and(Error::is_stale) {
        client.statement_cache.remove(sql, &[]);
    }
    result
}

fn unexpected(error: tokio_postgres::Error) -> Error {
    Error::Unexpected(error.into())
}

pub(crate) async fn begin(
    client: &ClientWrapper,
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
        &key,
        &unread(i),
        &i.digest,
        &i.method,
        &i.target,
        &i.exclude,
        &q.scope,
        &q.principal,
        &ttl,
        &lease,
        &wait,
        &holder,
        &transactional,
        &derive,
    ];
    let row = one(client, BEGIN, arguments).await?;
    q.key.learn(row.try_get("key").map_err(unexpected)?);
    begun(&row).map_err(unexpected)
}

pub(crate) async fn complete(
    client: &ClientWrapper,
    q: &Request,
    token: Option<i64>,
    answer: &Stored,
) -> Result<(), Error> {
    let status = i32::from(answer.status.as_u16());
    let body = answer.body.as_deref();
    let key = q.key.as_str();
    let arguments: Arguments = &[&key, &status, &body, &answer.headers, &q.scope, &q.principal, &token];
    one(client, COMPLETE, arguments).await.map(drop)
}

pub(crate) async fn fail(
    client: &ClientWrapper,
    q: &Request,
    token: i64,
    reason: &str,
    uncertain: bool,
) -> Result<(), Error> {
    let arguments: Arguments = &[&q.key.as_str(), &reason, &q.scope, &q.principal, &token, &uncertain];
    one(client, FAIL, arguments).await.map(drop)
}

pub(crate) async fn unknown(
    client: &ClientWrapper,
    q: &Request,
    token: i64,
    error: &str,
    reference: Option<&str>,
) -> Result<(), Error> {
    let arguments: Arguments = &[&q.key.as_str(), &error, &reference, &q.scope, &q.principal, &token];
    one(client, UNKNOWN, arguments).await.map(drop)
}

pub(crate) async fn extend(client: &ClientWrapper, q: &Request, token: i64) -> Result<(), Error> {
    one(client, EXTEND, &[&q.key.as_str(), &token, &q.scope, &q.principal]).await.map(drop)
}

pub(crate) async fn checkpoint(
    client: &ClientWrapper,
    q: &Request,
    token: i64,
    point: &str,
    state: &serde_json::Value,
) -> Result<(), Error> {
    one(client, CHECKPOINT, &[&q.key.as_str(), &point, state, &q.scope, &q.principal, &token]).await.map(drop)
}

pub(crate) async fn once(client: &ClientWrapper, key: &str, scope: &str, principal: &str) -> Result<bool, Error> {
    one(client, ONCE, &[&key, &scope, &principal]).await?.try_get("first").map_err(unexpected)
}

pub(crate) async fn problem(client: &ClientWrapper, word: &str) -> Result<serde_json::Value, Error> {
    one(client, PROBLEM, &[&word]).await?.try_get("problem").map_err(unexpected)
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
