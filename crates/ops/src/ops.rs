//! The fused steps. The model is written once over [`Ops`]; a backend has no model code.
//!
//! Between steps, values stay in the backend's named workspace: the streams `X [rows, hc, D]`, the
//! mix `pre [rows, hc]`, `post`, `comb [rows, hc, hc]`, the sublayer's input `x [rows, D]` and output
//! `y [rows, D]`, the queries, the new window rows of every layer, the picks, the routes, the taps and
//! the logits. Each step says what it reads and writes. No step returns a value: a pass is a fixed
//! list of launches whose sizes are known before the first, so that a device may record and replay
//! it. Values come back through the `read_*` calls after the pass.
//!
//! A row's values depend on that row and its slot's state alone, by one fixed sequence of operations
//! whatever else is in the batch (the row rule).

use crate::batch::{Keep, Limits, Rows, Span};
use crate::error::OpsError;
use crate::sampling::{Adjust, Penalties, Sampling};
use crate::spec::Site;

/// Result of a step.
pub type OpsResult = Result<(), OpsError>;

/// A device that runs the steps and owns all state.
///
/// State of a slot: per layer a ring of [`Dims::window`](crate::Dims::window) packed window rows; per
/// kv source compressed rows and index keys in KV blocks, and the raw rows of its open group; the last
/// token ids an Engram looks back to. Steps read state and write the workspace; only [`Ops::compress`]
/// writes the pool (at positions not yet kept, which nothing reads before they are) and only
/// [`Ops::keep`] writes the rest.
///
/// `layer` counts the target's layers, then the drafter's.
pub trait Ops: Send {
    /// The backend's name, as a user types it.
    fn name(&self) -> &'static str;

    /// What was allocated.
    fn limits(&self) -> Limits;

    // ---- batches ---------------------------------------------------------------------------

