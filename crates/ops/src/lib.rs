//! The device boundary: the fused steps a backend implements, and the types that cross it.

mod error;
mod sampling;

pub use error::OpsError;
pub use sampling::Sampling;
