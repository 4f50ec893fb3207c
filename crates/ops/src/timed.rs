//! A backend whose steps are timed: for round profiles and benchmarks.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::batch::{Keep, Limits, Rows, Span};
use crate::ops::{Ops, OpsResult};
use crate::sampling::{Adjust, Penalties, Sampling};
use crate::spec::Site;

/// One step that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTime {
    /// The method of [`Ops`].
    pub step: &'static str,
    /// When it began.
    pub began: Instant,
    /// How long the host waited for it.
    pub took: Duration,
}

/// The steps of a [`Timed`] backend since they were last taken.
#[derive(Debug, Clone, Default)]
pub struct StepTimes(Arc<Mutex<Vec<StepTime>>>);

impl StepTimes {
    /// Takes what was recorded.
    pub fn take(&self) -> Vec<StepTime> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, step: &'static str, began: Instant) {
        let time = StepTime { step, began, took: began.elapsed() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }
}

/// Passes every call on and records how long it took.
pub struct Timed<O> {
    ops: O,
    times: StepTimes,
}

impl<O: Ops> Timed<O> {
    /// A timed backend, and where its times are read.
    pub fn new(ops: O) -> (Self, StepTimes) {
        let times = StepTimes::default();
        (Self { ops, times: times.clone() }, times)
    }
}

macro_rules! timed {
    ($(fn $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        fn $name(&mut self, $($arg: $type),*) -> OpsResult {
            let began = Instant::now();
            let result = self.ops.$name($($arg),*);
            self.times.add(stringify!($name), began);
            result
        }
    )*};
}

impl<O: Ops> Ops for Timed<O> {
    fn name(&self) -> &'static str {
        self.ops.name()
    }

    fn limits(&self) -> Limits {
        self.ops.limits()
    }

    fn was_staged(&self) -> Option<bool> {
        self.ops.was_staged()
    }

    timed! {
        fn begin(spans: &[Span<'_>]);
        fn begin_draft(spans: &[Span<'_>]);
        fn embed(rows: Rows);
        fn engram(layer: usize, rows: Rows);
        fn tap(layer: usize, rows: Rows);
        fn hyper_in(layer: usize, site: Site, rows: Rows);
        fn hyper_out(rows: Rows);
        fn project(layer: usize, kv: Rows, q: Rows);
        fn compress(layer: usize, rows: Rows);
        fn select(layer: usize, rows: Rows);
        fn attend(layer: usize, rows: Rows);
        fn attn_out(layer: usize, rows: Rows);
        fn route(layer: usize, rows: Rows);
        fn experts(layer: usize, rows: Rows);
        fn head(rows: Rows, at: usize);
        fn choose(at: usize, params: &[(Sampling, usize)], adjust: &Adjust);
        fn draft_context(rows: Rows);
        fn draft_head(rows: Rows, at: usize);
        fn draft_chain(at: usize, params: &[(Sampling, Penalties)], adjust: &Adjust);
        fn keep(keeps: &[Keep], computed_from: &[usize]);
        fn reset(slot: usize);
        fn copy_block(from: u32, to: u32);
        fn read_slot(slot: usize, out: &mut Vec<u8>);
        fn write_slot(slot: usize, bytes: &[u8]);
        fn read_rows(length: usize, blocks: &[u32], out: &mut Vec<u8>);
        fn write_rows(length: usize, blocks: &[u32], bytes: &[u8]);
        fn write_logits(at: usize, row: &[f32]);
        fn stage(slot: usize, start: usize, before: &[u32], tokens: &[u32]);
        fn read_choices(out: &mut Vec<Option<u32>>);
        fn read_logits(at: usize, out: &mut Vec<f32>);
        fn read_drafts(tokens: &mut Vec<u32>, confidence: &mut Vec<f32>);
        fn read_state(slot: usize, length: usize, blocks: &[u32], out: &mut Vec<u8>);
    }
}
