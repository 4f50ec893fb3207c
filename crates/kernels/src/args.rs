//! The arguments of each kernel: the structs of `device/args.h`, the same bytes.

/// Formats of stored weights, as kernels take them.
pub mod format {
    /// E4M3 with one E8M0 scale a block.
    pub const FP8: u32 = 0;
    /// E2M1, two a byte, with one E8M0 scale for 32 inputs.
    pub const FP4: u32 = 1;
    /// BF16.
    pub const BF16: u32 = 2;
    /// Binary16.
    pub const F16: u32 = 3;
    /// Binary32.
    pub const F32: u32 = 4;
    /// E4M3 as [`FP8`], in tiles whose codes are multiplied as bf16 values.
    pub const LIFTED: u32 = 5;
}

/// Scoring functions of the router, as kernels take them.
pub mod scoring {
    /// `sqrt(ln(1 + e^x))`.
    pub const SQRT_SOFTPLUS: u32 = 0;
    /// `1 / (1 + e^-x)`.
    pub const SIGMOID: u32 = 1;
    /// `e^x` over the sum of all.
    pub const SOFTMAX: u32 = 2;
}

/// A kernel's arguments: plain bytes, the same as the C struct of this name.
pub trait Args: Copy + 'static {
    /// The struct's name on the device.
    const NAME: &'static str;
    /// Its fields in order: name and type (`addr`, `u64`, `u32` or `f32`).
    const FIELDS: &'static [(&'static str, &'static str)];

    /// Appends the bytes that a launch passes.
    fn put(&self, to: &mut Vec<u8>);

    /// The bytes that a launch passes.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size_of::<Self>());
        self.put(&mut bytes);
        bytes
    }
}

macro_rules! args {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ident),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, Default)]
        #[allow(missing_docs, reason = "the kernel's file says what each is")]
        pub struct $name { $(pub $field: args!(@type $kind)),* }

        impl Args for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), stringify!($kind))),*];

            fn put(&self, to: &mut Vec<u8>) {
                // No field needs padding before it: addresses and u64 come first, and words are even.
                $(to.extend_from_slice(&self.$field.to_ne_bytes());)*
            }
        }
    )*};
    (@type addr) => { u64 };
    (@type $kind:ident) => { $kind };
}