    /// Takes the spans of a target pass: ids, positions, block tables, rotary angles.
    fn begin(&mut self, spans: &[Span<'_>]) -> OpsResult;

    /// Takes the spans of a draft pass: `block` rows a slot, `[anchor, noise, ..]`, from the position
    /// after the slot's last kept row.
    fn begin_draft(&mut self, spans: &[Span<'_>]) -> OpsResult;

    // ---- the target ------------------------------------------------------------------------

    /// `X_i = embed[token]` for all streams, rounded where stores are; `pre = [1, 0, ..]`.
    fn embed(&mut self, rows: Rows) -> OpsResult;

    /// `X_i += gate_i * value`: the Engram rows of each token's n-grams, projected to a key a stream
    /// and one value, gated by the signed square root of the key's match with the stream (section 7).
    fn engram(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// Column `tap` of the taps takes the mean over the streams of X.
    fn tap(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// `x = rmsnorm(collapse(X, pre))` with the pre of the site before, and this site's own pre, post
    /// and comb from X (section 4); pre is replaced.
    fn hyper_in(&mut self, layer: usize, site: Site, rows: Rows) -> OpsResult;

    /// `X_j = post_j * y + sum_i comb[i][j] * X_i`.
    fn hyper_out(&mut self, rows: Rows) -> OpsResult;

    /// For `kv` rows, the new window row `fp8(rope(rmsnorm(wkv x)))`; for `q` rows (a part of them)
    /// `qr = rmsnorm(wq_a x)` and the queries `rope(wq_b qr)`.
    fn project(&mut self, layer: usize, kv: Rows, q: Rows) -> OpsResult;

    /// At a kv source: closes the groups that end in `rows`, storing compressed rows and index keys in
    /// the slots' blocks; raw rows of open groups stay in the workspace until [`Ops::keep`].
    fn compress(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// At an index source: the compressed rows each row attends to (the picks), from `x` and `qr`. At
    /// the candidate layer also each row's candidate blocks; index sources above it choose within.
    fn select(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// Attention of the queries over the window and, where the ratio is above 0, the picks; then the
    /// inverse rotation. A draft layer's rows see the `window` positions before the block and all
    /// rows of the block.
    fn attend(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// `y = wo_b(concat_g wo_a_g o_g)`.
    fn attn_out(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// The experts of each row and their weights, from `x` (section 6).
    fn route(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// `y =` the routed experts in ascending id, plus the shared one.
    fn experts(&mut self, layer: usize, rows: Rows) -> OpsResult;

    /// Logit rows `at..` of `head(rmsnorm(collapse(X, pre)))` for `rows`.
    fn head(&mut self, rows: Rows, at: usize) -> OpsResult;

    /// The token after each of the logit rows `at..`, one set of parameters and one position (of the
    /// chosen token) a row. Row i is chosen from with `adjust.row(i)` added, `logit + add` in f32; what
    /// [`Ops::read_logits`] gives has nothing added.
    fn choose(&mut self, at: usize, params: &[(Sampling, usize)], adjust: &Adjust) -> OpsResult;

    // ---- the drafter -----------------------------------------------------------------------

    /// From the taps: `main = rmsnorm(main_proj taps)` and every draft layer's new window row.
    fn draft_context(&mut self, rows: Rows) -> OpsResult;

    /// Logit rows `at..` of the drafter's own head over `rows`, before the Markov term; the collapsed
    /// rows stay in the workspace for the confidences.
    fn draft_head(&mut self, rows: Rows, at: usize) -> OpsResult;

    /// Of each span of the draft batch, in order of its rows: adds the Markov term of the token before,
    /// takes the confidence, chooses the draft. One set of parameters a span. Every row of span i is
    /// chosen from with `adjust.row(i)` added, and with each draft before it in the chain penalised: by
    /// the frequency each time, by the presence once and only where `adjust.row(i)` does not name it.
    fn draft_chain(
        &mut self,
        at: usize,
        params: &[(Sampling, Penalties)],
        adjust: &Adjust,
    ) -> OpsResult;

    // ---- state -----------------------------------------------------------------------------

    /// Makes the first rows of each named span part of its slot's state: rings, open groups, ids.
    /// Rows of layer `l` below `computed_from[l]` were not run and are not stored.
    fn keep(&mut self, keeps: &[Keep], computed_from: &[usize]) -> OpsResult;

    /// Makes a slot's state a fresh one's.
    fn reset(&mut self, slot: usize) -> OpsResult;

    /// Copies one KV block over another.
    fn copy_block(&mut self, from: u32, to: u32) -> OpsResult;

    /// Appends what a slot holds outside the pool: rings, open groups, token ids.
    fn read_slot(&mut self, slot: usize, out: &mut Vec<u8>) -> OpsResult;

    /// Makes a slot's state outside the pool what [`Ops::read_slot`] gave. Refuses other bytes and
    /// changes nothing then.
    fn write_slot(&mut self, slot: usize, bytes: &[u8]) -> OpsResult;

    /// Appends the compressed rows and index keys that `length` positions have closed.
    fn read_rows(&mut self, length: usize, blocks: &[u32], out: &mut Vec<u8>) -> OpsResult;

    /// Stores what [`Ops::read_rows`] gave for the same `length`. Refuses other sizes and changes
    /// nothing then.
    fn write_rows(&mut self, length: usize, blocks: &[u32], bytes: &[u8]) -> OpsResult;

    /// Stores one logit row `[vocab]`, as if a head had computed it.
    fn write_logits(&mut self, at: usize, row: &[f32]) -> OpsResult;

    // ---- reads from the host -----------------------------------------------------------------

    /// Begins to fetch what a target pass over the `tokens` of a slot from position `start` on needs
    /// from the host (Engram rows). `before` are the ids in front of `start`, all or as many as an
    /// Engram looks back to. A hint: a pass over other rows is as right. Two a slot are remembered,
    /// until its state is made a fresh or another one.
    fn stage(&mut self, slot: usize, start: usize, before: &[u32], tokens: &[u32]) -> OpsResult;

    /// Whether the batch that last began, of one span, was staged at its very rows; `None` where it
    /// needs nothing from the host.
    fn was_staged(&self) -> Option<bool>;

    // ---- reading back ----------------------------------------------------------------------

    /// The choices of the last [`Ops::choose`], in order; `None` for a row with a NaN or an infinity.
    fn read_choices(&mut self, out: &mut Vec<Option<u32>>) -> OpsResult;

    /// One logit row `[vocab]`.
    fn read_logits(&mut self, at: usize, out: &mut Vec<f32>) -> OpsResult;

    /// Drafts and raw confidences of the last [`Ops::draft_chain`], span after span.
    fn read_drafts(&mut self, tokens: &mut Vec<u32>, confidence: &mut Vec<f32>) -> OpsResult;

    /// The bytes of a slot's state up to `length` positions, for comparing states: rings in order of
    /// position, open groups, compressed rows and index keys through `blocks`, token ids.
    fn read_state(
        &mut self,
        slot: usize,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult;
}
