//! HTTP routes, streaming and errors.
//!
//! [`serve`] answers the OpenAI-compatible routes over an [`App`]: bodies become requests in
//! `finback-protocol`, replies come from the engine. A reply's headers are sent once the engine has
//! taken its request; a client that goes away drops its reply, which ends the work within a token.

mod app;
mod errors;
mod metrics;
mod routes;
mod run;
mod serve;
mod signals;
mod sse;

pub use app::{App, BODY_LIMIT};
pub use serve::{serve, serve_until};
pub use signals::Signals;
