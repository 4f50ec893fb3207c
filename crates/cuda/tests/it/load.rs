//! Checkpoints to runners on the device, under the names that the CPU backend's tests use.

use std::io::Write;
use std::sync::Arc;

use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_cuda::Options;
use finback_gpu::GpuOps;
use finback_kernels::device::{Device, DeviceError};
use finback_model::ModelRunner;
use finback_ops::{ModelSpec, Numerics};

#[path = "../../../cpu/tests/it/driven.rs"]
mod driven;
pub use driven::{limits, prompt, spec_of, step};

/// Of a thousand tokens along the stored replies, those that must be the stored ones: replies were not
/// chosen for having no row on the edge between two codes, and sums have other orders here.
pub const STORED_TOKENS: usize = 990;

/// Of 40 rows of release numerics, by their tokens: those within 0.01 of the oracle's, and those that choose its token. Tensor
/// cores cut sums of codes, and another last bit of these sums leaves the CPU backend as far away: some code is another one.
pub const RELEASE_ROWS: [(usize, usize, usize); 2] = [(1, 0, 32), (4, 0, 28)];

/// The device of this machine. Where there is none the whole process says so and ends well: a test
/// cannot be left out once it runs.
pub fn device() -> Box<dyn Device> {
    let kernels = std::env::temp_dir().join("finback-test-kernels");
    match finback_cuda::open(&Options {
        kernels: Some(kernels),
        tensor_attention: true,
        every_lane_signals: false,
    }) {
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

/// A runner over one device.
pub fn one_device(spec: &Arc<ModelSpec>) -> ModelRunner {
    ModelRunner::new(Box::new(ops(spec, 1, 1, Isa::detect())), spec.clone())
}

/// GPUs that share a model, attention by the kernels that this takes; `None`, and said so, where there are
/// fewer, or nothing that they gather by.
pub fn devices(count: usize) -> Option<Vec<Box<dyn Device>>> {
    drop(device());
    let kernels = std::env::temp_dir().join("finback-test-kernels");
    let options =
        Options { kernels: Some(kernels), tensor_attention: false, every_lane_signals: false };
    match finback_cuda::open_all(&options, count) {
        Ok(all) => {
            Some(all.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect())
        }
        Err(error @ DeviceError::Missing { .. }) => {
            let text = format!("{count} GPUs are left out: {error}\n");
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            None
        }
        Err(error) => panic!("{error}"),
    }
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
