//! A backend that notes what a pass decides, or what it launches.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use finback_gpu::GpuOps;
use finback_kernels::tape::Tape;
use finback_model::ModelRunner;
use finback_ops::{
    Adjust, Keep, Limits, ModelSpec, Ops, OpsResult, Penalties, Rows, Sampling, Site, Span,
};

use crate::load::ops;

/// What a watched backend notes.
#[derive(Default)]
pub struct Notes {
    /// Of the last row in the last pass: experts by layer.
    pub experts: Vec<Vec<usize>>,
    /// Compressed rows picked, by index source.
    pub picked: BTreeMap<usize, Vec<usize>>,
    /// Table rows, by Engram layer.
    pub engram_rows: BTreeMap<usize, Vec<u64>>,
    /// Streams after each layer.
    pub streams: Vec<Vec<f32>>,
    /// The launches that waited when choices or drafts were read.
    pub tapes: Vec<Tape>,
}

/// A backend whose passes are watched: their decisions, or else their tapes.
pub struct Watched {
    ops: GpuOps,
    spec: Arc<ModelSpec>,
    decisions: bool,
    rows: usize,
    routed: bool,
    notes: Arc<Mutex<Notes>>,
}

impl Watched {
    pub fn runner(
        spec: &Arc<ModelSpec>,
        slots: usize,
        decisions: bool,
    ) -> (ModelRunner, Arc<Mutex<Notes>>) {
        Self::over(ops(spec, slots), spec, decisions)
    }

    pub fn over(
        ops: GpuOps,
        spec: &Arc<ModelSpec>,
        decisions: bool,
    ) -> (ModelRunner, Arc<Mutex<Notes>>) {
        let (notes, own) = (Arc::new(Mutex::new(Notes::default())), spec.clone());
        let watched =
            Watched { ops, spec: own, decisions, rows: 0, routed: false, notes: notes.clone() };
        (ModelRunner::new(Box::new(watched), spec.clone()), notes)
    }

    fn note_tape(&mut self) {
        self.notes.lock().unwrap().tapes.push(self.ops.waiting().clone());
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.ops.finish().unwrap().text(), None);
        }
    }
}

macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        fn $name(&mut self, $($arg: $type),*) -> OpsResult {
            self.ops.$name($($arg),*)
        }
    )*};
}

impl Ops for Watched {
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
        let mut notes = self.notes.lock().unwrap();
        *notes = Notes { tapes: std::mem::take(&mut notes.tapes), ..Notes::default() };
        self.ops.begin(spans)
    }
    fn engram(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let last = rows.len() - 1;
        self.ops.engram(layer, rows)?;
        let found = self.ops.engram_rows(last).to_vec();
        self.notes.lock().unwrap().engram_rows.insert(layer, found);
        Ok(())
    }
    fn select(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.ops.select(layer, rows)?;
        if self.decisions {
            let picks = self.ops.picks(self.rows - 1)?.into_iter().map(|j| j as usize).collect();
            self.notes.lock().unwrap().picked.insert(layer, picks);
        }
        Ok(())
    }
    fn route(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let last = rows.len() - 1;
        self.ops.route(layer, rows)?;
        self.routed = self.decisions && layer < self.spec.layers.len();
        if self.routed {
            let routes = self.ops.routes(layer, last)?;
            let experts = routes.into_iter().map(|r| r.0 as usize).collect();
            self.notes.lock().unwrap().experts.push(experts);
        }
        Ok(())
    }
    fn hyper_out(&mut self, rows: Rows) -> OpsResult {
        self.ops.hyper_out(rows)?;
        if std::mem::take(&mut self.routed) {
            let streams = self.ops.streams(self.rows - 1)?;
            self.notes.lock().unwrap().streams.push(streams);
        }
        Ok(())
    }
    fn read_choices(&mut self, out: &mut Vec<Option<u32>>) -> OpsResult {
        self.note_tape();
        self.ops.read_choices(out)
    }
    fn read_drafts(&mut self, tokens: &mut Vec<u32>, confidence: &mut Vec<f32>) -> OpsResult {
        self.note_tape();
        self.ops.read_drafts(tokens, confidence)
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
        fn read_logits(at: usize, out: &mut Vec<f32>);
        fn read_state(slot: usize, length: usize, blocks: &[u32], out: &mut Vec<u8>);
    }
}
