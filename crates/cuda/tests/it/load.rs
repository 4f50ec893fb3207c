//! Checkpoints to runners on the device, under the names that the CPU backend's tests use.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_cuda::Options;
use finback_gpu::GpuOps;
use finback_kernels::device::Device;
use finback_model::{Choice, Config, ModelRunner, Runner, SlotId, Window, spec};
use finback_ops::{Limits, ModelSpec, Numerics, Sampling};

/// The device of this machine. Where there is none the whole process says so and ends well: a test
/// cannot be left out once it runs.
pub fn device() -> Box<dyn Device> {
    let kernels = std::env::temp_dir().join("finback-test-kernels");
    match finback_cuda::open(&Options { kernels: Some(kernels), tensor_attention: true }) {
        Ok(device) => Box::new(device),
        Err(error) if finback_cuda::about().is_err() => {
            let text = format!("all tests of this file are left out: {error}\n");
            // Written past the test's own capture, which is lost here.
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            std::process::exit(0);
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn spec_of(dir: &Path, numerics: Numerics) -> Arc<ModelSpec> {
    let config = Config::load(dir).unwrap();
    let map = std::fs::read(dir.join("engram_token_map.json")).ok();
    let map = map.map(|text| serde_json::from_slice(&text).unwrap());
    let ck = Checkpoint::open(dir).unwrap();
    Arc::new(spec::load(&ck, &config, map, numerics).unwrap())
}

pub fn limits(slots: usize) -> Limits {
    let (rows, context) = (160, 1024);
    Limits { slots, rows, logit_rows: ModelRunner::logit_rows(slots), context, blocks: slots * 4 }
}

/// The CPU backend's tests say how many threads and which instruction set; a GPU has neither.
pub fn ops(spec: &Arc<ModelSpec>, slots: usize, _threads: usize, _isa: Isa) -> GpuOps {
    GpuOps::new(spec.clone(), limits(slots), device(), &mut |_| ()).unwrap()
}

pub fn runner(name: &str, numerics: Numerics) -> ModelRunner {
    let spec = spec_of(&finback_testkit::checkpoint(name), numerics);
    ModelRunner::new(Box::new(ops(&spec, 1, 1, Isa::detect())), spec)
}

pub fn on_the_cpu(spec: &Arc<ModelSpec>) -> ModelRunner {
    let options = CpuOptions { threads: 1, isa: Isa::detect() };
    let ops = CpuOps::new(spec.clone(), limits(1), options).unwrap();
    ModelRunner::new(Box::new(ops), spec.clone())
}

/// Runs a prompt in pieces of `piece` rows; the logits of its last `head` rows.
pub fn prompt(
    r: &mut dyn Runner,
    slot: SlotId,
    ids: &[u32],
    piece: usize,
    head: usize,
) -> Vec<Vec<f32>> {
    r.release(slot).unwrap();
    r.begin(slot, ids, ids.len() + 128, head).unwrap();
    while r.piece(slot, piece).unwrap() > 0 {}
    r.prompt_logits(slot).unwrap()
}

/// One token, kept.
pub fn step(r: &mut dyn Runner, slot: SlotId, token: u32) -> Choice {
    let window =
        Window { slot, tokens: &[token], sampling: Sampling::GREEDY, adjust: &[], logits: true };
    let choice = r.windows(&[window]).unwrap().remove(0).remove(0);
    r.keep(slot, 1).unwrap();
    choice
}
