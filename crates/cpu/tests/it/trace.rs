//! What rows decide on their way, layer by layer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use finback_cpu::CpuOps;
use finback_cpu::simd::Isa;
use finback_model::{ModelRunner, Runner, Window};
use finback_ops::{
    Adjust, Keep, Limits, ModelSpec, Numerics, Ops, OpsResult, Penalties, Rows, Sampling, Site,
    Span,
};
use finback_testkit::{CHECKPOINTS, cases, logits};

use crate::load::{ops, spec_of};

/// The last row's decisions in the last pass.
#[derive(Default)]
pub struct Trace {
    pub experts: Vec<Vec<usize>>,
    pub picked: BTreeMap<usize, Vec<usize>>,
    pub engram_rows: BTreeMap<usize, Vec<u64>>,
    pub streams: Vec<Vec<f32>>,
}

/// A backend that notes the last row of every target pass.
pub struct Traced {
    ops: CpuOps,
    spec: Arc<ModelSpec>,
    rows: usize,
    routed: bool,
    trace: Arc<Mutex<Trace>>,
}

impl Traced {
    pub fn runner(spec: &Arc<ModelSpec>) -> (ModelRunner, Arc<Mutex<Trace>>) {
        let trace = Arc::new(Mutex::new(Trace::default()));
        let (ops, spec) = (ops(spec, 1, 1, Isa::detect()), spec.clone());
        let traced =
            Traced { ops, spec: spec.clone(), rows: 0, routed: false, trace: trace.clone() };
        (ModelRunner::new(Box::new(traced), spec), trace)
    }
}

macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        fn $name(&mut self, $($arg: $type),*) -> OpsResult {
            self.ops.$name($($arg),*)
        }
    )*};
}

impl Ops for Traced {
    fn name(&self) -> &'static str {
        self.ops.name()
    }
    fn limits(&self) -> Limits {
        self.ops.limits()
    }
    fn was_staged(&self) -> Option<bool> {
        self.ops.was_staged()
    }
    fn begin(&mut self, spans: &[Span<'_>]) -> OpsResult {
        self.rows = spans.iter().map(|s| s.tokens.len()).sum();
        *self.trace.lock().unwrap() = Trace::default();
        self.ops.begin(spans)
    }
    fn engram(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let last = rows.len() - 1;
        self.ops.engram(layer, rows)?;
        let found = self.ops.engram_rows(last).to_vec();
        self.trace.lock().unwrap().engram_rows.insert(layer, found);
        Ok(())
    }
    fn select(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.ops.select(layer, rows)?;
        let picks = self.ops.picks(self.rows - 1).iter().map(|&j| j as usize).collect();
        self.trace.lock().unwrap().picked.insert(layer, picks);
        Ok(())
    }
    fn route(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let last = rows.len() - 1;
        self.ops.route(layer, rows)?;
        let experts = self.ops.routes(layer, last).iter().map(|r| r.0 as usize).collect();
        self.routed = layer < self.spec.layers.len();
        if self.routed {
            self.trace.lock().unwrap().experts.push(experts);
        }
        Ok(())
    }
    fn hyper_out(&mut self, rows: Rows) -> OpsResult {
        self.ops.hyper_out(rows)?;
        if std::mem::take(&mut self.routed) {
            let streams = self.ops.streams(self.rows - 1).to_vec();
            self.trace.lock().unwrap().streams.push(streams);
        }
        Ok(())
    }
    pass_on! {
        fn begin_draft(spans: &[Span<'_>]);
        fn embed(rows: Rows);
        fn tap(layer: usize, rows: Rows);
        fn hyper_in(layer: usize, site: Site, rows: Rows);
        fn project(layer: usize, kv: Rows, q: Rows);
        fn compress(layer: usize, rows: Rows);
        fn attend(layer: usize, rows: Rows);
        fn attn_out(layer: usize, rows: Rows);
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

/// Runs a prompt whose last row runs in a window, with every layer; `note` sees each row's trace.
pub fn run_rows(r: &mut ModelRunner, ids: &[u32], mut note: impl FnMut(usize)) {
    r.begin(0, &ids[..1], ids.len() + 16, 1).unwrap();
    r.piece(0, 1).unwrap();
    note(0);
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    for (i, &id) in ids.iter().enumerate().skip(1) {
        let window = Window {
            slot: 0,
            tokens: &[id],
            sampling: Sampling::GREEDY,
            adjust: &[],
            logits: false,
        };
        r.windows(&[window]).unwrap();
        note(i);
        r.keep(0, 1).unwrap();
    }
    r.release(0).unwrap();
}

#[test]
fn the_last_row_decides_what_the_stored_trace_says() {
    for name in CHECKPOINTS {
        let spec = spec_of(&finback_testkit::checkpoint(name), Numerics::PLAIN);
        let (mut r, trace) = Traced::runner(&spec);
        for case in cases().into_iter().filter(|c| c.checkpoint == name) {
            run_rows(&mut r, &case.prompt, |_| ());
            let got = trace.lock().unwrap();
            assert_eq!(got.experts, case.trace.experts, "{}", case.name);
            assert_eq!(got.picked, case.trace.picked, "{}", case.name);
            assert_eq!(got.engram_rows, case.trace.engram_rows, "{}", case.name);
            let want = logits(&format!("{}/streams", case.name)).unwrap().values;
            let streams = got.streams.concat();
            assert_eq!(streams.len(), want.len());
            for (i, (a, b)) in streams.iter().zip(&want).enumerate() {
                assert!((f64::from(*a) - b).abs() < 1e-3, "{} stream value {i}", case.name);
            }
        }
    }
}
