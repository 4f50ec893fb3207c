//! DeepSeek-V4.1: config, tensor names, layer plan, the forward pass over the device boundary, the oracle.

mod forward;
mod model_runner;
pub mod runner;
pub use model_runner::{ModelRunner, WINDOW_ROWS};
pub use runner::{
    Choice, Draft, DraftRequest, Runner, RunnerError, RunnerInfo, RunnerResult, SlotId, Window,
};
