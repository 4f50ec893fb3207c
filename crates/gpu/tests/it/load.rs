//! Checkpoints to runners.

use std::path::Path;
use std::sync::Arc;

use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_gpu::GpuOps;
use finback_kernels::device::{Device, emu};
use finback_kernels::seated::emu_group;
use finback_model::ModelRunner;
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_ops::{ModelSpec, Numerics};

#[path = "../../../cpu/tests/it/driven.rs"]
mod driven;
pub use driven::{limits, prompt, spec_of, step};

pub fn stored(name: &str, numerics: Numerics) -> Arc<ModelSpec> {
    spec_of(&finback_testkit::checkpoint(name), numerics)
}

pub fn ops(spec: &Arc<ModelSpec>, slots: usize) -> GpuOps {
    GpuOps::new(spec.clone(), limits(slots), emu().unwrap(), &mut |_| ()).unwrap()
}

pub fn runner(spec: &Arc<ModelSpec>, slots: usize) -> ModelRunner {
    ModelRunner::new(Box::new(ops(spec, slots)), spec.clone())
}

/// A runner over one device.
pub fn one_device(spec: &Arc<ModelSpec>) -> ModelRunner {
    runner(spec, 1)
}

/// Devices that share a model.
pub fn devices(count: usize) -> Option<Vec<Box<dyn Device>>> {
    Some(emu_group(count).unwrap())
}

pub fn on_the_cpu(spec: &Arc<ModelSpec>, slots: usize) -> ModelRunner {
    let options = CpuOptions { threads: 1, isa: Isa::detect() };
    let ops = CpuOps::new(spec.clone(), limits(slots), options).unwrap();
    ModelRunner::new(Box::new(ops), spec.clone())
}

/// A checkpoint with a layer of every kind, as small as the packed rows let it be.
pub fn tiny(numerics: Numerics) -> Arc<ModelSpec> {
    let dir = finback_testkit::temp_dir();
    write_tiny(dir.path());
    spec_of(dir.path(), numerics)
}

/// The files of [`tiny`].
pub fn write_tiny(dir: &Path) {
    let mut options = SynthOptions {
        seed: 5,
        hidden: 64,
        heads: 2,
        head_dim: 32,
        rope_dim: 16,
        q_rank: 32,
        o_rank: 16,
        window: 8,
        index_heads: 2,
        index_dim: 32,
        index_topk: 6,
        experts: 6,
        experts_per_token: 2,
        intermediate: 32,
        engram_vocab: 16,
        engram_heads: 2,
        ..SynthOptions::default()
    };
    // Few blocks, so that the second level of selection leaves rows out.
    options.set.insert("candidate_topk_blocks".into(), 2.into());
    options.set.insert("candidate_block_size".into(), 4.into());
    write(dir, &options, &Vocabulary::bare(VOCAB)).unwrap();
}

/// Token ids of [`tiny`].
pub const VOCAB: usize = 72;

/// Some ids of [`tiny`].
pub fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 7 + i * 13 + 5) % (VOCAB as u32 - 4) + 3).collect()
}

pub fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}
