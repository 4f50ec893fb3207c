//! The backend itself: what it owns, and [`Ops`] over its steps.

use std::sync::Arc;

use finback_kernels::args::HyperNormArgs;
use finback_kernels::device::Findings;
use finback_kernels::manifest::Kernel;
use finback_kernels::tape::Tape;
use finback_ops::{
    Adjust, Frequencies, Keep, Limits, ModelSpec, Ops, OpsError, OpsResult, Penalties, Rows,
    Sampling, Site, Span, Stage, TableRows,
};

use crate::batch::{Batch, Write};
use crate::hosted::Hosted;
use crate::parts::Parts;
use crate::products::Products;
use crate::queue::{Kernels, Queue};
use crate::sampling::Tables;
use crate::share::Own;
use crate::state::State;
use crate::steps::NO_CHOICE;
use crate::weights::Weights;
use crate::wide::Wide;
use crate::work::Work;

/// The backend over a device.
pub struct GpuOps {
    pub(crate) spec: Arc<ModelSpec>,
    pub(crate) limits: Limits,
    pub(crate) queue: Queue,
    pub(crate) kernels: Kernels,
    pub(crate) products: Products,
    pub(crate) wide: Wide,
    pub(crate) parts: Parts,
    /// Sizes of this device's part of the model.
    pub(crate) own: Own,
    /// What the streams are still to be expanded by.
    pub(crate) pending: Option<Pending>,
    /// What the next site takes, still to be made.
    pub(crate) factors: Option<Factors>,
    /// Whether a layer's keys or picks may still be made aside.
    pub(crate) keys_aside: bool,
    /// The places of experts that stay on the host.
    pub(crate) hosted: Option<Hosted>,
    pub(crate) weights: Weights,
    pub(crate) state: State,
    pub(crate) work: Work,
    pub(crate) batch: Batch,
    /// Angles of the pass that were not written yet.
    pub(crate) turned: Option<Write>,
    pub(crate) tables: Tables,
    pub(crate) stage: Stage,
    /// Table rows that the last [`Ops::engram`] read.
    pub(crate) table_rows: Vec<u64>,
    /// What was read of them, where nothing was read ahead.
    pub(crate) table_read: TableRows,
    /// Rows of the last [`Ops::choose`].
    pub(crate) chosen: usize,
    /// Drafts of the last [`Ops::draft_chain`].
    pub(crate) drafted: usize,
    pub(crate) window_frequencies: Frequencies,
    pub(crate) compressed_frequencies: Frequencies,
}

/// A sublayer's output that the streams have not taken yet: the step that comes next may do both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Whose streams.
    pub rows: Rows,
    /// Experts of a row whose outputs are still to be added up; `None` where `y` is there.
    pub experts: Option<usize>,
}

/// The launch that makes pre, post and comb from a site's mix.
pub(crate) struct Factors {
    /// `hyper_norm`.
    pub kernel: &'static Kernel,
    /// Its arguments.
    pub args: HyperNormArgs,
    /// Rows, a group each.
    pub rows: u32,
}

impl GpuOps {
    /// Sets the rows up to which a pass's launches go to the device as one tape.
    pub fn tape_up_to(&mut self, rows: usize) {
        self.queue.tape_up_to(rows);
    }

    /// The launches of the pass that waits, where it is one that may be replayed.
    pub fn waiting(&self) -> &Tape {
        self.queue.waiting()
    }

    /// Waits for the device; what it noticed since the last call.
    ///
    /// # Errors
    /// The device's failure.
    pub fn finish(&mut self) -> Result<Findings, OpsError> {
        self.queue.finish()
    }

    /// While the device works on a long pass, makes ready what the announced ones need of the host; then
    /// waits, so that the pass has taken its time when it is over.
    fn look_ahead(&mut self) -> OpsResult {
        self.stage.read(&self.spec);
        let compressed = (!self.spec.sources.is_empty()).then_some(&self.compressed_frequencies);
        if let Some((first, rows)) = self.stage.announced().next() {
            self.batch.turn_ahead(first, rows, &self.window_frequencies, compressed);
        }
        self.queue.wait()
    }

