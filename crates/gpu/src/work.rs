//! The workspace of a pass in device memory: the values between its steps.

use finback_ops::{Ffn, Limits, ModelSpec, OpsError};

use crate::memory::{Buf, Memory};
use crate::products::Most;
use crate::share::{Own, Share};

/// Score values that one launch may leave behind; rows over it are scored in turns.
const SCORES: usize = 32 << 20;

/// Logits of a slice that one group looks at.
const SLICE: usize = 1024;

/// The values of a pass's rows. Every buffer is row-major with the width its comment names.
pub struct Work {
    /// X, `hc * hidden`, kept as [`kept_bytes`] says.
    pub streams: Buf,
    /// `hc`.
    pub pre: Buf,
    /// `hc`.
    pub post: Buf,
    /// `hc * hc`.
    pub comb: Buf,
    /// A site's mix before its nonlinearities, `(2 + hc) * hc`.
    pub mix: Buf,
    /// The sublayer's input, `hidden`.
    pub x: Buf,
    /// The sublayer's output, `hidden`.
    pub y: Buf,
    /// The queries' latent as it is projected, `q_rank`.
    pub latent: Buf,
    /// The same normed, where a weight takes it as f32.
    pub qr: Buf,
    /// Queries, then attention's output: `heads * head_dim`, of this device's heads.
    pub q: Buf,
    /// A latent: `head_dim`.
    pub kv: Buf,
    /// Compressed rows before packing, `head_dim`.
    pub compressed: Buf,
    /// `o_groups * o_rank`.
    pub z: Buf,
    /// Index keys before packing, `index_dim`.
    pub index_k: Buf,
    /// Index queries, `index_heads * index_dim`.
    pub index_q: Buf,
    /// Weights of the index heads, `index_heads`.
    pub index_w: Buf,
    /// Index scores of the rows of one turn, `most_rows` out to whole candidate blocks.
    pub scores: Buf,
    /// The best score of each candidate block of those rows.
    pub best: Buf,
    /// Rows whose scores fit.
    pub turn: usize,
    /// Compressed rows a row may see.
    pub most_rows: usize,
    /// Compressed rows each row attends to, ascending, `index_topk`.
    pub picks: Buf,
    /// How many, one.
    pub n_picks: Buf,
    /// Candidate blocks of each row, ascending, `candidate_blocks`.
    pub candidates: Buf,
    /// How many, one.
    pub n_candidates: Buf,
    /// Router logits, `experts`.
    pub gates: Buf,
    /// Experts of each row, ascending: `topk` of the layer.
    pub experts: Buf,
    /// Their weights.
    pub weights: Buf,
    /// Where each route's place is, one.
    pub places: Buf,
    /// The row of each place, one.
    pub place_rows: Buf,
    /// The weights by place, one: behind as many ones as a pass has rows, which the shared expert's
    /// rows take.
    pub sorted: Buf,
    /// (expert, start, end) of the used experts, three.
    pub groups: Buf,
    /// Hidden rows, this device's part of `inter`: the shared expert's, then the routed ones' by place.
    pub hidden: Buf,
    /// Their up projections; where the model is shared, then the hidden rows whole.
    pub hidden_up: Buf,
    /// The experts' outputs in the same order, this device's part of `hidden`.
    pub expert_out: Buf,
    /// Codes of an Engram layer's table rows, by layer: `columns * dim` bytes.
    pub table_codes: Vec<Buf>,
    /// Their scales.
    pub table_scales: Vec<Buf>,
    /// `0, 1, 2, ..`: u64, `columns`.
    pub table_ids: Buf,
    /// Engram values, `columns * dim`.
    pub engram: Buf,
    /// Engram keys and value, `(hc + 1) * hidden`.
    pub engram_kv: Buf,
    /// `taps * hidden`.
    pub taps: Buf,
    /// `vocab`, by logit row.
    pub logits: Buf,
    /// Slices of a logit row that is chosen from.
    pub slices: usize,
    /// The best of each slice, u64 by logit row.
    pub tops: Buf,
    /// The winning draw of each slice, u64 by logit row.
    pub winners: Buf,
    /// Choices of the last choose, one by logit row.
    pub choices: Buf,
    /// Drafts, `block` by span.
    pub drafts: Buf,
    /// Their raw confidences.
    pub confidence: Buf,
    /// Markov embeddings of a chain's step, `rank` by span.
    pub markov: Buf,
    /// Their logits, `vocab` by span.
    pub markov_logits: Buf,
    /// Rows of a pass, for what lies in front of the routed experts' rows.
    rows: usize,
}

