//! The kernels of tensor cores under a model, emulated: the smallest model whose widths take all of
//! them, held to the row rule, to kept states and to the dialect's kernels.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use finback_gpu::GpuOps;
use finback_kernels::device::{Device, DeviceError, Findings, Launch, emu, emu_with_tiles};
use finback_kernels::manifest::Kernel;
use finback_kernels::tape::Tape;
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_model::{Draft, DraftRequest, ModelRunner, Runner, Start, Window};
use finback_ops::{Limits, ModelSpec, Numerics, Penalties, Sampling};

use crate::load::{VOCAB, bits, ids, prompt, spec_of, step};
use crate::watched::Watched;

/// Rows that attention takes in one launch, and more positions than a window has.
const LONG: usize = 36;

fn spec() -> Arc<ModelSpec> {
    let dir = finback_testkit::temp_dir();
    let mut options = SynthOptions {
        seed: 3,
        hidden: 128,
        heads: 64,
        head_dim: 512,
        rope_dim: 64,
        q_rank: 128,
        o_groups: 8,
        o_rank: 32,
        window: 16,
        index_heads: 32,
        index_dim: 128,
        index_topk: 6,
        experts: 6,
        experts_per_token: 2,
        intermediate: 128,
        engram_vocab: 16,
        engram_heads: 2,
        engram_dim: 64,
        ..SynthOptions::default()
    };
    options.set.insert("candidate_topk_blocks".into(), 2.into());
    options.set.insert("candidate_block_size".into(), 4.into());
    write(dir.path(), &options, &Vocabulary::bare(VOCAB)).unwrap();
    spec_of(dir.path(), Numerics::RELEASE)
}

/// The host as a device of so many processors, and how often it ran each kernel. What it notices fails the test.
struct Named {
    inner: Box<dyn Device>,
    width: u32,
    seen: Seen,
    /// Whether what is aside runs as early as it may, not as late.
    early: bool,
}

impl Device for Named {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn allocate(&mut self, bytes: usize) -> Result<u64, DeviceError> {
        self.inner.allocate(bytes)
    }
    fn free_memory(&mut self) -> Result<Option<usize>, DeviceError> {
        self.inner.free_memory()
    }
    fn clear(&mut self) {
        self.inner.clear();
    }
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(address, bytes)
    }
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(self.inner.finish()?.text(), None);
        self.inner.read(address, out)
    }
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), DeviceError> {
        *self.seen.lock().unwrap().entry(launch.kernel.name).or_default() += 1;
        self.inner.launch(launch)
    }
    fn launch_all(&mut self, tape: &Tape) -> Result<(), DeviceError> {
        if self.early {
            return tape.launches().try_for_each(|launch| self.launch(&launch));
        }
        for launch in tape.launches() {
            *self.seen.lock().unwrap().entry(launch.kernel.name).or_default() += 1;
        }
        self.inner.launch_all(tape)
    }
    fn finish(&mut self) -> Result<Findings, DeviceError> {
        self.inner.finish()
    }
    fn has(&self, kernel: &Kernel) -> bool {
        self.inner.has(kernel)
    }
    fn width(&self) -> u32 {
        self.width
    }
}

type Seen = Arc<Mutex<BTreeMap<&'static str, usize>>>;

fn ops(device: Box<dyn Device>, spec: &Arc<ModelSpec>, slots: usize) -> GpuOps {
    let (rows, context) = (48, 256);
    let logit_rows = ModelRunner::logit_rows(slots);
    let limits = Limits { slots, rows, logit_rows, context, blocks: slots * 3 };
    GpuOps::new(spec.clone(), limits, device, &mut |_| ()).unwrap()
}

fn over(inner: Box<dyn Device>, spec: &Arc<ModelSpec>, slots: usize) -> (ModelRunner, Seen) {
    wide(inner, 1, spec, slots)
}

fn wide(
    inner: Box<dyn Device>,
    width: u32,
    spec: &Arc<ModelSpec>,
    slots: usize,
) -> (ModelRunner, Seen) {
    let seen = Seen::default();
    let device = Box::new(Named { inner, width, seen: seen.clone(), early: false });
    (ModelRunner::new(Box::new(ops(device, spec, slots)), spec.clone()), seen)
}

