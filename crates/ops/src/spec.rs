//! The model as a backend sees it: sizes, layers, and every weight in its stored bytes.
//!
//! The model crate builds a [`ModelSpec`] from a checkpoint once; nothing in it changes later.

use finback_checkpoint::Tensor;

/// Which values are rounded beyond what the model itself rounds (model-spec section 11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Numerics {
    /// Inputs of FP8 and FP4 linears to e4m3, one power-of-two scale per 32 channels.
    pub round_inputs: bool,
    /// Activations to bf16 where the release stores them as bf16.
    pub round_stores: bool,
    /// RoPE angles as the f32 product of position and frequency.
    pub rope_f32: bool,
}

impl Numerics {
    /// Rounds only what belongs to the model.
    pub const PLAIN: Self = Self { round_inputs: false, round_stores: false, rope_f32: false };
    /// Rounds what the release's own runtime rounds.
    pub const RELEASE: Self = Self { round_inputs: true, round_stores: true, rope_f32: true };
}

/// How the scores of the router come from its logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// `sqrt(softplus(x))`, the release's.
    SqrtSoftplus,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Softmax over the experts.
    Softmax,
}

/// YaRN's stretch of the rotary frequencies, for layers with a ratio above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Divides the frequencies of the slow pairs.
    pub factor: f64,
    /// Turns over the original context above which a pair keeps its frequency.
    pub beta_fast: f64,
    /// Turns below which a pair's frequency is divided whole.
    pub beta_slow: f64,
    /// Positions the frequencies were first trained for.
    pub original: f64,
}

/// Sizes and constants, all from the checkpoint's config.
#[derive(Debug, Clone, PartialEq)]
pub struct Dims {
    /// Token ids.
    pub vocab: usize,
    /// D, channels of one stream.
    pub hidden: usize,
    /// Parallel residual streams.
    pub hc: usize,
    /// Sinkhorn iterations in all.
    pub sinkhorn: usize,
    /// Added in the hyper-connection mixes.
    pub hc_eps: f32,
    /// Added to the mean square in every norm.
    pub eps: f32,
    /// Attention heads H.
    pub heads: usize,
    /// Channels of a head, which is also the latent's.
    pub head_dim: usize,
    /// Channels at a vector's end that RoPE rotates.
    pub rope_dim: usize,
    /// Rank of the query projection.
    pub q_rank: usize,
    /// Groups of the output projection.
    pub o_groups: usize,
    /// Rank of each group.
    pub o_rank: usize,
    /// Positions a window reaches back, its own included.
    pub window: usize,
    /// Base of the rotary frequencies where the ratio is 0.
    pub theta: f64,
    /// Base where the ratio is above 0.
    pub compress_theta: f64,
    /// YaRN where the ratio is above 0.
    pub yarn: Option<Yarn>,
    /// Heads of the indexer; 0 without one.
    pub index_heads: usize,
    /// Channels of an index key.
    pub index_dim: usize,
    /// Compressed rows a query attends to, at most.
    pub index_topk: usize,
    /// The layer whose index scores choose candidate blocks.
    pub candidate_layer: Option<usize>,
    /// Candidate blocks a query keeps, at most.
    pub candidate_blocks: usize,
    /// Compressed rows of a candidate block.
    pub candidate_size: usize,
    /// How router scores come from logits.
    pub scoring: Scoring,
    /// Divides the router's logits.
    pub gate_temp: f32,
    /// Whether the chosen scores are divided by their sum (when more than one is chosen).
    pub norm_topk: bool,
    /// Multiplies the routing weights.
    pub route_scale: f32,
    /// Clamp of SwiGLU's two inputs; 0 is none.
    pub swiglu_limit: f32,
    /// Hidden channels of an expert, the shared one included.
    pub inter: usize,
}

/// How a linear's weight is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// e4m3 codes, one e8m0 scale per `block` x `block` tile. NaN codes read as ±480.
    Fp8 {
        /// Edge of a scale tile, a multiple of 32.
        block: usize,
    },
    /// e2m1 codes, two a byte, low nibble first; one e8m0 scale per 32 inputs of a row.
    Fp4,
    /// bfloat16.
    Bf16,
    /// IEEE half.
    F16,
    /// IEEE single.
    F32,
}

impl Format {
    /// Whether weights carry block scales; such weights take e4m3 activations in release numerics.
    pub fn is_quantised(self) -> bool {
        matches!(self, Format::Fp8 { .. } | Format::Fp4)
    }

    /// Bytes of a row of `inp` elements.
    pub fn row_bytes(self, inp: usize) -> usize {
        match self {
            Format::Fp8 { .. } => inp,
            Format::Fp4 => inp / 2,
            Format::Bf16 | Format::F16 => inp * 2,
            Format::F32 => inp * 4,
        }
    }