impl Work {
    /// Room for what the limits allow.
    pub fn new(
        spec: &ModelSpec,
        limits: &Limits,
        share: Share,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let (d, n, own) = (&spec.dims, limits.rows, share.own(&spec.dims));
        let (experts, topk) = (most(spec, |f| f.experts.len()), most(spec, |f| f.topk));
        let most_rows = spec.sources.iter().map(|s| limits.context / s.ratio).max().unwrap_or(0);
        let turn = turn(most_rows, n);
        let blocks = most_rows.div_ceil(d.candidate_size.max(1));
        let (columns, dim) = spec.engram.as_ref().map_or((0, 0), |e| (e.columns(), e.dim));
        let tables = spec.layers.iter().filter(|l| l.engram.is_some()).count();
        let drafter = spec.drafter.as_ref();
        let chains = if drafter.is_some() { limits.slots } else { 0 };
        let block = drafter.map_or(0, |drafter| drafter.block);
        let total = n * (topk + 1);
        let slices = d.vocab.div_ceil(SLICE);
        let mut tables_of = |width: usize| -> Result<Vec<Buf>, OpsError> {
            (0..tables).map(|_| memory.rows(n, width)).collect()
        };
        let (table_codes, table_scales) =
            (tables_of(columns * dim)?, tables_of(columns * dim / 32)?);
        let streams = memory.rows(n, kept_bytes(spec) * d.hc * d.hidden)?;
        let mut f = |rows: usize, width: usize| memory.words(rows, width);
        Ok(Self {
            streams,
            pre: f(n, d.hc)?,
            post: f(n, d.hc)?,
            comb: f(n, d.hc * d.hc)?,
            mix: f(n, (2 + d.hc) * d.hc)?,
            x: f(n, d.hidden)?,
            y: f(n, d.hidden)?,
            latent: f(n, d.q_rank)?,
            qr: f(n, d.q_rank)?,
            q: f(n, own.heads * d.head_dim)?,
            kv: f(n, d.head_dim)?,
            compressed: f(n, d.head_dim)?,
            z: f(n, d.o_groups * d.o_rank)?,
            index_k: f(n, d.index_dim)?,
            index_q: f(n, d.index_heads * d.index_dim)?,
            index_w: f(n, d.index_heads)?,
            scores: f(turn, most_rows.next_multiple_of(d.candidate_size.max(1)))?,
            best: f(turn, blocks)?,
            turn,
            most_rows,
            picks: f(n, d.index_topk)?,
            n_picks: f(n, 1)?,
            candidates: f(n, d.candidate_blocks)?,
            n_candidates: f(n, 1)?,
            gates: f(n, experts)?,
            experts: f(n, topk)?,
            weights: f(n, topk)?,
            places: f(n * topk, 1)?,
            place_rows: f(n * topk, 1)?,
            sorted: f(total, 1)?,
            groups: f(experts.min(n * topk), 3)?,
            hidden: f(total, own.inter)?,
            hidden_up: Buf { width: 4 * own.inter as u64, ..f(total, d.inter)? },
            expert_out: f(total, own.hidden)?,
            table_codes,
            table_scales,
            table_ids: f(n, 2 * columns)?,
            engram: f(n, columns * dim)?,
            engram_kv: f(if columns > 0 { n } else { 0 }, (d.hc + 1) * d.hidden)?,
            taps: f(n, drafter.map_or(0, |drafter| drafter.taps * d.hidden))?,
            logits: f(limits.logit_rows, d.vocab)?,
            slices,
            tops: f(limits.logit_rows, 2 * slices)?,
            winners: f(limits.logit_rows, 2 * slices)?,
            choices: f(limits.logit_rows, 1)?,
            drafts: f(chains, block)?,
            confidence: f(chains, block)?,
            markov: f(chains, drafter.map_or(0, |drafter| drafter.markov_embed.inp))?,
            markov_logits: f(chains, d.vocab)?,
            rows: n,
        })
    }

    /// A buffer of experts' rows from the first of `n` shared ones on; the routed ones follow.
    pub fn shared_row(&self, buf: Buf, n: usize) -> u64 {
        buf.row(self.rows - n)
    }

    /// A buffer of experts' rows from the first routed one on.
    pub fn routed_row(&self, buf: Buf) -> u64 {
        buf.row(self.rows)
    }
}

/// Bytes of a value that the numerics round where a model's do: such values are kept as bf16.
pub fn kept_bytes(spec: &ModelSpec) -> usize {
    if spec.numerics.round_stores { 2 } else { 4 }
}

/// Rows whose scores fit, of `n`, where each may see `most_rows`.
pub fn turn(most_rows: usize, n: usize) -> usize {
    (SCORES / most_rows.max(1)).clamp(1, n)
}

/// Bytes of the largest outputs that devices bring together.
pub fn most_gathered(spec: &ModelSpec, limits: &Limits) -> usize {
    let d = &spec.dims;
    let engram = spec.engram.as_ref().map_or(0, |_| (d.hc + 1) * d.hidden);
    let hidden = (most(spec, |f| f.topk) + 1) * d.inter;
    let widest = d.hidden.max(d.o_groups * d.o_rank).max(hidden).max(engram);
    4 * (limits.rows * widest).max(limits.logit_rows * d.vocab)
}

/// The largest inputs of products.
pub fn inputs(spec: &ModelSpec, limits: &Limits, own: &Own) -> Most {
    let (d, n) = (&spec.dims, limits.rows);
    let drafter = spec.drafter.as_ref();
    let mut other = vec![
        (n, d.hidden),
        (n, d.head_dim),
        (n, d.hc * d.hidden),
        (n, d.o_groups * d.o_rank),
        (n * (most(spec, |f| f.topk) + 1), d.inter),
        (n, spec.engram.as_ref().map_or(0, |e| e.columns() * e.dim)),
    ];
    if let Some(drafter) = drafter {
        other.push((n, drafter.taps * d.hidden));
        other.push((limits.slots, drafter.markov_embed.inp));
    }
    let plain = vec![(n, own.heads * d.head_dim)];
    Most { rows: n, hidden: d.hidden, q_rank: d.q_rank, other, plain }
}

fn most(spec: &ModelSpec, get: fn(&Ffn) -> usize) -> usize {
    spec.layers.iter().chain(spec.draft_layers()).map(|l| get(&l.ffn)).max().unwrap_or(0)
}
