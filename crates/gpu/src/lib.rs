//! The [`Ops`](finback_ops::Ops) backend of every GPU, over a
//! [`Device`](finback_kernels::device::Device).
//!
//! [`GpuOps`] knows no device by name. It lays out weights, state and workspace in the device's memory,
//! writes what varies from pass to pass to fixed addresses when a pass begins, and turns each step into
//! launches of the kernels of `finback-kernels`. A decode round's launches go to a tape, which is the
//! same bytes for the same number of streams and rows: a device may record it and replay it.

mod batch;
mod bounds;
mod check;
mod hosted;
mod linear;
mod load;
mod maps;
mod memory;
mod ops;
mod parts;
mod peek;
mod products;
mod queue;
mod ranks;
mod ranks_ops;
mod rows;
mod sampling;
mod share;
mod start;
mod state;
mod steps;
mod weights;
mod wide;
mod work;

pub use hosted::ExpertsOn;
pub use ops::GpuOps;
pub use ranks::Ranks;
pub use start::{Needs, Setup};