    /// Scale bytes of a matrix of `out` rows of `inp` elements.
    pub fn scale_bytes(self, out: usize, inp: usize) -> usize {
        match self {
            Format::Fp8 { block } => out.div_ceil(block) * inp.div_ceil(block),
            Format::Fp4 => out * (inp / 32),
            Format::Bf16 | Format::F16 | Format::F32 => 0,
        }
    }
}

/// A linear map `[out, inp]` in its stored bytes.
#[derive(Debug, Clone)]
pub struct Linear {
    /// The stored format.
    pub format: Format,
    /// Output channels.
    pub out: usize,
    /// Input channels.
    pub inp: usize,
    /// The codes or values, row-major.
    pub weight: Tensor,
    /// The scales of [`Format::Fp8`] and [`Format::Fp4`].
    pub scale: Option<Tensor>,
}

/// One hyper-connection site: the mix of the streams into pre, post and comb.
#[derive(Debug, Clone)]
pub struct Hyper {
    /// F32 `[(2 + hc) * hc, hc * hidden]`, column `stream * hidden + channel`.
    pub mix: Linear,
    /// `[(2 + hc) * hc]`: pre, post, comb row-major.
    pub base: Vec<f32>,
    /// Of pre, post and comb.
    pub scale: [f32; 3],
}

/// Which of a layer's two hyper-connection sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Site {
    /// Before attention.
    Attention,
    /// Before the mixture of experts.
    Ffn,
}

/// The attention weights every layer has.
#[derive(Debug, Clone)]
pub struct Attention {
    /// `[q_rank, hidden]`.
    pub wq_a: Linear,
    /// `[q_rank]`.
    pub q_norm: Vec<f32>,
    /// `[heads * head_dim, q_rank]`.
    pub wq_b: Linear,
    /// `[head_dim, hidden]`.
    pub wkv: Linear,
    /// `[head_dim]`.
    pub kv_norm: Vec<f32>,
    /// `[o_groups * o_rank, heads * head_dim / o_groups]`; its input is never rounded to e4m3.
    pub wo_a: Linear,
    /// `[hidden, o_groups * o_rank]`.
    pub wo_b: Linear,
    /// `[heads]`, logits in the softmax's denominator.
    pub sink: Vec<f32>,
}

/// What a kv source adds: its compressor and the key half of its indexer.
#[derive(Debug, Clone)]
pub struct Compressor {
    /// `[head_dim, hidden]`.
    pub wkv: Linear,
    /// `[head_dim, hidden]`, where the ratio is above 1.
    pub wgate: Option<Linear>,
    /// `[head_dim]`.
    pub norm: Vec<f32>,
    /// `[index_dim, head_dim]`.
    pub index_k: Linear,
    /// `[index_dim]`.
    pub index_norm: Vec<f32>,
}

/// The query half of an index source's indexer.
#[derive(Debug, Clone)]
pub struct Indexer {
    /// `[index_heads * index_dim, q_rank]`.
    pub wq_b: Linear,
    /// `[index_heads, hidden]`.
    pub weights: Linear,
}

/// One SwiGLU expert.
#[derive(Debug, Clone)]
pub struct Expert {
    /// The gate, `[inter, hidden]`.
    pub w1: Linear,
    /// `[hidden, inter]`.
    pub w2: Linear,
    /// The up projection, `[inter, hidden]`.
    pub w3: Linear,
}

/// A layer's router and experts.
#[derive(Debug, Clone)]
pub struct Ffn {
    /// `[experts, hidden]`.
    pub gate: Linear,
    /// `[experts]`, added for the choice only.
    pub bias: Vec<f32>,
    /// The routed experts.
    pub experts: Vec<Expert>,
    /// Routed experts a row uses.
    pub topk: usize,
    /// The expert every row uses.
    pub shared: Expert,
}

/// A layer's Engram weights; the hashing constants are in [`Engram`].
#[derive(Debug, Clone)]
pub struct EngramLayer {
    /// Which of the model's Engram layers this is.
    pub which: usize,
    /// e4m3 codes `[rows, dim]`: read by row, never whole.
    pub table: Tensor,
    /// e8m0 scales `[rows, dim / 32]`.
    pub table_scale: Tensor,
    /// `[hidden * (hc + 1), columns * dim]`: hc keys, then one value.
    pub wkv: Linear,
    /// `[hc, hidden]`: the product of the query and the key weights.
    pub qk: Vec<f32>,
}

/// How Engram rows are addressed (model-spec section 7).
#[derive(Debug, Clone)]
pub struct Engram {
    /// Token id to Engram id, `[vocab]`.
    pub map: Vec<u32>,
    /// The Engram id that stands for what lies before the prompt.
    pub pad: u32,
    /// Longest n-gram.
    pub ngram: usize,
    /// Heads of each n-gram size.
    pub heads: usize,
    /// Channels of a table row.
    pub dim: usize,
    /// Per Engram layer: `ngram` odd multipliers, by distance back.
    pub multipliers: Vec<Vec<i64>>,
    /// Per Engram layer, per column (n-gram size major, head minor): modulus.
    pub primes: Vec<Vec<i64>>,
}

