//! A request and its answer.

mod execute;

use std::{
    marker::PhantomData,
    sync::{Arc, atomic::AtomicBool},
};

use bytes::Bytes;
use http::{HeaderValue, Response, header, request::Parts};
use http_body::Body;
use tower_service::Service;
use tracing::Instrument;

use crate::{
    Answer, Error, MissingKey, Outcome, Request, ResponseBody, Route, Store, answer,
    body::{Read, read},
    error::BoxError,
    identity::{Identity, sha256},
    key::{Key, format_key, new_key, parse_key},
    problem::problem,
    route::{Event, target, tell},
};
use execute::Executor;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Transactional,
    Leased,
}

pub(crate) struct Exchange {
    store: Store,
    route: Arc<Route>,
    kind: Kind,
    parts: Parts,
    scope: String,
    key: Key,
    show_key: bool,
    /// The handler was run, and `on_execute` was called.
    ran: AtomicBool,
}

type Ran<R, E> = Result<Response<ResponseBody<R>>, E>;

impl Exchange {
    pub fn new(store: Store, route: Arc<Route>, kind: Kind, parts: Parts) -> Self {
        let scope = route.scope_for(&parts);
        let show_key = route.echo_key;
        Self { store, route, kind, parts, scope, key: Key::default(), show_key, ran: AtomicBool::new(false) }
    }

    pub async fn serve<S, B, R>(mut self, inner: S, body: B) -> Ran<R, S::Error>
    where
        S: Service<http::Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
        S::Error: Send + Sync + 'static,
        S::Future: Send,
        B: Body + From<Bytes> + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError> + Send,
        R: Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError> + Send,
    {
        let (request, body) = match self.read_request(body).await {
            Ok(read) => read,
            Err(outcome) => return Ok(self.refuse(outcome).await),
        };
        // Work in progress continues when the client disconnects.
        let work =
            async move { Executor::<S, B> { exchange: self, inner, body, of: PhantomData }.execute(request).await };
        match tokio::spawn(work.in_current_span()).await {
            Ok(answer) => answer,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The runtime ends.
            Err(_) => std::future::pending().await,
        }
    }

    /// Reads principal and key, before any byte of the body.
    async fn read_request<B: Body>(&mut self, body: B) -> Result<(Request, Bytes), Outcome> {
        let principal = (self.route.principal)(&self.parts);
        let principal = principal.filter(|principal| !principal.is_empty()).ok_or(Outcome::Unauthorized)?;
        self.read_key()?;
        let body = self.read_body(body).await?;
        let mut identity = Identity::of(&self.parts, &target(&self.parts), &body, &self.route.exclude);
        if let Some(fingerprint) = &self.route.fingerprint {
            identity.digest = Some(sha256(&fingerprint(&self.parts, &body)));
        }
        let request = Request {
            key: self.key.clone(),
            scope: self.scope.clone(),
            principal,
            identity,
            ttl: self.route.ttl,
            lease: self.route.lease,
            wait: self.route.wait,
            attempts: self.route.attempts.max(1),
            derive: None,
            unprotected: false,
        };
        Ok((request, body))
    }

    /// The field as it was sent: hyper decodes nothing.
    fn read_key(&mut self) -> Result<(), Outcome> {
        let mut fields = self.parts.headers.get_all(&self.route.key_header).iter();
        match (fields.next(), fields.next()) {
            (None, _) if self.route.missing_key == MissingKey::Refuse => Err(Outcome::MissingKey),
            (None, _) => Ok(()),
            (Some(field), None) => {
                self.key.learn(parse_key(field.as_bytes()).ok_or(Outcome::BadKey)?);
                Ok(())
            }
            (Some(_), Some(_)) => Err(Outcome::BadKey),
        }
    }

    /// Layers that decode the body must come earlier: an encoded body has no content to compare.
    async fn read_body<B: Body>(&self, body: B) -> Result<Bytes, Outcome> {
        let codings = self.parts.headers.get_all(header::CONTENT_ENCODING);
        if codings.iter().any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity")) {
            return Err(Outcome::ContentEncoding);
        }
        match read(body, self.route.max_request_bytes).await {
            Ok(Read::Whole(bytes)) => Ok(bytes),
            Ok(Read::TooLarge(..)) => Err(Outcome::BodyTooLarge),
            Err(_) => Err(Outcome::BadBody),
        }
    }

    fn without_key(&mut self, request: &mut Request) {
        match self.route.missing_key {
            MissingKey::Generate => self.key.learn(new_key()),
            MissingKey::Derive => {
                request.derive = Some(self.route.window);
                request.ttl = request.derive;
            }
            MissingKey::Refuse | MissingKey::Pass => return request.unprotected = true,
        }
        self.show_key = true;
    }

    // ---- answering ----

    fn event(&self, outcome: Outcome, attempt: i32) -> Event {
        Event { scope: self.scope.clone(), key: self.key.as_str().to_owned(), attempt, outcome }
    }

    /// The key is not logged: it may be a secret.
    fn log(&self, error: &Error) {
        tracing::error!(%error, scope = self.scope, "idempotency: a request has failed");
    }

    async fn refuse<R>(&self, outcome: Outcome) -> Response<ResponseBody<R>> {
        self.refuse_with(outcome, 0, None).await
    }

    async fn refuse_with<R>(
        &self,
        outcome: Outcome,
        attempt: i32,
        retry_after: Option<f64>,
    ) -> Response<ResponseBody<R>> {
        tell(self.route.on_refusal.as_deref(), self.event(outcome, attempt));
        self.problem(outcome, retry_after).await
    }

    async fn problem<R>(&self, outcome: Outcome, retry_after: Option<f64>) -> Response<ResponseBody<R>> {
        self.respond(problem(&self.store, &self.route.statuses, outcome, retry_after).await)
    }

    fn respond<R>(&self, answer: Answer) -> Response<ResponseBody<R>> {
        let mut response = Response::new(ResponseBody::whole(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        self.with_key(response)
    }

    fn with_key<R>(&self, mut response: Response<ResponseBody<R>>) -> Response<ResponseBody<R>> {
        if self.show_key && !self.key.as_str().is_empty() {
            if let Ok(value) = HeaderValue::try_from(format_key(self.key.as_str())) {
                response.headers_mut().insert(&self.route.key_header, value);
            }
        }
        response
    }

    async fn replay<R>(&self, stored: Option<(Answer, bool)>, attempt: i32) -> Response<ResponseBody<R>> {
        tell(self.route.on_replay.as_deref(), self.event(Outcome::Replay, attempt));
        let mut response = match stored {
            Some((mut answer, omitted)) => {
                if omitted {
                    answer.headers.insert(answer::BODY_HEADER, HeaderValue::from_static("omitted"));
                    // An empty document of that type would be invalid.
                    answer.headers.remove(header::CONTENT_TYPE);
                    answer.headers.remove(header::CONTENT_ENCODING);
                }
                self.respond(answer)
            }
            None => self.problem(Outcome::Failed, None).await,
        };
        response.headers_mut().insert(&self.route.replay_header, HeaderValue::from_static("true"));
        response
    }
}
