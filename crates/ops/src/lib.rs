//! The device boundary: the fused steps a backend implements, and the types that cross it.

mod batch;
mod error;
mod ops;
mod rope;
mod sampling;
mod spec;
mod stage;
mod threads;
mod timed;

pub use batch::{BLOCK_POSITIONS, Keep, Limits, Rows, Span};
pub use error::OpsError;
pub use ops::{Ops, OpsResult};
pub use rope::Frequencies;
pub use sampling::{Adjust, Penalties, Sampling};
pub use spec::{
    Attention, Compressor, Dims, Drafter, Engram, EngramLayer, Expert, Ffn, Format, Hyper, Indexer,
    KvSource, LayerSpec, Linear, ModelSpec, Numerics, Scoring, Site, Yarn,
};
pub use stage::{Stage, TableRows, look_back};
pub use threads::{in_parts, share};
pub use timed::{StepTime, StepTimes, Timed};
