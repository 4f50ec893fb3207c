//! The backend itself: what it owns, and [`Ops`] over its steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use finback_numerics::sample::Scratch;
use finback_ops::{
    Adjust, BLOCK_POSITIONS, Frequencies, Keep, Limits, ModelSpec, Ops, OpsError, OpsResult,
    Penalties, Rows, Sampling, Site, Span, Stage,
};

use crate::attend::Keys;
use crate::device::Device;
use crate::row::MAX_HC;
use crate::simd::Isa;
use crate::state::{Layout, State};
use crate::steps::experts::Groups;
use crate::steps::select::Selector;
use crate::team::TeamError;
use crate::work::Work;

/// The backend's name.
pub(crate) const NAME: &str = "cpu";

/// The CPU backend: weights are read where they are mapped, everything else is allocated once.
pub struct CpuOps {
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) limits: Limits,
    pub(crate) device: Device,
    pub(crate) window_frequencies: Frequencies,
    pub(crate) compressed_frequencies: Frequencies,
    pub(crate) state: State,
    pub(crate) work: Work,
    pub(crate) stage: Stage,
    /// One a worker.
    pub(crate) keys: Vec<Keys>,
    /// One a worker.
    pub(crate) selectors: Vec<Selector>,
    /// One a worker.
    pub(crate) samplers: Vec<Scratch>,
    pub(crate) groups: Groups,
    /// Markov embeddings of a draft chain's step, `[spans, rank]`, and their logits, `[spans, vocab]`.
    pub(crate) markov: Vec<f32>,
    pub(crate) markov_logits: Vec<f32>,
    /// Per layer, per routed expert: whether its scales were checked.
    checked: Vec<Vec<AtomicBool>>,
}

/// How the backend runs.
#[derive(Debug, Clone, Copy)]
pub struct CpuOptions {
    /// Threads of the team, the caller's included.
    pub threads: usize,
    /// The instruction set.
    pub isa: Isa,
}

impl CpuOps {
    /// Allocates for the limits and starts the team.
    ///
    /// # Errors
    /// Sizes that the kernels cannot run, or threads that cannot start.
    pub fn new(
        spec: Arc<ModelSpec>,
        limits: Limits,
        options: CpuOptions,
    ) -> Result<Self, OpsError> {
        let dims = &spec.dims;
        if dims.hc > MAX_HC {
            return Err(OpsError::Unsupported {
                backend: NAME,
                step: "hyper-connections",
                reason: format!("hc_mult {} is over {MAX_HC}", dims.hc),
            });
        }
        let layout = Layout::new(&spec);
        let drafter = spec.drafter.as_ref();
        let most_keys = dims.window + dims.index_topk.max(drafter.map_or(0, |d| d.block));
        let most_rows = spec.sources.iter().map(|s| limits.context / s.ratio).max().unwrap_or(0);
        let layers = || spec.layers.iter().chain(spec.draft_layers());
        let topk = layers().map(|l| l.ffn.topk).max().unwrap_or(0);
        let experts = layers().map(|l| l.ffn.experts.len()).max().unwrap_or(0);
        let rank = drafter.map_or(0, |d| d.markov_embed.inp);
        let chains = if drafter.is_some() { limits.slots } else { 0 };
        Ok(Self {
            device: Device::new(&spec, limits.rows, options)?,
            window_frequencies: Frequencies::window(dims, spec.numerics),
            compressed_frequencies: Frequencies::compressed(dims, spec.numerics),
            work: Work::new(&spec, &limits, layout.window_row),
            stage: Stage::default(),
            keys: (0..options.threads).map(|_| Keys::new(most_keys, dims.head_dim)).collect(),
            selectors: (0..options.threads)
                .map(|_| Selector::new(most_rows, dims.index_dim))
                .collect(),
            samplers: (0..options.threads).map(|_| Scratch::default()).collect(),
            groups: Groups::new(limits.rows, topk, experts),
            markov: vec![0.0; chains * rank],
            markov_logits: vec![0.0; chains * dims.vocab],
            checked: layers()
                .map(|l| l.ffn.experts.iter().map(|_| AtomicBool::new(false)).collect())
                .collect(),
            state: State::new(layout, &limits),
            limits,
            spec,
        })
    }

    /// The streams `[hc, hidden]` of a row of the batch.
    pub fn streams(&self, row: usize) -> &[f32] {
        let width = self.spec.dims.hc * self.spec.dims.hidden;
        &self.work.streams[row * width..(row + 1) * width]
    }

    /// The compressed rows that a row of the batch attends to, ascending.
    pub fn picks(&self, row: usize) -> &[u32] {
        self.work.picks_of(row)
    }

