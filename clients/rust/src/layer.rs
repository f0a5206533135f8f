//! The layer, as tower uses it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    ResponseBody, Route, Store,
    error::BoxError,
    exchange::{Exchange, Kind},
};

impl Store {
    /// Protects a route whose work is SQL. Its handler finds a [`Tx`](crate::Tx) in the request's extensions;
    /// its changes there commit with the answer.
    ///
    /// # Panics
    ///
    /// If an option of the route can't be meant.
    #[must_use]
    pub fn transactional(&self, route: Route) -> IdempotencyLayer {
        self.layer(route, Kind::Transactional)
    }

    /// Protects a route that calls other services. Its handler finds a [`Claim`](crate::Claim) in the request's
    /// extensions.
    ///
    /// # Panics
    ///
    /// If an option of the route can't be meant.
    #[must_use]
    pub fn leased(&self, route: Route) -> IdempotencyLayer {
        self.layer(route, Kind::Leased)
    }

    fn layer(&self, route: Route, kind: Kind) -> IdempotencyLayer {
        if let Some(fault) = route.fault() {
            panic!("idempotency: {fault}");
        }
        IdempotencyLayer { store: self.clone(), route: Arc::new(route), kind }
    }
}

/// Made by [`Store::transactional`] and [`Store::leased`].
#[derive(Clone, Debug)]
pub struct IdempotencyLayer {
    store: Store,
    route: Arc<Route>,
    kind: Kind,
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService { layer: self.clone(), inner }
    }
}

/// A service behind an [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    layer: IdempotencyLayer,
    inner: S,
}

type Answering<R, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<R>>, E>> + Send>>;

impl<S, B, R> Service<Request<B>> for IdempotencyService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + Sync + 'static,
    S::Error: Send + Sync + 'static,
    S::Future: Send,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError> + Send,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError> + Send,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = Answering<R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let IdempotencyLayer { store, route, kind } = self.layer.clone();
        // The one that is ready is taken.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if !route.methods.contains(request.method()) {
            let answer = inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(ResponseBody::untouched)) });
        }
        let (parts, body) = request.into_parts();
        Box::pin(Exchange::new(store, route, kind, parts).serve(inner, body))
    }
}
