//! `finback bench round`: what a round and a piece of a prompt cost on a device, at the release's widths,
//! over layers with random weights.
//!
//! The checkpoint is made of holes: the device draws what is large, so that 70 GB are there in seconds
//! and lie on no disk. Everything else is the product's own way, from the runner down.

mod decode;
mod launches;
mod prompt;
mod release;
mod report;
mod wanted;
mod watch;
mod work;

use std::sync::Arc;

use anyhow::Context;
use finback_checkpoint::{Checkpoint, read_file};
use finback_gpu::{ExpertsOn, GpuOps, Setup};
use finback_kernels::device::Device;
use finback_model::synth::{self, SynthOptions, Vocabulary};
use finback_model::{ModelRunner, spec};
use finback_ops::{BLOCK_POSITIONS, Limits, ModelSpec, Numerics};

use crate::backend::experts_on;
use crate::device;
use crate::outfile::Temporary;
use crate::progress::Progress;
use crate::settings::Values;
use crate::settings::contract::DEVICE;
use crate::settings::table::GPU_ATTENTION;
use launches::Blank;
pub use launches::Listed;
use report::Report;
use wanted::Wanted;
use watch::Watch;

/// The release's token ids.
const VOCABULARY: usize = 129_280;
/// Tensors of more bytes than this are drawn by the device.
const HOLE_BYTES: usize = 96 << 10;
/// Rows of an Engram column: few enough to lie in memory, as the device never sees more than are read.
const ENGRAM_VOCAB: usize = 4096;
/// Slots of the rounds of several.
const SLOTS: usize = 4;

/// Measures and prints.
///
/// # Errors
/// Settings that do not go together, no such device, too little memory, or the device's failure.
pub fn run(values: &Values) -> anyhow::Result<Report> {
    let wanted = Wanted::of(values)?;
    let (mut device, matmul) = open(values)?;
    let read = watch::read_rate(device.as_mut())?;
    let mut report = Report::new(values.get(&DEVICE), read, matmul);
    let directory = scratch()?;
    let spec = model(&wanted, &directory)?;
    let experts = experts_on(values);
    report.about(&spec, experts);
    let positions = wanted.positions();
    if let Some(depths) = wanted.depths {
        let limits = limits(1, wanted.piece, positions);
        let (mut runner, watch) = start(spec.clone(), limits, experts, device)?;
        prompt::measure(&mut runner, &watch, &spec, wanted.piece, depths, &mut report)?;
    } else {
        let limits = limits(SLOTS, wanted.piece, positions);
        let plan = decode::Plan { depth: wanted.depth, rounds: wanted.rounds, piece: wanted.piece };
        let (mut runner, watch) = start(spec.clone(), limits, experts, device)?;
        decode::measure(&mut runner, &watch, &spec, plan, false, &mut report)?;
        drop(runner);
        let device = watch.into_device()?;
        let same = decode::same_experts(spec);
        let (mut runner, watch) = start(same.clone(), limits, experts, device)?;
        decode::measure(&mut runner, &watch, &same, plan, true, &mut report)?;
    }
    Ok(report)
}

/// The launches of rounds of one row, six, and four slots of six, on a GPU that is not there.
///
/// # Errors
/// Settings that do not go together, or no room for the checkpoint's directory.
pub fn list(values: &Values) -> anyhow::Result<Vec<Listed>> {
    let wanted = Wanted::of(values)?;
    let directory = scratch()?;
    let spec = model(&wanted, &directory)?;
    let plan = decode::Plan { depth: wanted.depth, rounds: wanted.rounds, piece: wanted.piece };
    let limits = limits(SLOTS, plan.piece, wanted.positions());
    let device = Blank::new(values.get(&GPU_ATTENTION) != "portable");
    let (mut runner, watch) = start(spec.clone(), limits, experts_on(values), Box::new(device))?;
    decode::list(&mut runner, &watch, &spec, plan)
}

/// The checkpoint of holes.
fn model(wanted: &Wanted, directory: &Temporary) -> anyhow::Result<ModelSpec> {
    let mut options = if wanted.small { SynthOptions::default() } else { SynthOptions::release() };
    options.layers = wanted.layers;
    // Nobody trained it: it has the positions that are asked for.
    options.context = options.context.max(wanted.positions());
    options.hole_bytes = HOLE_BYTES;
    options.engram_vocab = options.engram_vocab.min(ENGRAM_VOCAB);
    options.drafts = false;
    let vocabulary = Vocabulary::bare(if wanted.small { 512 } else { VOCABULARY });
    let config = synth::write(directory.path(), &options, &vocabulary)?;
    let checkpoint = Checkpoint::open(directory.path())?;
    let file = directory.path().join("engram_token_map.json");
    let map = match config.engram {
        Some(_) => Some(
            serde_json::from_slice(&read_file(&file)?)
                .with_context(|| file.display().to_string())?,
        ),
        None => None,
    };
    Ok(spec::load(&checkpoint, &config, map, Numerics::RELEASE)?)
}

fn limits(slots: usize, rows: usize, positions: usize) -> Limits {
    Limits {
        slots,
        rows,
        logit_rows: ModelRunner::logit_rows(slots),
        context: positions,
        blocks: slots * positions.div_ceil(BLOCK_POSITIONS),
    }
}

/// The device, and its rate of matrix products where that can be measured.
fn open(values: &Values) -> anyhow::Result<(Box<dyn Device>, Option<f64>)> {
    let name = values.get(&DEVICE);
    if name != "cuda" {
        return Ok((device::open(values, "--device", &name)?, None));
    }
    let mut cuda = device::cuda(values, "--device")?;
    let rate = cuda.matmul_rate()?;
    cuda.clear();
    Ok((Box::new(cuda), rate))
}

fn start(
    spec: ModelSpec,
    limits: Limits,
    experts: ExpertsOn,
    device: Box<dyn Device>,
) -> anyhow::Result<(ModelRunner, Watch)> {
    let watch = Watch::over(device);
    let mut progress = Progress::bytes("drawing weights");
    let spec = Arc::new(spec);
    let setup = Setup { experts, draw_over: Some(HOLE_BYTES) };
    let (own, device) = (Arc::clone(&spec), watch.device());
    let ops = GpuOps::with(own, limits, setup, device, &mut |done| progress.at(done));
    progress.finish();
    Ok((ModelRunner::new(Box::new(ops?), spec), watch))
}

/// A directory for layers that nobody keeps.
fn scratch() -> anyhow::Result<Temporary> {
    let name = format!("finback-round-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    Temporary::create(directory.clone()).with_context(|| directory.display().to_string())
}

/// Token ids without an order.
struct Draw(u64);

impl Draw {
    fn tokens(&mut self, count: usize, vocab: usize) -> Vec<u32> {
        let mut next = || {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % (vocab as u64 - 16)) as u32
        };
        (0..count).map(|_| next()).collect()
    }
}
