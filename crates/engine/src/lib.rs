//! Slots, rounds and the request queue: one thread owns the device.
//!
//! [`Engine::start`] gives the thread a [`finback_model::Runner`]; [`Handle::submit`] sends it a
//! [`Request`] and returns the [`Reply`], whose [`Event`]s can be awaited or drained from a plain
//! thread. Dropping the reply cancels the request.
//!
//! A reply depends on its request alone: not on what runs beside it, nor on drafts.

mod adjust;
mod admit;
mod cache;
mod clock;
mod failure;
mod handle;
mod live;
mod prefill;
mod profile;
mod request;
mod round;
mod scheduler;
mod stats;
#[cfg(feature = "testing")]
pub mod testing;

pub use cache::{DiskOptions, Prefix};
pub use clock::Clock;
pub use handle::{CacheOptions, Engine, Handle, Load, Options, Parts, Reply, StartError};
pub use prefill::{Order, Prefill};
pub use profile::{HOST, Pass, Passes, Profile, Total};
pub use request::{
    DRAFT_POSITIONS, DraftCount, Event, FinishReason, Logprobs, Refusal, Request, Timings,
};
pub use stats::{Lookups, Stats};
