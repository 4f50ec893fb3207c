//! The CPU backend: thread team, SIMD dot products, and the fused steps over them.

pub mod simd;
pub mod team;