    /// The experts and weights of the `index`-th row that the last [`Ops::route`] ran.
    pub fn routes(&self, layer: usize, index: usize) -> &[(u32, f32)] {
        let topk = self.spec.layer(layer).ffn.topk;
        &self.work.routes[index * topk..(index + 1) * topk]
    }

    /// The table rows of the `index`-th row that the last [`Ops::engram`] ran.
    pub fn engram_rows(&self, index: usize) -> &[u64] {
        let columns = self.spec.engram.as_ref().map_or(0, |e| e.columns());
        &self.work.engram_rows[index * columns..(index + 1) * columns]
    }

    /// Refuses an expert in use whose scales hold the NaN byte; each is read once.
    pub(crate) fn check_experts(&self, layer: usize) -> OpsResult {
        for group in &self.groups.used {
            let seen = &self.checked[layer][group.expert];
            if seen.load(Ordering::Relaxed) {
                continue;
            }
            let expert = &self.spec.layer(layer).ffn.experts[group.expert];
            for scale in
                [&expert.w1, &expert.w2, &expert.w3].iter().filter_map(|l| l.scale.as_ref())
            {
                OpsError::refuse_nan_scales(scale)?;
            }
            seen.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn check_blocks(&self, step: &'static str, blocks: &[u32]) -> OpsResult {
        match blocks.iter().find(|&&b| b as usize >= self.limits.blocks) {
            None => Ok(()),
            Some(b) => {
                let reason = format!("KV block {b}; the pool has {}", self.limits.blocks);
                Err(unsupported(step, reason))
            }
        }
    }

    /// A batch over the limits is the caller's mistake; it must not reach a kernel.
    fn check(&self, spans: &[Span<'_>]) -> OpsResult {
        let rows: usize = spans.iter().map(|s| s.tokens.len()).sum();
        let over = |reason: String| unsupported("begin", reason);
        if rows == 0 || rows > self.limits.rows {
            return Err(over(format!("{rows} rows; 1 to {} fit", self.limits.rows)));
        }
        for span in spans {
            let end = span.start + span.tokens.len();
            if span.slot >= self.limits.slots || end > self.limits.context {
                return Err(over(format!(
                    "slot {} to position {end}; there are {} slots of {} positions",
                    span.slot, self.limits.slots, self.limits.context
                )));
            }
            if let Some(id) = span.tokens.iter().find(|&&t| t as usize >= self.spec.dims.vocab) {
                return Err(over(format!(
                    "token id {id}; the vocabulary has {}",
                    self.spec.dims.vocab
                )));
            }
            self.check_blocks("begin", span.blocks)?;
        }
        Ok(())
    }
}

impl Ops for CpuOps {
    fn name(&self) -> &'static str {
        NAME
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn begin(&mut self, spans: &[Span<'_>]) -> OpsResult {
        self.check(spans)?;
        self.stage.begin(spans);
        let compressed = (!self.spec.sources.is_empty()).then_some(&self.compressed_frequencies);
        self.work.begin(spans, &self.window_frequencies, compressed);
        Ok(())
    }

    fn begin_draft(&mut self, spans: &[Span<'_>]) -> OpsResult {
        self.check(spans)?;
        self.stage.begin(&[]);
        self.work.begin(spans, &self.window_frequencies, None);
        Ok(())
    }

    fn embed(&mut self, rows: Rows) -> OpsResult {
        self.embed_step(rows)
    }

    fn engram(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.engram_step(layer, rows)
    }

    fn tap(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.tap_step(layer, rows)
    }

    fn hyper_in(&mut self, layer: usize, site: Site, rows: Rows) -> OpsResult {
        self.hyper_in_step(layer, site, rows)
    }

    fn hyper_out(&mut self, rows: Rows) -> OpsResult {
        self.hyper_out_step(rows)
    }

    fn project(&mut self, layer: usize, kv: Rows, q: Rows) -> OpsResult {
        self.project_step(layer, kv, q)
    }

    fn compress(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.compress_step(layer, rows)
    }

    fn select(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.select_step(layer, rows)
    }

    fn attend(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.attend_step(layer, rows)
    }

    fn attn_out(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.attn_out_step(layer, rows)
    }

    fn route(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.route_step(layer, rows)
    }

    fn experts(&mut self, layer: usize, rows: Rows) -> OpsResult {
        self.experts_step(layer, rows)
    }

    fn head(&mut self, rows: Rows, at: usize) -> OpsResult {
        self.head_step(rows, at)
    }

    fn choose(&mut self, at: usize, params: &[(Sampling, usize)], adjust: &Adjust) -> OpsResult {
        self.choose_step(at, params, adjust)
    }

    fn draft_context(&mut self, rows: Rows) -> OpsResult {
        self.draft_context_step(rows)
    }

    fn draft_head(&mut self, rows: Rows, at: usize) -> OpsResult {
        self.draft_head_step(rows, at)
    }

    fn draft_chain(
        &mut self,
        at: usize,
        params: &[(Sampling, Penalties)],
        adjust: &Adjust,
    ) -> OpsResult {
        self.draft_chain_step(at, params, adjust)
    }

    fn keep(&mut self, keeps: &[Keep], computed_from: &[usize]) -> OpsResult {
        for keep in keeps {
            let span = &self.work.spans[keep.span];
            let new = crate::state::NewRows {
                slot: span.slot,
                start: span.start,
                first: span.first,
                rows: keep.rows,
                window_rows: &self.work.window_rows,
                raw: &self.work.raw,
            };
            self.state.keep(&new, computed_from);
            let tokens = self.work.rows[span.first..span.first + keep.rows].iter().map(|r| r.token);
            self.state.remember(span.slot, tokens);
        }
        Ok(())
    }

    fn reset(&mut self, slot: usize) -> OpsResult {
        self.state.reset(slot);
        self.stage.clear(slot);
        Ok(())
    }

    fn copy_block(&mut self, from: u32, to: u32) -> OpsResult {
        self.check_blocks("copy_block", &[from, to])?;
        self.state.copy_block(from, to);
        Ok(())
    }

    fn read_slot(&mut self, slot: usize, out: &mut Vec<u8>) -> OpsResult {
        self.state.read_slot(slot, out);
        Ok(())
    }

    fn write_slot(&mut self, slot: usize, bytes: &[u8]) -> OpsResult {
        if self.state.write_slot(slot, bytes, self.spec.dims.vocab) {
            self.stage.clear(slot);
            return Ok(());
        }
        Err(unsupported("write_slot", format!("{} bytes are not of this model", bytes.len())))
    }

    fn read_rows(&mut self, length: usize, blocks: &[u32], out: &mut Vec<u8>) -> OpsResult {
        self.state.read_rows(length, blocks, out);
        Ok(())
    }

    fn write_rows(&mut self, length: usize, blocks: &[u32], bytes: &[u8]) -> OpsResult {
        let (wanted, found) = (self.state.rows_bytes(length), bytes.len());
        self.check_blocks("write_rows", blocks)?;
        if found != wanted || length > blocks.len() * BLOCK_POSITIONS {
            let reason = format!("{found} bytes of rows; {length} positions have {wanted}");
            return Err(unsupported("write_rows", reason));
        }
        self.state.write_rows(length, blocks, bytes);
        Ok(())
    }

    fn write_logits(&mut self, at: usize, row: &[f32]) -> OpsResult {
        let vocab = self.spec.dims.vocab;
        self.work.logits[at * vocab..(at + 1) * vocab].copy_from_slice(row);
        Ok(())
    }

    fn stage(&mut self, slot: usize, start: usize, before: &[u32], tokens: &[u32]) -> OpsResult {
        self.stage.add(&self.spec, slot, start, before, tokens, false);
        Ok(())
    }

    fn was_staged(&self) -> Option<bool> {
        self.spec.engram.as_ref().map(|_| self.stage.hit())
    }

    fn read_choices(&mut self, out: &mut Vec<Option<u32>>) -> OpsResult {
        out.clone_from(&self.work.choices);
        Ok(())
    }

    fn read_logits(&mut self, at: usize, out: &mut Vec<f32>) -> OpsResult {
        let vocab = self.spec.dims.vocab;
        out.clear();
        out.extend_from_slice(&self.work.logits[at * vocab..(at + 1) * vocab]);
        Ok(())
    }

    fn read_drafts(&mut self, tokens: &mut Vec<u32>, confidence: &mut Vec<f32>) -> OpsResult {
        tokens.clone_from(&self.work.drafts);
        confidence.clone_from(&self.work.confidence);
        Ok(())
    }

    fn read_state(
        &mut self,
        slot: usize,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult {
        self.state.read(slot, length, blocks, out);
        Ok(())
    }
}

fn unsupported(step: &'static str, reason: String) -> OpsError {
    OpsError::Unsupported { backend: NAME, step, reason }
}

impl From<TeamError> for OpsError {
    fn from(error: TeamError) -> Self {
        OpsError::Failed { backend: NAME, step: "the thread team", reason: error.to_string() }
    }
}
