//! What the buffers of a pass take, before any is allocated.

use finback_numerics::rows::window_bytes;
use finback_ops::{Limits, Linear, ModelSpec, Stage};

use crate::linear::Prepared;
use crate::{CpuOps, CpuOptions};

impl CpuOps {
    /// Bytes of the workspace that [`CpuOps::new`] allocates with these arguments: values between
    /// steps by row, the rounded inputs of linears, logit rows, each thread's keys and scores, and what
    /// passes to come are announced by.
    pub fn workspace_bytes(spec: &ModelSpec, limits: &Limits, options: CpuOptions) -> u64 {
        let d = &spec.dims;
        let layers = || spec.layers.iter().chain(spec.draft_layers());
        let experts = layers().map(|l| l.ffn.experts.len()).max().unwrap_or(0);
        let topk = layers().map(|l| l.ffn.topk).max().unwrap_or(0);
        let columns = spec.engram.as_ref().map_or(0, |e| e.columns());
        let engram = spec.engram.as_ref().map_or(0, |e| columns * e.dim + (d.hc + 1) * d.hidden);
        let taps = spec.drafter.as_ref().map_or(0, |drafter| drafter.taps * d.hidden);
        let raw: usize = spec.sources.iter().filter(|s| s.ratio > 1).map(|_| 2 * d.head_dim).sum();
        let values = d.hc * d.hidden
            + (2 + d.hc) * (2 * d.hc)
            + 2 * d.hidden
            + d.q_rank
            + d.heads * d.head_dim
            + d.head_dim
            + d.o_groups * d.o_rank
            + raw
            + (1 + d.index_heads) * d.index_dim
            + d.index_heads
            + d.index_topk
            + d.candidate_blocks
            + experts
            + 2 * topk
            + (topk + 1) * (2 * d.inter + d.hidden)
            + engram
            + 2 * d.rope_dim
            + taps;
        let row = 4 * values + 8 * columns + spec.rings() * window_bytes(d.head_dim);
        let keys = (d.window + d.index_topk) * d.head_dim;
        let scores = spec.sources.iter().map(|s| limits.context / s.ratio).max().unwrap_or(0);
        let thread = 4 * keys + 8 * scores + 12 * d.vocab;
        let inputs: usize = inputs(spec, limits.rows)
            .into_iter()
            .map(|(rows, inp)| 4 * (Prepared::values(rows, inp) + rows))
            .sum();
        let logits = 4 * limits.logit_rows * d.vocab;
        let staged = Stage::bytes(spec, limits);
        (inputs + limits.rows * row + logits + options.threads * thread + staged) as u64
    }
}

/// Rows and width of the largest input that is prepared first, second and so on for one fork of
/// linears, in passes of `rows` rows.
pub(crate) fn inputs(spec: &ModelSpec, rows: usize) -> Vec<(usize, usize)> {
    let mut largest = Vec::new();
    let mut fork = |rows: usize, linears: &[&Linear]| {
        for (at, inp) in Prepared::kinds(linears.iter().map(|l| (l.format, l.inp))).enumerate() {
            match largest.get_mut(at) {
                None => largest.push((rows, inp)),
                Some(one) if Prepared::values(one.0, one.1) < Prepared::values(rows, inp) => {
                    *one = (rows, inp);
                }
                Some(_) => {}
            }
        }
    };
    for layer in spec.layers.iter().chain(spec.draft_layers()) {
        let (attn, ffn) = (&layer.attn, &layer.ffn);
        fork(rows, &[&layer.attn_hyper.mix]);
        fork(rows, &[&layer.ffn_hyper.mix]);
        fork(rows, &[&attn.wkv, &attn.wq_a]);
        fork(rows, &[&attn.wq_b]);
        fork(rows, &[&attn.wo_a]);
        fork(rows, &[&attn.wo_b]);
        if let Some(compressor) = &layer.compressor {
            let gate = compressor.wgate.as_ref().unwrap_or(&compressor.wkv);
            fork(rows, &[&compressor.wkv, gate]);
            fork(rows, &[&compressor.index_k]);
        }
        if let Some(indexer) = &layer.indexer {
            fork(rows, &[&indexer.wq_b]);
            fork(rows, &[&indexer.weights]);
        }
        if let Some(engram) = &layer.engram {
            fork(rows, &[&engram.wkv]);
        }
        fork(rows, &[&ffn.gate]);
        let experts = || ffn.experts.iter().chain([&ffn.shared]);
        let first: Vec<_> = experts().flat_map(|e| [&e.w1, &e.w3]).collect();
        fork(rows, &first);
        let second: Vec<_> = experts().map(|e| &e.w2).collect();
        fork(rows * (ffn.topk + 1), &second);
    }
    fork(rows, &[&spec.head]);
    if let Some(drafter) = &spec.drafter {
        fork(rows, &[&drafter.main_proj]);
        fork(rows, &[&drafter.markov_head]);
    }
    largest
}
