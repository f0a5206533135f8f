//! Outcomes, and the problem documents of those that are refusals.

use std::{collections::HashMap, fmt};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::{Answer, Store, contract::PROBLEMS};

/// The results of a request: the outcomes of `idem_begin`, and refusals before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Outcome {
    Execute,
    Replay,
    InProgress,
    Mismatch,
    Expired,
    RetryLater,
    Exhausted,
    Unknown,
    /// The record failed without a stored answer.
    Failed,
    MissingKey,
    BadKey,
    Unauthorized,
    BodyTooLarge,
    ContentEncoding,
    BadBody,
    BadJson,
    /// The database is away.
    Unavailable,
    AnswerTooLarge,
    /// The handler did not answer within `handler_timeout`.
    HandlerLate,
    Internal,
    /// Of the hook `on_lease_lost`.
    Lost,
}

/// Each with its word.
const OUTCOMES: [(Outcome, &str); 21] = [
    (Outcome::Execute, "execute"),
    (Outcome::Replay, "replay"),
    (Outcome::InProgress, "in_progress"),
    (Outcome::Mismatch, "mismatch"),
    (Outcome::Expired, "expired"),
    (Outcome::RetryLater, "retry_later"),
    (Outcome::Exhausted, "exhausted"),
    (Outcome::Unknown, "unknown"),
    (Outcome::Failed, "failed"),
    (Outcome::MissingKey, "missing_key"),
    (Outcome::BadKey, "bad_key"),
    (Outcome::Unauthorized, "unauthorized"),
    (Outcome::BodyTooLarge, "body_too_large"),
    (Outcome::ContentEncoding, "content_encoding"),
    (Outcome::BadBody, "bad_body"),
    (Outcome::BadJson, "bad_json"),
    (Outcome::Unavailable, "unavailable"),
    (Outcome::AnswerTooLarge, "answer_too_large"),
    (Outcome::HandlerLate, "handler_late"),
    (Outcome::Internal, "internal"),
    (Outcome::Lost, "lost"),
];

impl Outcome {
    /// The word, as in the server and in the hooks of other clients.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        OUTCOMES.iter().find(|row| row.0 == self).map_or("internal", |row| row.1)
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        OUTCOMES.iter().find(|row| row.1 == word).map(|row| row.0)
    }

    /// Status and title, and whether the server has no document of it.
    fn known(self) -> (u16, &'static str, bool) {
        let known = PROBLEMS.iter().find(|row| row.0 == self.as_str());
        known.map_or((500, "The request could not be executed", true), |row| (row.1, row.2, row.3))
    }

    /// Without the server's help.
    fn document(self) -> Value {
        let (status, title, _) = self.known();
        let word = self.as_str().replace('_', "-");
        json!({ "type": format!("/problems/idempotency/{word}"), "title": title, "status": status })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The server's document if there is one and the server answers, with the status of the route.
pub(crate) async fn problem(
    store: &Store,
    statuses: &HashMap<Outcome, StatusCode>,
    outcome: Outcome,
    retry_after: Option<f64>,
) -> Answer {
    let (_, _, local) = outcome.known();
    let document = if local {
        outcome.document()
    } else {
        store.problem(outcome.as_str()).await.unwrap_or_else(|_| outcome.document())
    };
    answer(statuses, outcome, document, retry_after)
}

/// Seconds are whole, and rounded up.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn answer(
    statuses: &HashMap<Outcome, StatusCode>,
    outcome: Outcome,
    document: Value,
    retry_after: Option<f64>,
) -> Answer {
    let Value::Object(mut document) = document else {
        return answer(statuses, outcome, Value::Object(Map::new()), retry_after);
    };
    let said = document.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    let status = statuses.get(&outcome).copied();
    let status = status.or_else(|| StatusCode::from_u16(said?).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    document.insert("status".into(), status.as_u16().into());
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if let Some(seconds) = retry_after.or((outcome == Outcome::InProgress).then_some(1.0)) {
        let seconds = seconds.ceil().max(0.0) as u64;
        document.insert("retry_after".into(), seconds.into());
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let body = Bytes::from(Value::Object(document).to_string());
    Answer { status, headers, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for row in &OUTCOMES {
            assert_eq!(Outcome::of(row.0.as_str()), Some(row.0));
        }
        assert_eq!(Outcome::of("other"), None);
    }

    #[test]
    fn the_status_of_the_route_stands_in_the_document() {
        let statuses = HashMap::from([(Outcome::InProgress, StatusCode::TOO_EARLY)]);
        let found = answer(&statuses, Outcome::InProgress, Outcome::InProgress.document(), Some(1.2));
        let document: Value = serde_json::from_slice(&found.body).unwrap();
        assert_eq!((found.status.as_u16(), &document["status"]), (425, &json!(425)));
        assert_eq!((&found.headers["retry-after"], &document["retry_after"]), (&HeaderValue::from(2), &json!(2)));
        assert_eq!(document["type"], "/problems/idempotency/in-progress");
    }

    #[test]
    fn who_is_to_ask_again_is_told_when() {
        let of = |outcome: Outcome| answer(&HashMap::new(), outcome, outcome.document(), None);
        assert_eq!(of(Outcome::InProgress).headers["retry-after"], HeaderValue::from(1));
        assert!(!of(Outcome::Mismatch).headers.contains_key("retry-after"));
    }
}
