//! Extractors, and the return types of axum's handlers.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, OptionalFromRequestParts},
    response::{IntoResponse, Response},
};
use http::request::Parts;

use crate::{Claim, Failure, Info, Tx};

/// The layer's entry in the request's extensions. It is absent if the route has no such layer, or the request
/// passed it unprotected; an `Option` is None then.
macro_rules! extractor {
    ($type:ty) => {
        impl<S: Sync> FromRequestParts<S> for $type {
            type Rejection = Failure;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
                let found = parts.extensions.get().cloned();
                found.ok_or_else(|| {
                    // Where there is no layer, this alone says so.
                    const NONE: &str = concat!("this request has no ", stringify!($type));
                    tracing::error!(path = parts.uri.path(), "idempotency: {NONE}: has its route the layer for it?");
                    NONE.into()
                })
            }
        }

        impl<S: Sync> OptionalFromRequestParts<S> for $type {
            type Rejection = Infallible;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
                Ok(parts.extensions.get().cloned())
            }
        }
    };
}

extractor!(Tx);
extractor!(Claim);
extractor!(Info);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.into_response_of()
    }
}
