#![doc = include_str!("../README.md")]

mod answer;
#[cfg(feature = "axum")]
mod axum;
mod body;
mod caller;
mod claim;
mod connection;
mod contract;
mod error;
mod exchange;
mod form;
mod functions;
mod heartbeat;
mod identity;
mod key;
mod layer;
mod lease;
mod listener;
mod problem;
mod request;
mod route;
mod statements;
mod store;
mod transaction;
mod worker;

pub use answer::Answer;
pub use body::ResponseBody;
pub use caller::{Caller, NotFinal};
pub use claim::{Claim, Info};
pub use error::{Error, Failure, Refusal};
pub use functions::{leased, once, transactionally};
pub use key::{format_key, new_key, parse_key};
pub use layer::{IdempotencyLayer, IdempotencyService};
pub use lease::Lease;
pub use problem::Outcome;
pub use request::{Begun, Request};
pub use route::{Event, MissingKey, Route, Verdict, default_keep};
pub use store::Store;
pub use transaction::{Held, Tx};
pub use worker::{Done, Due, Worker, WorkerOptions};

/// Of [`Claim::lost`].
pub use tokio_util::sync::CancellationToken;
