//! Every weight of a model in device memory.

use finback_ops::{Expert, Hyper, LayerSpec, Linear, ModelSpec, OpsError, Site};

use crate::hosted::{IN, OUT};
use crate::linear::{Grouped, Joined, Stack, Stacks, Takes, Weight};
use crate::load::Placer;

/// A model's weights.
pub struct Weights {
    /// `[vocab, hidden]`, read by row.
    pub embed: Weight,
    /// `[hidden]`.
    pub norm: u64,
    /// `[vocab, hidden]`.
    pub head: Weight,
    /// The target's layers, then the drafter's.
    pub layers: Vec<Layer>,
    /// The drafter around its layers.
    pub drafter: Option<Drafter>,
}

/// A layer's weights; addresses of vectors are of f32.
pub struct Layer {
    /// The sites before attention and before the experts.
    pub sites: [Mix; 2],
    /// `[q_rank]`.
    pub q_norm: u64,
    /// `[heads * head_dim, q_rank]`.
    pub wq_b: Weight,
    /// wkv `[head_dim, hidden]` and wq_a `[q_rank, hidden]`.
    pub latents: Joined,
    /// `[head_dim]`.
    pub kv_norm: u64,
    /// `[o_groups * o_rank, heads * head_dim / o_groups]`.
    pub wo_a: Grouped,
    /// `[hidden, o_groups * o_rank]`.
    pub wo_b: Weight,
    /// `[heads]`.
    pub sink: u64,
    /// Of a kv source.
    pub compressor: Option<Compressor>,
    /// Of an index source: `[index_heads * index_dim, q_rank]` and `[index_heads, hidden]`.
    pub indexer: Option<(Weight, Weight)>,
    /// Of an Engram layer: the projection and `[hc, hidden]`.
    pub engram: Option<(Weight, u64)>,
    /// `[experts, hidden]`.
    pub gate: Weight,
    /// `[experts]`.
    pub bias: u64,
    /// The routed experts' w1 and w3.
    pub routed_in: Stacks,
    /// Their w2.
    pub routed_out: Stack,
    /// The shared expert's w1 and w3.
    pub shared_in: Joined,
    /// Its w2.
    pub shared_out: Weight,
}

impl Layer {
    /// A hyper-connection site.
    pub fn site(&self, site: Site) -> &Mix {
        &self.sites[usize::from(site == Site::Ffn)]
    }

    /// Whether a weight takes the inputs of a site's sublayer from rows of f32: tiles take bf16 or codes.
    pub fn reads_f32(&self, site: Site) -> bool {
        let mut takes: Vec<&dyn Takes> = match site {
            Site::Attention => vec![&self.latents],
            Site::Ffn => vec![&self.gate, &self.shared_in, &self.routed_in],
        };
        if site == Site::Attention {
            takes.extend(self.compressor.iter().map(|compressor| compressor.raw.takes()));
            takes.extend(self.indexer.iter().map(|(_, weights)| weights as &dyn Takes));
        }
        any_reads_f32(&takes)
    }

    /// Whether any weight takes the queries' latent as f32.
    pub fn reads_f32_latent(&self) -> bool {
        let mut takes: Vec<&dyn Takes> = vec![&self.wq_b];
        takes.extend(self.indexer.iter().map(|(wq_b, _)| wq_b as &dyn Takes));
        any_reads_f32(&takes)
    }
}

fn any_reads_f32(weights: &[&dyn Takes]) -> bool {
    weights.iter().flat_map(|weight| weight.takes()).any(|(_, tiled)| !tiled)
}

/// A hyper-connection site.
pub struct Mix {
    /// `[(2 + hc) * hc, hc * hidden]`.
    pub mix: Weight,
    /// `[(2 + hc) * hc]`.
    pub base: u64,
    /// `[hidden]`.
    pub norm: u64,
    /// Of pre, post and comb.
    pub scale: [f32; 3],
}

/// A kv source's compressor and the key half of its indexer.
pub struct Compressor {
    /// wkv, and wgate where the ratio is above 1: `[head_dim, hidden]`.
    pub raw: Raw,
    /// `[head_dim]`.
    pub norm: u64,
    /// `[index_dim, head_dim]`.
    pub index_k: Weight,
    /// `[index_dim]`.
    pub index_norm: u64,
}

/// What a compressor makes of a row.
#[derive(Clone, Copy)]
pub enum Raw {
    /// A latent.
    Latent(Weight),
    /// A raw row: kv, then the gate.
    Gated(Joined),
}

