//! DeepSeek-V4.1: config, tensor names, layer plan, the forward pass over the device boundary, the oracle.

pub mod runner;
pub use runner::{
    Choice, Draft, DraftRequest, Runner, RunnerError, RunnerInfo, RunnerResult, SlotId, Window,
};
