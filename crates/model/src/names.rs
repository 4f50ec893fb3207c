//! The one table of tensors: every name, shape and stored form that a config asks for.
//!
//! Loading checks a checkpoint against it, `synth` writes it, `inspect` counts it.

use std::iter;

use finback_checkpoint::{Dtype, Entry};

use crate::config::{Config, DraftConfig};

/// Channels that share a scale in an FP4 weight row and in an Engram table row.
pub const SCALE_BLOCK: usize = 32;

/// What a tensor's bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Attention, shared experts, routers and norms of the target.
    Dense,
    /// Routed experts of the target.
    Experts,
    /// Engram tables and their projections.
    Engram,
    /// Embedding and head.
    Embeddings,
    /// Hyper-connections of the target.
    Hyper,
    /// The draft blocks, whole.
    Drafts,
    /// The vision tower: not read by the text model.
    Vision,
    /// Anything else: not read.
    Other,
}

impl Class {
    /// Every class, in the order of a listing.
    pub const ALL: [Class; 8] = [
        Class::Dense,
        Class::Experts,
        Class::Engram,
        Class::Embeddings,
        Class::Hyper,
        Class::Drafts,
        Class::Vision,
        Class::Other,
    ];

    /// What a listing calls it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Dense => "attention, shared experts, routers",
            Class::Experts => "routed experts",
            Class::Engram => "Engram",
            Class::Embeddings => "embedding and head",
            Class::Hyper => "hyper-connections",
            Class::Drafts => "draft blocks",
            Class::Vision => "vision (not read)",
            Class::Other => "other (not read)",
        }
    }

    /// The class of a tensor that the table does not hold.
    pub fn of_unread(name: &str) -> Class {
        let vision = ["vision.", "aligner.", "image_"];
        if vision.iter().any(|p| name.starts_with(p)) { Class::Vision } else { Class::Other }
    }
}

/// Which stored dtypes a weight may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `[out, in]`: F8_E4M3 or packed FP4 (I8, U8) with a `.scale`, or BF16, F16, F32 without.
    Linear,
    /// BF16, F16 or F32, never scaled.
    Plain,
    /// `[rows, dim]` of F8_E4M3 with a `.scale` of one E8M0 for 32 channels; read by row.
    Table,
}

/// One weight of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// The tensor's name; a scale's ends in `.scale` where this ends in `.weight`.
    pub name: String,
    /// What it is for.
    pub class: Class,
    /// Which dtypes it may have.
    pub form: Form,
    /// The dtype that the release stores it as (I8: packed FP4).
    pub release: Dtype,
    /// Its dimensions before packing.
    pub shape: Vec<usize>,
    /// Whether a checkpoint must have it.
    pub required: bool,
}

impl Weight {
    /// Number of values.
    pub fn parameters(&self) -> usize {
        self.shape.iter().product()
    }

    /// The name of its scale tensor, had it one.
    pub fn scale_name(&self) -> String {
        scale_name(&self.name)
    }

    /// Its tensors as the release stores them; `block` is the edge of an FP8 scale tile.
    pub fn entries(&self, block: usize) -> Vec<Entry> {
        let entry = |name: String, dtype, shape| Entry { name, dtype, shape };
        let main = stored_shape(self.release, &self.shape);
        let mut entries = vec![entry(self.name.clone(), self.release, main)];
        if let Some(shape) = self.scale_shape(self.release, block) {
            entries.push(entry(self.scale_name(), Dtype::F8E8M0, shape));
        }
        entries
    }

    /// The shape of the scale that belongs to a weight stored as `dtype`; `None` for unscaled ones.
    pub fn scale_shape(&self, dtype: Dtype, block: usize) -> Option<Vec<usize>> {
        let &[rows, columns] = &self.shape[..] else { return None };
        match (self.form, dtype) {
            (Form::Table, _) | (_, Dtype::I8 | Dtype::U8) => {
                Some(vec![rows, columns / SCALE_BLOCK])
            }
            (_, Dtype::F8E4M3) => Some(vec![rows.div_ceil(block), columns.div_ceil(block)]),
            _ => None,
        }
    }
}

/// The name of the scale of the weight called `name`.
pub(crate) fn scale_name(name: &str) -> String {
    format!("{}.scale", name.strip_suffix(".weight").unwrap_or(name))
}

/// The dimensions of a tensor that stores `shape` as `dtype`: FP4 packs two columns a byte.
pub(crate) fn stored_shape(dtype: Dtype, shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if let (Dtype::I8 | Dtype::U8, Some(columns)) = (dtype, shape.last_mut()) {
        *columns /= 2;
    }
    shape
}

