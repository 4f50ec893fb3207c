//! Slots, rounds and the request queue: one thread owns the device.
//!
//! [`Engine::start`] gives the thread a [`finback_model::Runner`]; [`Handle::submit`] sends it a
//! [`Request`] and returns the receiving end of the reply's [`Event`]s. Dropping that end cancels.

mod request;

pub use request::{Event, FinishReason, Refusal, Request, Timings};
