//! DeepSeek-V4.1: config, tensor names, layer plan, the forward pass over the device boundary, the oracle.

pub mod config;
pub mod engram;
mod error;
mod forward;
pub mod inspect;
mod model_runner;
pub mod names;
pub mod plan;
pub mod pool;
#[cfg(any(test, feature = "reference"))]
pub mod reference;
pub mod runner;
pub mod spec;
pub mod synth;
mod weights;

pub use config::Config;
pub use error::{LoadError, LoadResult};
pub use model_runner::{ModelRunner, WINDOW_ROWS};
pub use runner::{
    Choice, Draft, DraftRequest, Runner, RunnerError, RunnerInfo, RunnerResult, SlotId, Snapshot,
    SnapshotId, Staged, Start, Window,
};
pub use weights::{Weights, check_scales};