impl Engram {
    /// Table rows a token reads in one layer.
    pub fn columns(&self) -> usize {
        (self.ngram - 1) * self.heads
    }

    /// Appends the table rows of one position in Engram layer `which`, one a column, to `out`.
    ///
    /// `recent` holds Engram ids, the position's own first, then back in order. `None` is an image
    /// token; it and the text's start block everything before them, which counts as the pad id.
    pub fn rows(&self, which: usize, recent: &[Option<u32>], out: &mut Vec<u64>) {
        let (primes, multipliers) = (&self.primes[which], &self.multipliers[which]);
        let (mut mixed, mut base, mut alive) = (0i64, 0u64, true);
        for (back, &multiplier) in multipliers.iter().enumerate() {
            let id = recent.get(back).copied().flatten();
            alive &= id.is_some();
            let id = id.filter(|_| alive).unwrap_or(self.pad);
            mixed ^= i64::from(id).wrapping_mul(multiplier);
            if back > 0 {
                for &prime in &primes[(back - 1) * self.heads..][..self.heads] {
                    out.push(mixed.rem_euclid(prime) as u64 + base);
                    base += prime as u64;
                }
            }
        }
    }
}

/// One layer, of the target or of the drafter.
#[derive(Debug, Clone)]
pub struct LayerSpec {
    /// Positions of a compressed row; 0: the window alone.
    pub ratio: usize,
    /// Index into [`ModelSpec::sources`] of the compressed rows this layer reads.
    pub source: Option<usize>,
    /// Where this layer is that source.
    pub compressor: Option<Compressor>,
    /// Where this layer selects rows; other layers use the selection of the nearest below.
    pub indexer: Option<Indexer>,
    /// Where the layer has an Engram.
    pub engram: Option<EngramLayer>,
    /// Column of the taps that takes this layer's input.
    pub tap: Option<usize>,
    /// The site before attention.
    pub attn_hyper: Hyper,
    /// `[hidden]`.
    pub attn_norm: Vec<f32>,
    /// Attention.
    pub attn: Attention,
    /// The site before the experts.
    pub ffn_hyper: Hyper,
    /// `[hidden]`.
    pub ffn_norm: Vec<f32>,
    /// Experts.
    pub ffn: Ffn,
}

impl LayerSpec {
    /// The hyper-connection weights and the norm of a site.
    pub fn site(&self, site: Site) -> (&Hyper, &[f32]) {
        match site {
            Site::Attention => (&self.attn_hyper, &self.attn_norm),
            Site::Ffn => (&self.ffn_hyper, &self.ffn_norm),
        }
    }
}

/// A layer that makes compressed rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvSource {
    /// The layer.
    pub layer: usize,
    /// Positions of one row.
    pub ratio: usize,
}

/// The drafter around its layers (model-spec section 8).
#[derive(Debug, Clone)]
pub struct Drafter {
    /// The draft blocks.
    pub layers: Vec<LayerSpec>,
    /// Tokens a pass proposes; also its rows.
    pub block: usize,
    /// The id at the rows after the anchor.
    pub noise: u32,
    /// Target layers whose inputs are tapped.
    pub taps: usize,
    /// `[hidden, taps * hidden]`.
    pub main_proj: Linear,
    /// `[hidden]`.
    pub main_norm: Vec<f32>,
    /// `[hidden]`.
    pub norm: Vec<f32>,
    /// `[vocab, rank]`, read by row.
    pub markov_embed: Linear,
    /// `[vocab, rank]`.
    pub markov_head: Linear,
    /// `[hidden + rank]`.
    pub confidence: Vec<f32>,
}

/// A whole model, ready for a backend to load.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    /// Sizes and constants.
    pub dims: Dims,
    /// What is rounded.
    pub numerics: Numerics,
    /// `[vocab, hidden]`, read by row.
    pub embed: Linear,
    /// The target's layers.
    pub layers: Vec<LayerSpec>,
    /// The layers that make compressed rows, ascending.
    pub sources: Vec<KvSource>,
    /// `[hidden]`.
    pub norm: Vec<f32>,
    /// `[vocab, hidden]`.
    pub head: Linear,
    /// How Engram rows are addressed, where a layer has one.
    pub engram: Option<Engram>,
    /// The drafter, where the checkpoint has one.
    pub drafter: Option<Drafter>,
}

impl ModelSpec {
    /// The layer of this id: the target's, then the drafter's.
    pub fn layer(&self, id: usize) -> &LayerSpec {
        match self.layers.get(id) {
            Some(layer) => layer,
            None => &self.draft_layers()[id - self.layers.len()],
        }
    }

    /// The drafter's layers; none without a drafter.
    pub fn draft_layers(&self) -> &[LayerSpec] {
        self.drafter.as_ref().map_or(&[], |d| &d.layers)
    }

    /// Layers with a window ring: the target's and the drafter's.
    pub fn rings(&self) -> usize {
        self.layers.len() + self.draft_layers().len()
    }
}
