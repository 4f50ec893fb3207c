//! The plan's arithmetic against what the backend really allocates.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_model::inspect::StateBytes;
use finback_model::synth::{self, SynthOptions, Vocabulary};
use finback_model::{DraftRequest, ModelRunner, Runner, Window, spec};
use finback_ops::{Limits, Numerics, Penalties, Sampling};

/// Counts what is allocated.
struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Prompt, drafts and a full window on every slot.
fn work(runner: &mut ModelRunner, slots: usize, prompt: usize) {
    let ids: Vec<u32> = (0..prompt as u32).map(|i| i * 7919 % 700).collect();
    for slot in 0..slots {
        runner.begin(slot, &ids, prompt + 64, 1).unwrap();
        runner.stage(slot, 0, 256).unwrap();
        runner.stage(slot, 256, 256).unwrap();
    }
    for slot in 0..slots {
        while runner.piece(slot, 256).unwrap() > 0 {}
        runner.finish(slot, Sampling::GREEDY, &[], false).unwrap();
    }
    let drafts: Vec<_> = (0..slots)
        .map(|slot| DraftRequest {
            slot,
            anchor: 5,
            sampling: Sampling::GREEDY,
            adjust: &[],
            penalties: Penalties::default(),
        })
        .collect();
    runner.draft(&drafts).unwrap();
    let windows: Vec<_> = (0..slots)
        .map(|slot| Window {
            slot,
            tokens: &ids[..16],
            sampling: Sampling::GREEDY,
            adjust: &[],
            logits: false,
        })
        .collect();
    runner.windows(&windows).unwrap();
    for slot in 0..slots {
        runner.keep(slot, 16).unwrap();
    }
}

#[test]
fn memory_is_what_the_plan_says() {
    for (hidden, experts, topk) in [(512, 8, 2), (256, 24, 6)] {
        let dir = finback_testkit::temp_dir();
        let options = SynthOptions {
            hidden,
            experts,
            experts_per_token: topk,
            drafts: true,
            ..SynthOptions::default()
        };
        let config = synth::write(dir.path(), &options, &Vocabulary::bare(704)).unwrap();
        let checkpoint = Checkpoint::open(dir.path()).unwrap();
        let distinct = config.engram.as_ref().map_or(1, |e| e.compressed_vocab_size as u32);
        let map = (0..704).map(|id| id.min(distinct - 1)).collect();
        let spec = spec::load(&checkpoint, &config, Some(map), Numerics::RELEASE).unwrap();
        let spec = Arc::new(spec);
        let (slots, blocks) = (2, 48);
        let logit_rows = ModelRunner::logit_rows(slots);
        let limits = Limits { slots, rows: 256, logit_rows, context: 8192, blocks };
        let options = CpuOptions { threads: 2, isa: Isa::detect() };
        let state = StateBytes::of(&config);
        let stream = state.rings + state.draft_rings + state.open_groups;
        let planned = CpuOps::workspace_bytes(&spec, &limits, options)
            + slots as u64 * stream
            + blocks as u64 * state.block;

        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let ops = CpuOps::new(spec.clone(), limits, options).unwrap();
        let mut runner = ModelRunner::new(Box::new(ops), spec);
        work(&mut runner, slots, 600);
        let taken = PEAK.load(Ordering::Relaxed) - before;
        let ratio = taken as f64 / planned as f64;
        assert!((0.98..=1.02).contains(&ratio), "{taken} bytes taken, {planned} planned");
    }
}