#[test]
fn pieces_single_rows_and_company_equal_the_whole_prompt() {
    let (spec, ids) = (spec(), ids(LONG));
    let (mut r, seen) = over(emu_with_tiles().unwrap(), &spec, 2);
    let rows = prompt(&mut r, 0, &ids, LONG, 2);
    let (whole, state) = (bits(&rows).pop(), r.state(0).unwrap());
    let products = ["fp8", "fp4", "bf16", "lifted"].map(|format| format!("tile_{format}_many"));
    let others = ["tile_attend_many", "tile_index_many", "tile_hyper_mix"];
    for name in products.iter().map(String::as_str).chain(others) {
        assert!(seen.lock().unwrap().contains_key(name), "{name}: {seen:?}");
    }
    // The same rows in pieces, the last ones alone beside another slot's windows.
    let (start, other) = (LONG - 4, 5);
    for (slot, rows) in [(0, start), (1, other)] {
        prompt(&mut r, slot, &ids[..rows], 6, 1);
        r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
    }
    let sampling = Sampling::GREEDY;
    let window = |slot, tokens| Window { slot, tokens, sampling, adjust: &[], logits: true };
    let mut last = Vec::new();
    for (i, id) in ids[start..].iter().enumerate() {
        let beside = &ids[other + 2 * i..other + 2 * (i + 1)];
        let choices = r.windows(&[window(0, std::slice::from_ref(id)), window(1, beside)]).unwrap();
        r.keep(0, 1).unwrap();
        r.keep(1, 2).unwrap();
        last = choices[0][0].logits.clone().unwrap();
    }
    assert!(bits(&[last]).pop() == whole, "single rows: logits");
    assert!(r.state(0).unwrap() == state, "single rows: state");
    let (penalties, adjust) = (Penalties::default(), &[]);
    let drafts = [0, 1].map(|slot| DraftRequest { slot, anchor: 9, sampling, adjust, penalties });
    let both = r.draft(&drafts).unwrap();
    let alone = r.draft(&drafts[..1]).unwrap();
    let confidence = |draft: &Draft| bits(std::slice::from_ref(&draft.confidence));
    assert!(both[0].tokens == alone[0].tokens && confidence(&both[0]) == confidence(&alone[0]));
    for name in ["tile_attend_scores", "tile_attend_mix", "tile_group_routes", "tile_topk"] {
        assert!(seen.lock().unwrap().contains_key(name), "{name}: {seen:?}");
    }
    let few = ["few", "some"].map(|way| format!("tile_fp4_{way}"));
    assert!(few.iter().any(|name| seen.lock().unwrap().contains_key(name.as_str())), "{seen:?}");
}

#[test]
fn kept_states_go_on() {
    let (spec, ids) = (spec(), ids(12));
    let (mut r, _) = over(emu_with_tiles().unwrap(), &spec, 2);
    let kept = ids.len() - 2;
    prompt(&mut r, 0, &ids[..kept], LONG, 1);
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let snapshot = r.save(0).unwrap();
    for &id in &ids[kept..] {
        step(&mut r, 0, id);
    }
    let start = Start { from: Some(snapshot.id), ..Start::default() };
    r.start(1, &ids, ids.len() + 8, &start).unwrap();
    while r.piece(1, LONG).unwrap() > 0 {}
    r.finish(1, Sampling::GREEDY, &[], false).unwrap();
    assert!(r.state(1).unwrap() == r.state(0).unwrap());
}

#[test]
fn one_rows_experts_are_gated_by_their_product_where_a_device_has_room() {
    let (spec, ids) = (spec(), ids(5));
    let run = |width| {
        let (mut r, seen) = wide(emu_with_tiles().unwrap(), width, &spec, 1);
        prompt(&mut r, 0, &ids[..3], LONG, 1);
        r.finish(0, Sampling::GREEDY, &[], false).unwrap();
        let gates = || seen.lock().unwrap()["swiglu"];
        let before = gates();
        let rows: Vec<_> = ids[3..].iter().map(|&id| step(&mut r, 0, id).token).collect();
        (rows, r.state(0).unwrap(), gates() - before)
    };
    // A group for each of two experts, beside those that other products leave.
    let (narrow, wide) = (run(1), run(16));
    assert!(narrow.0 == wide.0 && narrow.1 == wide.1);
    // The shared experts' launches are left.
    assert_eq!(narrow.2, 2 * wide.2);
}

#[test]
fn layers_leave_what_the_dialects_kernels_leave() {
    let (spec, ids) = (spec(), ids(5));
    let run = |device: Box<dyn Device>| {
        let (mut r, notes) = Watched::over(ops(device, &spec, 1), &spec, true);
        prompt(&mut r, 0, &ids, LONG, 1);
        let notes = std::mem::take(&mut *notes.lock().unwrap());
        (notes.experts, notes.streams)
    };
    let (ours, theirs) = (run(emu_with_tiles().unwrap()), run(emu().unwrap()));
    // Layers with a window alone and with compressed rows. Later ones may route otherwise: weights of
    // attention have 17 bits here, so that an output may be rounded to its other neighbour in bf16.
    for layer in 0..5 {
        let (a, b) = (&ours.1[layer], &theirs.1[layer]);
        let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let most = b.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        assert!(far <= most / 16.0 && most > 0.5, "layer {layer}: {far} of {most}");
        assert_eq!(ours.0[layer], theirs.0[layer], "layer {layer}");
    }
}

#[test]
fn what_is_aside_may_run_early_or_late() {
    let (spec, ids) = (spec(), ids(3));
    let run = |taped: bool, early: bool| {
        let inner = emu_with_tiles().unwrap();
        let device = Box::new(Named { inner, width: 1, seen: Seen::default(), early });
        let mut ops = ops(device, &spec, 1);
        if !taped {
            ops.tape_up_to(0);
        }
        let mut r = ModelRunner::new(Box::new(ops), spec.clone());
        let mut rows = prompt(&mut r, 0, &ids[..2], LONG, 2);
        r.finish(0, Sampling::GREEDY, &[], false).unwrap();
        rows.push(step(&mut r, 0, ids[2]).logits.unwrap());
        (bits(&rows), r.state(0).unwrap())
    };
    // Nothing is aside where nothing is taped.
    let wanted = run(false, false);
    assert!(run(true, false) == wanted, "late");
    assert!(run(true, true) == wanted, "early");
}