/// Every weight of the text model and its draft blocks, in the order a pass meets them.
pub fn weights(config: &Config) -> Vec<Weight> {
    parts(config).flatten().collect()
}

/// [`weights`] a layer or draft block at a time, each made when it is asked for: a config may ask for
/// far more than any checkpoint holds.
pub fn parts(config: &Config) -> impl Iterator<Item = Vec<Weight>> {
    let c = config;
    let table = move |class, prefix| Table { c, class, prefix, out: Vec::new() };
    let embedding = iter::once_with(move || {
        let mut table = table(Class::Embeddings, String::new());
        table.plain("embed.weight", Dtype::Bf16, &[c.vocab_size, c.hidden_size]);
        table.out
    });
    let layers = (0..c.num_hidden_layers).map(move |layer| {
        let mut table = table(Class::Dense, format!("layers.{layer}."));
        table.target_layer(layer);
        table.out
    });
    let head = iter::once_with(move || {
        let mut table = table(Class::Dense, String::new());
        table.plain("norm.weight", Dtype::Bf16, &[c.hidden_size]);
        table.class = Class::Embeddings;
        table.plain("head.weight", Dtype::Bf16, &[c.vocab_size, c.hidden_size]);
        table.out
    });
    let drafts = c.drafts.iter().flat_map(move |drafts| {
        (0..drafts.layers).map(move |block| {
            let mut table = table(Class::Drafts, format!("mtp.{block}."));
            table.draft_block(drafts, block);
            table.out
        })
    });
    embedding.chain(layers).chain(head).chain(drafts)
}

struct Table<'a> {
    c: &'a Config,
    class: Class,
    prefix: String,
    out: Vec<Weight>,
}

