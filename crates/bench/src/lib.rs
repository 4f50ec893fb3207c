//! Measures any OpenAI-compatible server over HTTP and judges its replies.
//!
//! A reply is judged by `token_sha`, the hash of its token ids in the reply's `finback` object. A
//! server that sends none can be timed; what could not be verified there is said, and a missing hash
//! never counts as equal. Nothing here knows the engine or the model.

mod ask;
pub mod cache;
pub mod capacity;
mod chart;
pub mod compare;
pub mod concurrent;
mod draw;
mod error;
pub mod fill;
mod gauges;
mod judge;
pub mod openai;
mod prompt;
mod reply;
pub mod soak;
mod sse;
mod stats;
mod table;
mod target;

pub use ask::Ask;
pub use error::{BenchError, BenchResult};
pub use judge::{Tally, Verdict, judge};
pub use reply::Reply;
pub use target::Target;

/// How far a benchmark is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// Parts done.
    pub done: u64,
    /// Parts in all.
    pub total: u64,
    /// What runs now.
    pub now: &'a str,
}

/// Hears of every [`Step`].
pub type Say<'a> = &'a mut dyn FnMut(Step<'_>);