impl Raw {
    /// What takes the rows.
    pub fn takes(&self) -> &dyn Takes {
        match self {
            Raw::Latent(weight) => weight,
            Raw::Gated(joined) => joined,
        }
    }
}

/// The drafter's weights around its layers.
pub struct Drafter {
    /// `[hidden, taps * hidden]`.
    pub main_proj: Weight,
    /// `[hidden]`.
    pub main_norm: u64,
    /// `[hidden]`.
    pub norm: u64,
    /// `[vocab, rank]`, read by row.
    pub markov_embed: Weight,
    /// `[vocab, rank]`.
    pub markov_head: Weight,
    /// `[hidden + rank]`.
    pub confidence: u64,
}

impl Weights {
    /// Places all of a model's weights.
    ///
    /// # Errors
    /// A tensor that cannot be read, a scale that is NaN, or the device's failure.
    pub fn place(spec: &ModelSpec, to: &mut Placer<'_>) -> Result<Self, OpsError> {
        let (layers, groups) = (spec.layers.iter().chain(spec.draft_layers()), spec.dims.o_groups);
        Ok(Self {
            embed: to.table(&spec.embed)?,
            norm: to.vector(&spec.norm)?,
            head: to.linear(&spec.head)?,
            layers: layers
                .map(|layer| Layer::place(layer, groups, to))
                .collect::<Result<_, _>>()?,
            drafter: match &spec.drafter {
                None => None,
                Some(drafter) => Some(Drafter {
                    main_proj: to.linear(&drafter.main_proj)?,
                    main_norm: to.vector(&drafter.main_norm)?,
                    norm: to.vector(&drafter.norm)?,
                    markov_embed: to.table(&drafter.markov_embed)?,
                    markov_head: to.linear(&drafter.markov_head)?,
                    confidence: to.vector(&drafter.confidence)?,
                }),
            },
        })
    }
}

impl Layer {
    fn place(layer: &LayerSpec, groups: usize, to: &mut Placer<'_>) -> Result<Self, OpsError> {
        let (attn, ffn) = (&layer.attn, &layer.ffn);
        let [w1, w3, w2] = THREE;
        Ok(Self {
            sites: [
                Mix::place(&layer.attn_hyper, &layer.attn_norm, to)?,
                Mix::place(&layer.ffn_hyper, &layer.ffn_norm, to)?,
            ],
            q_norm: to.vector(&attn.q_norm)?,
            wq_b: to.linear(&attn.wq_b)?,
            latents: to.joined([&attn.wkv, &attn.wq_a])?,
            kv_norm: to.vector(&attn.kv_norm)?,
            wo_a: to.grouped(&attn.wo_a, groups)?,
            wo_b: to.linear(&attn.wo_b)?,
            sink: to.vector(&attn.sink)?,
            compressor: match &layer.compressor {
                None => None,
                Some(compressor) => Some(Compressor {
                    raw: match &compressor.wgate {
                        None => Raw::Latent(to.linear(&compressor.wkv)?),
                        Some(wgate) => Raw::Gated(to.joined([&compressor.wkv, wgate])?),
                    },
                    norm: to.vector(&compressor.norm)?,
                    index_k: to.linear(&compressor.index_k)?,
                    index_norm: to.vector(&compressor.index_norm)?,
                }),
            },
            indexer: match &layer.indexer {
                None => None,
                Some(indexer) => Some((to.linear(&indexer.wq_b)?, to.linear(&indexer.weights)?)),
            },
            engram: match &layer.engram {
                None => None,
                Some(engram) => Some((to.linear(&engram.wkv)?, to.vector(&engram.qk)?)),
            },
            gate: to.linear(&ffn.gate)?,
            bias: to.vector(&ffn.bias)?,
            routed_in: to.stacks(&ffn.experts, IN)?,
            routed_out: to.stack(&ffn.experts, OUT[0])?,
            shared_in: to.joined([w1(&ffn.shared), w3(&ffn.shared)])?,
            shared_out: to.linear(w2(&ffn.shared))?,
        })
    }
}

impl Mix {
    fn place(hyper: &Hyper, norm: &[f32], to: &mut Placer<'_>) -> Result<Self, OpsError> {
        Ok(Self {
            mix: to.linear(&hyper.mix)?,
            base: to.vector(&hyper.base)?,
            norm: to.vector(norm)?,
            scale: hyper.scale,
        })
    }
}

/// An expert's linears in the order that [`Layer`] keeps them: gate, up, down.
pub const THREE: [fn(&Expert) -> &Linear; 3] = [|e| &e.w1, |e| &e.w3, |e| &e.w2];
