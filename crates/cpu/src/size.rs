//! What the buffers of a pass take, before any is allocated.

use finback_numerics::rows::window_bytes;
use finback_ops::{Limits, ModelSpec};

use crate::{CpuOps, CpuOptions};

impl CpuOps {
    /// Bytes of the workspace that [`CpuOps::new`] allocates with these arguments: values between
    /// steps by row, logit rows, and each thread's keys and scores. Rounded inputs that linears keep
    /// for a moment are not counted.
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
        (limits.rows * row + 4 * limits.logit_rows * d.vocab + options.threads * thread) as u64
    }
}