args! {
    /// One elementary function of each value.
    ElementaryArgs { x: addr, out: addr, count: u32, function: u32 }
    /// `norm.h`.
    RmsnormArgs { x: addr, weight: addr, out: addr, width: u32, eps: f32, round: u32, pad: u32 }
    /// `hyper.h`, `embed`.
    EmbedArgs {
        table: addr, tokens: addr, streams: addr, pre: addr,
        width: u32, hc: u32, format: u32, round: u32,
    }
    /// `hyper.h`, `hyper_in`.
    HyperInArgs {
        streams: addr, mix: addr, base: addr, norm: addr, pre: addr, post: addr, comb: addr, x: addr,
        width: u32, hc: u32, iterations: u32, round: u32,
        eps: f32, hc_eps: f32, scale_pre: f32, scale_post: f32, scale_comb: f32, pad: u32,
    }
    /// `hyper.h`, `hyper_out`.
    HyperOutArgs {
        streams: addr, y: addr, post: addr, comb: addr, width: u32, hc: u32, round: u32, pad: u32,
    }
    /// `hyper.h`, `collapse`.
    CollapseArgs {
        streams: addr, pre: addr, out: addr, width: u32, hc: u32, round: u32, pad: u32,
    }
    /// `hyper.h`, `tap`.
    TapArgs {
        streams: addr, out: addr,
        width: u32, hc: u32, stride: u32, at: u32, round: u32, pad: u32,
    }
    /// `quant.h`, `quantise`.
    QuantiseArgs { x: addr, codes: addr, scales: addr, width: u32, pad: u32 }
    /// `dense.h`, the linears.
    DenseArgs {
        weight: addr, scale: addr, x: addr, codes: addr, scales: addr, out: addr,
        rows: u32, inputs: u32, outputs: u32, side: u32,
        x_stride: u32, out_stride: u32, round: u32, x_round: u32,
    }
    /// `kv.h`, the three packings.
    PackArgs { x: addr, places: addr, out: addr, dim: u32, pad: u32 }
    /// `kv.h`, their inverses.
    UnpackArgs { rows: addr, places: addr, out: addr, dim: u32, pad: u32 }
    /// `latents.h`, `finish_compressed`.
    CompressedArgs {
        x: addr, raw: addr, members: addr, norm: addr, cos: addr, sin: addr,
        plain: addr, coded: addr, places: addr, out: addr,
        dim: u32, pairs: u32, ratio: u32, round: u32, eps: f32, index: u32,
    }
    /// `quant.h`, `index_query`.
    IndexQueryArgs {
        q: addr, cos: addr, sin: addr, heads: u32, dim: u32, pairs: u32, round: u32,
    }
    /// `select.h`, `index_scores`.
    IndexScoresArgs {
        q: addr, w: addr, keys: addr, rows: addr, blocks: addr,
        candidates: addr, n_candidates: addr, scores: addr,
        heads: u32, dim: u32, ratio: u32, rows_per_block: u32, blocks_stride: u32,
        candidates_stride: u32, candidate_size: u32, count: u32, scores_stride: u32, scale: f32,
    }
    /// `select.h`, `block_best`.
    BlockBestArgs {
        scores: addr, rows: addr, out: addr,
        ratio: u32, size: u32, scores_stride: u32, count: u32, out_stride: u32, pad: u32,
    }
    /// `select.h`, `topk`.
    TopkArgs {
        scores: addr, candidates: addr, picks: addr, n_picks: addr,
        count: u32, scores_stride: u32, k: u32, picks_stride: u32,
        candidates_stride: u32, candidate_size: u32,
    }
    /// `attend.h`.
    AttendArgs {
        q: addr, cos: addr, sin: addr, sinks: addr, ring: addr, fresh: addr, pool: addr,
        rows: addr, blocks: addr, picks: addr, n_picks: addr, plain: addr,
        heads: u32, dim: u32, pairs: u32, window: u32, ring_rows: u32, blocks_stride: u32,
        rows_per_block: u32, picks_stride: u32, draft: u32, round: u32, scale: f32, pad: u32,
    }
    /// `experts.h`, `route`.
    RouteArgs {
        logits: addr, bias: addr, experts: addr, weights: addr,
        count: u32, topk: u32, scoring: u32, normalise: u32, temperature: f32, scale: f32,
    }
    /// `experts.h`, `group_routes`.
    GroupArgs {
        experts: addr, weights: addr, places: addr, rows: addr, sorted: addr, groups: addr,
        routes: u32, topk: u32, groups_max: u32, pad: u32,
    }
    /// `experts.h`, `route_few`.
    RouteFewArgs {
        logits: addr, bias: addr, experts: addr, weights: addr,
        places: addr, rows: addr, sorted: addr, groups: addr,
        count: u32, topk: u32, scoring: u32, normalise: u32, temperature: f32, scale: f32,
        row_count: u32, groups_max: u32,
    }
    /// `dense.h`, the experts' linears.
    ExpertArgs {
        weight: addr, scale: addr, x: addr, codes: addr, scales: addr,
        groups: addr, rows: addr, out: addr, weight_bytes: u64, scale_bytes: u64,
        inputs: u32, outputs: u32, side: u32, x_stride: u32, out_stride: u32, round: u32,
    }
    /// `experts.h`, `swiglu`.
    SwigluArgs {
        gate: addr, up: addr, weights: addr, out: addr,
        coded: addr, width: u32, weighted: u32, limit: f32, round: u32, slices: u32, pad: u32,
    }
    /// `experts.h`, `sum_experts`.
    SumExpertsArgs {
        routed: addr, shared: addr, places: addr, out: addr,
        width: u32, topk: u32, round: u32, pad: u32,
    }
    /// `engram.h`, `engram_gather`.
    EngramGatherArgs {
        table: addr, scales: addr, ids: addr, out: addr, columns: u32, dim: u32,
    }
    /// `engram.h`, `engram_gate`.
    EngramGateArgs {
        streams: addr, kv: addr, qk: addr, width: u32, hc: u32, eps: f32, round: u32,
    }
    /// `sample.h`, `choose`.
    ChooseArgs {
        logits: addr, seeds: addr, positions: addr, params: addr, choices: addr,
        vocab: u32, stride: u32, choices_stride: u32, none: u32,
    }
    /// `sample.h`, a choice in slices.
    ChooseSliceArgs {
        logits: addr, seeds: addr, positions: addr, params: addr,
        tops: addr, winners: addr, choices: addr,
        vocab: u32, stride: u32, slices: u32, choices_stride: u32, none: u32, pad: u32,
    }
    /// `sample.h`, `add_rows`.
    AddArgs { x: addr, term: addr, width: u32, x_stride: u32 }
    /// `sample.h`, `adjust`.
    AdjustArgs {
        logits: addr, starts: addr, ids: addr, adds: addr, chain: addr, penalties: addr,
        saved: addr, saved_chain: addr,
        stride: u32, chain_stride: u32, chain_count: u32, restore: u32,
    }
    /// `arrange.h`, the three rearrangements of a weight.
    ArrangeArgs {
        weight: addr, scale: addr, out: addr, groups: addr,
        weight_bytes: u64, scale_bytes: u64, out_bytes: u64,
        inputs: u32, outputs: u32, side: u32, first: u32, apart: u32, tiles: u32,
    }
    /// `fetch.h`.
    FetchArgs { map: addr, table: addr, groups: addr, named: addr, out: addr, count: u32, pad: u32 }
    /// `arrange.h`, `operand`.
    OperandArgs {
        x: addr, out: addr, width: u32, x_stride: u32, out_stride: u32, coded: u32,
    }
    /// `cuda/matmul_few.cuh`, `cuda/matmul_wide.cuh` and `cuda/matmul_many.cuh`.
    TileArgs {
        weight: addr, x: addr, groups: addr, list: addr, out: addr, second: addr, expert_bytes: u64,
        rows: u32, inputs: u32, outputs: u32, groups_max: u32, x_stride: u32, x_step: u32,
        out_stride: u32, out_step: u32, split: u32, second_stride: u32, round: u32,
        most_rows: u32, chunk: u32, stages: u32, known: u32, beside: u32, quads: u32, early: u32,
    }
    /// `cuda/matmul_gated.cuh`.
    GatedArgs {
        weight: addr, x: addr, groups: addr, shares: addr, coded: addr, expert_bytes: u64,
        inputs: u32, width: u32, stages: u32, round: u32, limit: f32, pad: u32,
    }
    /// `kv.h`, `copy_rows`.
    CopyArgs { from: addr, sources: addr, to: addr, places: addr, bytes: u32, pad: u32 }
    /// `probe.h`, `fill`.
    FillArgs {
        out: addr, keys: addr, count: u64,
        width: u32, seed: u32, keep: u32, set: u32, keyed: u32, pad: u32,
    }
    /// `probe.h`, `read_all`.
    ReadAllArgs { from: addr, out: addr, width: u32, pad: u32 }
    /// `sample.h`, `markov`.
    MarkovArgs {
        table: addr, tokens: addr, h: addr, projection: addr, embed: addr, confidence: addr,
        width: u32, rank: u32, format: u32,
        tokens_stride: u32, h_stride: u32, confidence_stride: u32,
    }
    /// `quant.h`, `index_operand`.
    IndexOperandArgs {
        q: addr, cos: addr, sin: addr, out: addr, heads: u32, dim: u32, pairs: u32, pad: u32,
    }
    /// `mix.h`, `hyper_mix`.
    HyperMixArgs {
        streams: addr, y: addr, routed: addr, shared: addr, places: addr, post: addr, comb: addr,
        pre: addr, weight: addr, collapsed: addr, parts: addr,
        width: u32, hc: u32, columns: u32, rows: u32, rows_each: u32, topk: u32, expand: u32, round: u32,
    }
    /// `mix.h`, `hyper_norm`.
    HyperNormArgs {
        collapsed: addr, parts: addr, base: addr, norm: addr, pre: addr, post: addr, comb: addr,
        x: addr, plain: addr, rounded: addr,
        width: u32, hc: u32, slices: u32, iterations: u32, round: u32,
        eps: f32, hc_eps: f32, scale_pre: f32, scale_post: f32, scale_comb: f32,
        kept: u32, first: u32, known: u32, pad: u32,
    }
    /// `cuda/attend.cuh` and `attend_many.cuh`, the three kernels.
    TileAttendArgs {
        q: addr, cos: addr, sin: addr, sinks: addr, ring: addr, fresh: addr, pool: addr,
        rows: addr, blocks: addr, picks: addr, n_picks: addr, scores: addr, out: addr,
        heads: u32, window: u32, ring_rows: u32, blocks_stride: u32, rows_per_block: u32,
        picks_stride: u32, draft: u32, known: u32, scale: f32, row_count: u32,
    }
    /// `cuda/select.cuh`, `tile_index_scores`.
    TileIndexArgs {
        q: addr, w: addr, keys: addr, rows: addr, blocks: addr,
        candidates: addr, n_candidates: addr, scores: addr, tops: addr,
        ratio: u32, rows_per_block: u32, blocks_stride: u32, candidates_stride: u32,
        candidate_size: u32, count: u32, scores_stride: u32, row_count: u32, rows_each: u32, scale: f32,
    }
    /// `cuda/select.cuh`, `tile_topk`.
    TileTopkArgs {
        scores: addr, from: addr, rows: addr, candidates: addr, n_candidates: addr,
        ids: addr, best: addr, n_picks: addr,
        count: u32, scores_stride: u32, k: u32, tiles: u32, ratio: u32, unit: u32,
        candidates_stride: u32, candidate_size: u32, spread: u32, pad: u32,
    }
    /// `parts.h`, `join_parts`.
    JoinArgs { parts: addr, out: addr, rows: u32, count: u32, width: u32, stride: u32 }
    /// `latents.h`, `finish_latents`.
    LatentsArgs {
        qr: addr, normed: addr, q_norm: addr, plain: addr, coded: addr, kv: addr, kv_norm: addr,
        cos: addr, sin: addr, out: addr,
        rank: u32, dim: u32, pairs: u32, round: u32, eps: f32, pad: u32,
    }
}
