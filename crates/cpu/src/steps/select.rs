//! The indexer: each row's compressed rows, at both levels of selection.

use std::ops::Range;

use finback_numerics::rows as packed;
use finback_ops::{OpsResult, Rows};

use crate::device::{Input, Job};
use crate::kernel::kernel;
use crate::ops::CpuOps;
use crate::par::{cut, each, parts};
use crate::rope::Turn;
use crate::simd::{self, Isa, Simd};
use crate::state::State;
use crate::topk::{Query, best, block_rows, candidate_blocks};

/// What one worker needs to score and choose.
pub struct Selector {
    scores: Vec<f32>,
    ranks: Vec<u64>,
    key: Vec<f32>,
}

impl Selector {
    /// Room for `most` compressed rows.
    pub fn new(most: usize, index_dim: usize) -> Self {
        Self { scores: vec![0.0; most], ranks: Vec::with_capacity(most), key: vec![0.0; index_dim] }
    }
}

/// How a layer's choice relates to the candidate blocks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// All visible rows.
    Free,
    /// All visible rows, and the blocks are chosen here.
    Source,
    /// Rows of the chosen blocks.
    Within,
}

impl CpuOps {
    pub(crate) fn select_step(&mut self, layer: usize, rows: Rows) -> OpsResult {
        let spec = self.spec.clone();
        let target = spec.layer(layer);
        let (Some(weights), Some(source)) = (&target.indexer, target.source) else {
            return Ok(());
        };
        let dims = &spec.dims;
        let level = match dims.candidate_layer {
            Some(l) if l == layer => Level::Source,
            Some(l) if l < layer => Level::Within,
            _ => Level::Free,
        };
        let round = spec.numerics.round_stores;
        let (work, width) = (&mut self.work, dims.index_heads * dims.index_dim);
        let input = Input { x: &work.qr, stride: dims.q_rank, rows: rows.clone(), round: true };
        let out = &mut work.index_q[rows.start * width..];
        self.device.linear(input, &mut [Job::new(&weights.wq_b, out, width)], round)?;
        let input = Input { x: &work.x, stride: dims.hidden, rows: rows.clone(), round: true };
        let out = &mut work.index_w[rows.start * dims.index_heads..];
        let job = Job::new(&weights.weights, out, dims.index_heads);
        self.device.linear(input, &mut [job], round)?;

        let threads = self.device.team.threads();
        let split = parts(rows.clone(), threads);
        let scale = 1.0 / ((dims.index_dim as f32).sqrt() * (dims.index_heads as f32).sqrt());
        for w in &mut work.index_w[rows.start * dims.index_heads..rows.end * dims.index_heads] {
            *w *= scale;
        }
        let (isa, angles, state) = (self.device.isa, work.angles.of(target.ratio), &self.state);
        let mut contexts: Vec<_> = cut(&mut work.index_q, width, &split)
            .into_iter()
            .zip(cut(&mut work.picks, dims.index_topk, &split))
            .zip(cut(&mut work.n_picks, 1, &split))
            .zip(cut(&mut work.candidates, dims.candidate_blocks, &split))
            .zip(cut(&mut work.n_candidates, 1, &split))
            .zip(&mut self.selectors)
            .zip(split)
            .collect();
        let (batch, spans, weights) = (&work.rows, &work.spans, &work.index_w);
        each(&mut self.device.team, &mut contexts, |_, context| {
            let ((((((q, picks), n_picks), candidates), n_candidates), selector), part) = context;
            for (i, r) in part.clone().enumerate() {
                let q = &mut q[i * width..(i + 1) * width];
                angles.rotate(r, q, dims.index_dim, Turn { inverse: false, round });
                for head in q.chunks_exact_mut(dims.index_dim) {
                    selector.quantise(head);
                }
                let blocks = &spans[batch[r].span].blocks;
                let seen = (batch[r].position + 1) / target.ratio;
                let query = Query {
                    q,
                    w: &weights[r * dims.index_heads..(r + 1) * dims.index_heads],
                    dim: dims.index_dim,
                };
                let keys = KeyRows { state, source, blocks };
                let picks = &mut picks[i * dims.index_topk..(i + 1) * dims.index_topk];
                let chosen =
                    &mut candidates[i * dims.candidate_blocks..(i + 1) * dims.candidate_blocks];
                if level == Level::Within {
                    let chosen = &chosen[..n_candidates[i]];
                    let ranges = chosen.iter().map(|&b| block_rows(b, dims.candidate_size, seen));
                    n_picks[i] = selector.pick(isa, &query, &keys, ranges, dims.index_topk, picks);
                } else {
                    let all = std::iter::once(0..seen);
                    n_picks[i] = selector.pick(isa, &query, &keys, all, dims.index_topk, picks);
                }
                if level == Level::Source {
                    n_candidates[i] = candidate_blocks(
                        &selector.scores[..seen],
                        dims.candidate_size,
                        dims.candidate_blocks,
                        &mut selector.ranks,
                        chosen,
                    );
                }
            }
        })?;
        Ok(())
    }
}

impl Selector {
    /// Rounds an index query's head as its key is rounded.
    fn quantise(&mut self, head: &mut [f32]) {
        let mut packed_head = [0u8; 1024];
        let bytes = &mut packed_head[..packed::index_key_bytes(head.len())];
        packed::store_index_key(head, bytes);
        packed::load_index_key(bytes, head);
    }

    /// Scores the rows of the ranges and chooses the best `k`; scores stay by row.
    fn pick(
        &mut self,
        isa: Isa,
        query: &Query<'_>,
        keys: &KeyRows<'_>,
        ranges: impl Iterator<Item = Range<usize>> + Clone,
        k: usize,
        out: &mut [u32],
    ) -> usize {
        for range in ranges.clone() {
            score(isa, query, keys, range, &mut self.key, &mut self.scores);
        }
        let scores = &self.scores;
        best(ranges.flatten().map(|j| (j, scores[j])), k, &mut self.ranks, out)
    }
}

/// The index keys of a source in one slot.
struct KeyRows<'a> {
    state: &'a State,
    source: usize,
    blocks: &'a [u32],
}

kernel! {
    fn score(query: &Query<'_>, keys: &KeyRows<'_>, range: Range<usize>, key: &mut [f32], out: &mut [f32]) = score_body;
}

/// Scores the keys of `range` into `out`, by row; `key` is scratch.
#[inline(always)]
fn score_body<S: Simd>(
    s: S,
    query: &Query<'_>,
    keys: &KeyRows<'_>,
    range: Range<usize>,
    key: &mut [f32],
    out: &mut [f32],
) {
    for j in range {
        simd::load_index_key(s, keys.state.key(keys.source, j, keys.blocks), key);
        out[j] = query.score(s, key);
    }
}
