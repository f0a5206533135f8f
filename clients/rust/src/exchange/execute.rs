//! Runs the handler under its claim.

use std::{
    future::{pending, poll_fn},
    marker::PhantomData,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body::Body;
use tokio::time::sleep;
use tower_service::Service;

use super::{Exchange, Kind, Ran};
use crate::{
    Answer, Claim, Error, Failure, Info, Outcome, Request, ResponseBody, Tx, Verdict,
    answer::{self, Stored},
    body::{Read, read},
    error::{BoxError, connection_lost},
    lease::leased,
    problem::problem,
    route::{Event, tell},
    transaction::{End, Settled, Work, transactional},
};

/// The layer's entry in the request's extensions.
enum Given {
    Tx(Tx),
    Claim(Claim),
    /// While the database is away, a transactional route has none.
    Nothing,
}

/// The handler, which may run several times, each time with a new request.
pub(super) struct Executor<S, B> {
    pub exchange: Exchange,
    pub inner: S,
    pub body: Bytes,
    pub of: PhantomData<fn(B)>,
}

impl<S, B, R> Executor<S, B>
where
    S: Service<http::Request<B>, Response = Response<R>> + Clone + Send + Sync,
    S::Error: Send + Sync,
    S::Future: Send,
    B: From<Bytes> + Send,
    R: Body<Data = Bytes> + Send,
    R::Error: Into<BoxError> + Send,
{
    pub async fn execute(mut self, mut request: Request) -> Ran<R, S::Error> {
        if request.key.as_str().is_empty() {
            self.exchange.without_key(&mut request);
        }
        let request = Arc::new(request);
        let result = match self.exchange.kind {
            Kind::Transactional => {
                transactional(&self.exchange.store, &request, |tx, info| self.run(Given::Tx(tx), info)).await
            }
            Kind::Leased => {
                let (route, event) = (self.exchange.route.clone(), self.exchange.event(Outcome::Lost, 0));
                let key = request.key.clone(); // which is not known yet if it is derived
                let on_lost = move |attempt| {
                    let event = Event { attempt, key: key.as_str().to_owned(), ..event };
                    tell(route.on_lease_lost.as_deref(), event);
                };
                let run = |claim: Claim| {
                    let info = claim.info().clone();
                    self.run(Given::Claim(claim), info)
                };
                leased(&self.exchange.store, &request, on_lost, run).await
            }
        };
        let exchange = &self.exchange;
        match result {
            Ok(Settled::Worked(answer)) => answer.map(|response| exchange.with_key(response)),
            Ok(Settled::Failed(answer, failure)) => {
                exchange.log(&failure);
                self.failed(answer).await
            }
            Ok(Settled::Replay(answer, omitted, attempt)) => {
                Ok(exchange.replay(Some((answer, omitted)), attempt).await)
            }
            Ok(Settled::Refused(refusal, attempt)) if refusal.outcome == Outcome::Failed => {
                Ok(exchange.replay(None, attempt).await)
            }
            Ok(Settled::Refused(refusal, attempt)) => {
                let retry_after = refusal.retry_after.map(|span| span.as_secs_f64());
                Ok(exchange.refuse_with(refusal.outcome, attempt, retry_after).await)
            }
            // The new holder will answer.
            Ok(Settled::Lost) => Ok(exchange.problem(Outcome::InProgress, None).await),
            Err(error) => self.answer_error(Arc::unwrap_or_clone(request), error).await,
        }
    }

    /// The handler's own answer to its failure, if it is one.
    async fn failed(&self, answer: Ran<R, S::Error>) -> Ran<R, S::Error> {
        let response = answer?;
        if response.status().is_client_error() || response.status().is_server_error() {
            return Ok(self.exchange.with_key(response));
        }
        Ok(self.exchange.problem(Outcome::Internal, None).await)
    }

    /// For results without an outcome.
    async fn answer_error(&self, request: Request, error: Error) -> Ran<R, S::Error> {
        let exchange = &self.exchange;
        let ran = exchange.ran.load(Relaxed);
        if !ran && request.identity.json.is_some() && error.state_in(&["22P02", "22021"]) {
            return Ok(exchange.refuse(Outcome::BadJson).await);
        }
        if !ran && error.state_in(&["54000", "54001"]) {
            return Ok(exchange.refuse(Outcome::BodyTooLarge).await);
        }
        exchange.log(&error);
        if error.is_unavailable() {
            if exchange.route.unprotected_without_database && !ran {
                return self.run_unprotected(request).await;
            }
            return Ok(exchange.refuse_with(Outcome::Unavailable, 0, Some(1.0)).await);
        }
        let outcome = if error.state_in(&["54000"]) { Outcome::AnswerTooLarge } else { Outcome::Internal };
        Ok(exchange.problem(outcome, None).await)
    }

    /// The handler runs without a transaction, because there is none, and with a claim that has no record.
    async fn run_unprotected(&self, mut request: Request) -> Ran<R, S::Error> {
        request.unprotected = true;
        let info = Info::of(&request, 0);
        let given = match self.exchange.kind {
            Kind::Transactional => Given::Nothing,
            Kind::Leased => Given::Claim(Claim::unprotected(&self.exchange.store, Arc::new(request))),
        };
        let Work { answer, failure, .. } = self.run(given, info).await;
        match failure {
            Some(failure) => {
                self.exchange.log(&failure);
                self.failed(answer).await
            }
            None => answer.map(|response| self.exchange.with_key(response)),
        }
    }

    /// Runs the handler once.
    fn run(&self, given: Given, info: Info) -> impl Future<Output = Work<Ran<R, S::Error>>> + Send + use<'_, S, B, R> {
        let route = &self.exchange.route;
        if !self.exchange.ran.swap(true, Relaxed) {
            tell(route.on_execute.as_deref(), self.exchange.event(Outcome::Execute, info.attempt));
        }
        let default = if matches!(given, Given::Claim(_)) { 600 } else { 60 };
        let limit = route.handler_timeout.unwrap_or(Duration::from_secs(default));
        let tx = if let Given::Tx(tx) = &given { Some(tx.clone()) } else { None };
        let request = self.request(given, info);
        let mut inner = self.inner.clone();
        async move {
            let lost = async {
                match tx {
                    Some(tx) => tx.lost().await,
                    None => pending().await,
                }
            };
            let answered = async {
                match poll_fn(|cx| inner.poll_ready(cx)).await {
                    Ok(()) => Ok(self.take(inner.call(request).await?).await),
                    Err(error) => Err(error),
                }
            };
            let given_up = tokio::select! {
                biased;
                answered = answered => return answered.unwrap_or_else(|error| {
                    let failure = Some(Error::Work("the service has failed".into()));
                    Work { answer: Err(error), end: End::NotKept("the service has failed".into()), failure }
                }),
                () = sleep(limit) => Error::HandlerTimeout,
                () = lost => connection_lost(),
            };
            self.given_up(given_up).await
        }
    }

    /// The handler was dropped.
    async fn given_up(&self, failure: Error) -> Work<Ran<R, S::Error>> {
        let answer = match failure {
            Error::HandlerTimeout => self.exchange.problem(Outcome::HandlerLate, None).await,
            _ => self.exchange.problem(Outcome::Unavailable, Some(1.0)).await,
        };
        Work { answer: Ok(answer), end: End::NotKept(failure.to_string()), failure: Some(failure) }
    }

    fn request(&self, given: Given, info: Info) -> http::Request<B> {
        let mut parts = self.exchange.parts.clone();
        parts.headers.remove(header::TRANSFER_ENCODING);
        parts.headers.insert(header::CONTENT_LENGTH, self.body.len().into());
        parts.extensions.insert(info);
        match given {
            Given::Tx(tx) => drop(parts.extensions.insert(tx)),
            Given::Claim(claim) => drop(parts.extensions.insert(claim)),
            Given::Nothing => {}
        }
        http::Request::from_parts(parts, self.body.clone().into())
    }

    /// Reads the handler's answer, before it is sent.
    async fn take(&self, response: Response<R>) -> Work<Ran<R, S::Error>> {
        let route = &self.exchange.route;
        let (mut parts, body) = response.into_parts();
        let failure = parts.extensions.remove::<Failure>().map(Failure::into_error);
        answer::make_text(&mut parts.headers);
        let (body, answer, stored) = match read(body, route.max_answer_bytes).await {
            Ok(Read::Whole(bytes)) => {
                parts.headers.remove(header::CONTENT_LENGTH);
                let answer = Answer { status: parts.status, headers: parts.headers.clone(), body: bytes.clone() };
                let stored = Stored::of(&answer);
                (ResponseBody::whole(bytes), answer, stored)
            }
            Ok(Read::TooLarge(head, rest)) if route.omit_large_answers => {
                let answer = Answer { status: parts.status, headers: parts.headers.clone(), body: head.clone() };
                (ResponseBody::continued(head, rest), answer, Stored::status_alone(parts.status))
            }
            Ok(Read::TooLarge(..)) => {
                return self.spoilt(Outcome::AnswerTooLarge, "the answer is too large to be kept".into()).await;
            }
            Err(error) => return self.spoilt(Outcome::Internal, error.into()).await,
        };
        let keep = (route.keep)(parts.status) && parts.status >= StatusCode::OK;
        let reason = format!("status {}", parts.status.as_u16());
        let end = match route.verdict.as_ref().and_then(|verdict| verdict(&answer)) {
            Some(Verdict::Keep) => End::Keep(stored),
            Some(Verdict::Free) => End::Free(reason),
            Some(Verdict::Unknown) => End::Unknown(reason),
            None if keep => End::Keep(stored),
            None => End::NotKept(reason),
        };
        Work { answer: Ok(Response::from_parts(parts, body)), end, failure }
    }

    async fn spoilt(&self, outcome: Outcome, error: BoxError) -> Work<Ran<R, S::Error>> {
        let answer = problem(&self.exchange.store, &self.exchange.route.statuses, outcome, None).await;
        let mut response = Response::new(ResponseBody::whole(answer.body));
        *response.status_mut() = answer.status;
        *response.headers_mut() = answer.headers;
        Work { answer: Ok(response), end: End::NotKept(String::new()), failure: Some(Error::Work(error)) }
    }
}