impl Table<'_> {
    fn push(&mut self, name: &str, form: Form, release: Dtype, shape: &[usize]) {
        let name = format!("{}{name}", self.prefix);
        let (class, shape) = (self.class, shape.to_vec());
        self.out.push(Weight { name, class, form, release, shape, required: true });
    }

    fn plain(&mut self, name: &str, release: Dtype, shape: &[usize]) {
        self.push(name, Form::Plain, release, shape);
    }

    fn linear(&mut self, name: &str, release: Dtype, out: usize, inp: usize) {
        self.push(&format!("{name}.weight"), Form::Linear, release, &[out, inp]);
    }

    fn norm(&mut self, name: &str, width: usize) {
        self.plain(&format!("{name}.weight"), Dtype::Bf16, &[width]);
    }

    fn target_layer(&mut self, layer: usize) {
        let c = self.c;
        if c.engram.as_ref().is_some_and(|e| e.layer_ids.contains(&layer)) {
            self.engram(layer);
        }
        self.class = Class::Hyper;
        self.hyper("attn");
        self.hyper("ffn");
        self.class = Class::Dense;
        self.attention();
        self.compressed(layer);
        self.router(c.n_routed_experts);
        self.shared_expert();
        self.class = Class::Experts;
        self.experts(c.n_routed_experts);
    }

    fn engram(&mut self, layer: usize) {
        let (c, d) = (self.c, self.c.hidden_size);
        let Some(e) = &c.engram else { return };
        let Some(which) = e.layer_ids.iter().position(|&l| l == layer) else { return };
        self.class = Class::Engram;
        let table = [e.num_embeddings[which], e.head_dim];
        self.push("engram.embed.weight", Form::Table, Dtype::F8E4M3, &table);
        self.linear("engram.wkv", Dtype::F8E4M3, d * (c.hc_mult + 1), e.columns() * e.head_dim);
        self.plain("engram.q_weight", Dtype::F32, &[c.hc_mult, d]);
        self.plain("engram.k_weight", Dtype::F32, &[c.hc_mult, d]);
    }

    fn hyper(&mut self, site: &str) {
        let (hc, d) = (self.c.hc_mult, self.c.hidden_size);
        let mixes = (2 + hc) * hc;
        self.plain(&format!("hc_{site}_fn"), Dtype::F32, &[mixes, hc * d]);
        self.plain(&format!("hc_{site}_base"), Dtype::F32, &[mixes]);
        self.plain(&format!("hc_{site}_scale"), Dtype::F32, &[3]);
    }

    fn attention(&mut self) {
        let (c, d, fp8) = (self.c, self.c.hidden_size, Dtype::F8E4M3);
        let (heads, rank) = (c.num_attention_heads * c.head_dim, c.o_groups * c.o_lora_rank);
        self.norm("attn_norm", d);
        self.norm("ffn_norm", d);
        self.linear("attn.wq_a", fp8, c.q_lora_rank, d);
        self.norm("attn.q_norm", c.q_lora_rank);
        self.linear("attn.wq_b", fp8, heads, c.q_lora_rank);
        self.linear("attn.wkv", fp8, c.head_dim, d);
        self.norm("attn.kv_norm", c.head_dim);
        self.linear("attn.wo_a", fp8, rank, heads / c.o_groups);
        self.linear("attn.wo_b", fp8, d, rank);
        self.plain("attn.attn_sink", Dtype::F32, &[c.num_attention_heads]);
    }

    /// What kv sources and index sources have on top.
    fn compressed(&mut self, layer: usize) {
        let (c, d, bf16) = (self.c, self.c.hidden_size, Dtype::Bf16);
        let kv_source = c.kv_source_layer_ids.contains(&layer);
        if kv_source {
            self.linear("attn.compressor.wkv", bf16, c.head_dim, d);
            if c.compress_ratios[layer] > 1 {
                self.linear("attn.compressor.wgate", bf16, c.head_dim, d);
            }
            self.norm("attn.compressor.norm", c.head_dim);
        }
        if c.index_source_layer_ids.contains(&layer) {
            let queries = c.index_n_heads * c.index_head_dim;
            self.linear("attn.indexer.wq_b", Dtype::F8E4M3, queries, c.q_lora_rank);
            self.linear("attn.indexer.weights_proj", bf16, c.index_n_heads, d);
            if kv_source {
                self.linear("attn.indexer.wk", bf16, c.index_head_dim, c.head_dim);
                self.norm("attn.indexer.k_norm", c.index_head_dim);
            }
        }
    }

    fn router(&mut self, experts: usize) {
        self.plain("ffn.gate.weight", Dtype::Bf16, &[experts, self.c.hidden_size]);
        self.plain("ffn.gate.bias", Dtype::F32, &[experts]);
        self.plain("ffn.gate.bias_vl", Dtype::F32, &[experts]);
        // Only image tokens read it.
        if let Some(bias_vl) = self.out.last_mut() {
            bias_vl.required = false;
        }
    }

    fn shared_expert(&mut self) {
        self.expert("ffn.shared_experts", Dtype::F8E4M3);
    }

    fn experts(&mut self, count: usize) {
        for e in 0..count {
            self.expert(&format!("ffn.experts.{e}"), Dtype::I8);
        }
    }

    fn expert(&mut self, name: &str, release: Dtype) {
        let (d, inter) = (self.c.hidden_size, self.c.moe_intermediate_size);
        self.linear(&format!("{name}.w1"), release, inter, d);
        self.linear(&format!("{name}.w2"), release, d, inter);
        self.linear(&format!("{name}.w3"), release, inter, d);
    }

    fn draft_block(&mut self, drafts: &DraftConfig, block: usize) {
        let (c, d) = (self.c, self.c.hidden_size);
        if block == 0 {
            let taps = drafts.target_layer_ids.len();
            self.linear("main_proj", Dtype::F8E4M3, d, taps * d);
            self.norm("main_norm", d);
        }
        self.hyper("attn");
        self.hyper("ffn");
        self.attention();
        self.router(drafts.n_routed_experts);
        self.shared_expert();
        self.experts(drafts.n_routed_experts);
        if block + 1 == drafts.layers {
            let rank = drafts.markov_rank;
            self.norm("norm", d);
            self.plain("markov_head.embed.weight", Dtype::Bf16, &[c.vocab_size, rank]);
            self.plain("markov_head.head.weight", Dtype::Bf16, &[c.vocab_size, rank]);
            self.plain("confidence_head.proj.weight", Dtype::Bf16, &[1, d + rank]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use finback_checkpoint::Checkpoint;

    use super::*;

    #[test]
    fn the_table_is_what_the_stored_checkpoints_hold() {
        for name in finback_testkit::CHECKPOINTS {
            let dir = finback_testkit::checkpoint(name);
            let config = Config::load(&dir).unwrap();
            let ck = Checkpoint::open(&dir).unwrap();
            let mut wanted = BTreeSet::new();
            for weight in weights(&config) {
                for entry in weight.entries(config.weight_block_size) {
                    let t = ck.tensor(&entry.name).unwrap();
                    assert_eq!((t.dtype(), t.shape()), (entry.dtype, &entry.shape[..]), "{t:?}");
                    assert!(wanted.insert(entry.name));
                }
            }
            let held: BTreeSet<_> = ck.tensors().map(|t| t.name().to_owned()).collect();
            assert_eq!(held, wanted, "{name}");
        }
    }

    #[test]
    fn tensors_outside_the_table_have_a_class() {
        assert_eq!(Class::of_unread("vision.blocks.0.w"), Class::Vision);
        assert_eq!(Class::of_unread("image_newline"), Class::Vision);
        assert_eq!(Class::of_unread("mtp.3.norm.weight"), Class::Other);
    }
}
