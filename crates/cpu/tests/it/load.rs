//! Checkpoints to runners.

use std::sync::Arc;

use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_model::ModelRunner;
use finback_ops::{ModelSpec, Numerics};

#[path = "driven.rs"]
mod driven;
pub use driven::{limits, prompt, spec_of, step};

/// Of a thousand tokens along the stored replies, those that are the stored ones.
pub const STORED_TOKENS: usize = 1000;

/// Of 40 rows of release numerics, by their tokens: those within 0.01 of the oracle's, and those that choose its token.
pub const RELEASE_ROWS: [(usize, usize, usize); 2] = [(1, 34, 38), (4, 20, 36)];

pub fn ops(spec: &Arc<ModelSpec>, slots: usize, threads: usize, isa: Isa) -> CpuOps {
    CpuOps::new(spec.clone(), limits(slots), CpuOptions { threads, isa }).unwrap()
}

pub fn runner(name: &str, numerics: Numerics) -> ModelRunner {
    let spec = spec_of(&finback_testkit::checkpoint(name), numerics);
    ModelRunner::new(Box::new(ops(&spec, 1, 1, Isa::detect())), spec)
}