    /// Takes the spans of a pass.
    fn take(&mut self, spans: &[Span<'_>], compressed: bool) -> OpsResult {
        self.queue.begin(spans.iter().map(|span| span.tokens.len()).sum())?;
        self.products.begin();
        // What is not read any more need not be expanded.
        self.pending = None;
        self.factors = None;
        // Where no attention followed the keys: what was aside is over.
        self.keys_aside = false;
        let compressed = compressed.then_some(&self.compressed_frequencies);
        let (angles, mut writes) = self.batch.begin(spans, &self.window_frequencies, compressed);
        self.turned = Some(angles);
        if self.queue.is_taped()
            && let (Some(angles), Some((_, bytes))) = (self.turned.take(), writes.last_mut())
        {
            // The angles lie behind the other tables: one copy takes both.
            bytes.extend_from_slice(&angles.1);
            self.batch.reuse_angles(angles);
        }
        for (at, bytes) in &writes {
            if let Err(error) = self.queue.write(*at, bytes) {
                self.batch.forget();
                return Err(error);
            }
        }
        self.batch.reuse(writes);
        Ok(())
    }

    /// Writes the pass's angles, where that is still to be done: a long pass begins without them.
    pub(crate) fn write_angles(&mut self) -> OpsResult {
        let Some(angles) = self.turned.take() else { return Ok(()) };
        self.queue.write_beside(angles.0, &angles.1)?;
        self.batch.reuse_angles(angles);
        Ok(())
    }
}

impl Ops for GpuOps {
    fn name(&self) -> &'static str {
        self.queue.name()
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn begin(&mut self, spans: &[Span<'_>]) -> OpsResult {
        self.check_spans(spans)?;
        self.stage.begin(spans);
        self.take(spans, !self.spec.sources.is_empty())
    }

    fn begin_draft(&mut self, spans: &[Span<'_>]) -> OpsResult {
        self.check_spans(spans)?;
        self.stage.begin(&[]);
        self.take(spans, false)
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
            let rows = self.batch.spans.get(keep.span).map_or(0, |span| span.tokens.len());
            if keep.span >= self.batch.spans.len() || keep.rows > rows {
                let reason = format!("{} rows of span {}, which has {rows}", keep.rows, keep.span);
                return Err(self.unsupported("keep", reason));
            }
        }
        let (queue, kernels) = (&mut self.queue, &self.kernels);
        self.state.keep(queue, kernels, &self.batch.spans, keeps, computed_from)?;
        // The copies run while the host is busy with what was chosen.
        if self.queue.is_taped() { self.queue.flush() } else { self.look_ahead() }
    }

    fn reset(&mut self, slot: usize) -> OpsResult {
        self.check_slot("reset", slot)?;
        self.stage.clear(slot);
        self.state.reset(&mut self.queue, &self.kernels, slot)
    }

    fn copy_block(&mut self, from: u32, to: u32) -> OpsResult {
        self.check_blocks("copy_block", 0, &[from])?;
        self.check_blocks("copy_block", 0, &[to])?;
        self.state.copy_block(&mut self.queue, &self.kernels, from, to)
    }

    fn read_slot(&mut self, slot: usize, out: &mut Vec<u8>) -> OpsResult {
        self.check_slot("read_slot", slot)?;
        self.state.read_slot(&mut self.queue, slot, out)
    }

    fn write_slot(&mut self, slot: usize, bytes: &[u8]) -> OpsResult {
        self.check_slot("write_slot", slot)?;
        if self.state.write_slot(&mut self.queue, slot, bytes, self.spec.dims.vocab)? {
            self.stage.clear(slot);
            return Ok(());
        }
        let reason = format!("{} bytes are not of this model", bytes.len());
        Err(self.unsupported("write_slot", reason))
    }

    fn read_rows(&mut self, length: usize, blocks: &[u32], out: &mut Vec<u8>) -> OpsResult {
        self.check_blocks("read_rows", length, blocks)?;
        self.state.read_rows(&mut self.queue, length, blocks, out)
    }

    fn write_rows(&mut self, length: usize, blocks: &[u32], bytes: &[u8]) -> OpsResult {
        self.check_blocks("write_rows", length, blocks)?;
        let (wanted, found) = (self.state.rows_bytes(length), bytes.len());
        if found != wanted {
            let reason = format!("{found} bytes of rows; {length} positions have {wanted}");
            return Err(self.unsupported("write_rows", reason));
        }
        self.state.write_rows(&mut self.queue, length, blocks, bytes)
    }

    fn write_logits(&mut self, at: usize, row: &[f32]) -> OpsResult {
        self.check_logits("write_logits", at, 1)?;
        let (vocab, found) = (self.spec.dims.vocab, row.len());
        if found != vocab {
            let reason = format!("{found} logits; the vocabulary has {vocab}");
            return Err(self.unsupported("write_logits", reason));
        }
        self.queue.flush()?;
        let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_ne_bytes()).collect();
        self.queue.write(self.work.logits.row(at), &bytes)
    }

    fn stage(&mut self, slot: usize, start: usize, before: &[u32], tokens: &[u32]) -> OpsResult {
        self.stage.add(&self.spec, slot, start, before, tokens, true);
        Ok(())
    }

    fn was_staged(&self) -> Option<bool> {
        self.spec.engram.as_ref().map(|_| self.stage.hit())
    }

    fn read_choices(&mut self, out: &mut Vec<Option<u32>>) -> OpsResult {
        let words = self.queue.read_words(self.work.choices.at, self.chosen)?;
        out.clear();
        out.extend(words.into_iter().map(|word| (word != NO_CHOICE).then_some(word)));
        Ok(())
    }

    fn read_logits(&mut self, at: usize, out: &mut Vec<f32>) -> OpsResult {
        self.check_logits("read_logits", at, 1)?;
        let words = self.queue.read_words(self.work.logits.row(at), self.spec.dims.vocab)?;
        out.clear();
        out.extend(words.into_iter().map(f32::from_bits));
        Ok(())
    }

    fn read_drafts(&mut self, tokens: &mut Vec<u32>, confidence: &mut Vec<f32>) -> OpsResult {
        *tokens = self.queue.read_words(self.work.drafts.at, self.drafted)?;
        let words = self.queue.read_words(self.work.confidence.at, self.drafted)?;
        confidence.clear();
        confidence.extend(words.into_iter().map(f32::from_bits));
        Ok(())
    }

    fn read_state(
        &mut self,
        slot: usize,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult {
        self.check_slot("read_state", slot)?;
        self.check_blocks("read_state", length, blocks)?;
        self.state.read(&mut self.queue, slot, length, blocks, out)
    }
}
