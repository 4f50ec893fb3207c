//! The CPU backend: thread team, SIMD dot products, and the fused steps over them.
//!
//! [`CpuOps`] implements [`finback_ops::Ops`]. Every reduction follows `numerics::order`, on every
//! instruction set and any number of threads: a step splits its rows or its output channels over
//! the team, never a sum.

mod attend;
mod device;
mod kernel;
pub mod linear;
mod ops;
mod par;
mod rope;
mod row;
pub mod simd;
mod size;
mod state;
mod steps;
pub mod team;
mod topk;
mod work;

pub use ops::{CpuOps, CpuOptions};
