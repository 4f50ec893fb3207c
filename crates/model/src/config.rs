//! `config.json`: every size and constant of the model, checked.
//!
//! Field names are the JSON's. A value that the release states is required; a few have the
//! defaults that the release's own code has. Fields that the text model does not read
//! (`vision_config` and the like) are left alone.

mod fields;
mod parts;
mod schedule;

use std::path::Path;

use finback_ops::{Scoring, Yarn};
use serde_json::{Value, json};

use crate::error::{LoadError, LoadResult};
use fields::Fields;
use parts::{
    multiple, read_candidate, read_drafts, read_engram, read_quantization, read_ratios, read_yarn,
};

/// The config's file name in a checkpoint.
pub const CONFIG_FILE: &str = "config.json";

/// Widths that linears and quantisers work over come in blocks of this many channels.
const WIDTH: usize = 32;
const WIDTH_MAX: usize = 1 << 20;

/// A checkpoint's sizes and constants.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Token ids.
    pub vocab_size: usize,
    /// D, channels of one residual stream.
    pub hidden_size: usize,
    /// Layers of the target, draft blocks not counted.
    pub num_hidden_layers: usize,
    /// H, attention heads.
    pub num_attention_heads: usize,
    /// Channels of a head and of the latent.
    pub head_dim: usize,
    /// Channels at a vector's end that RoPE rotates.
    pub qk_rope_head_dim: usize,
    /// Rank of the query projection.
    pub q_lora_rank: usize,
    /// Groups of the output projection.
    pub o_groups: usize,
    /// Rank of each output group.
    pub o_lora_rank: usize,
    /// Positions of an attention window, the current one included.
    pub sliding_window: usize,
    /// Positions the model was made for.
    pub max_position_embeddings: usize,
    /// Positions of a compressed row, by target layer; 0: the window alone.
    pub compress_ratios: Vec<usize>,
    /// Layers that make compressed rows, ascending.
    pub kv_source_layer_ids: Vec<usize>,
    /// Layers that select compressed rows, ascending.
    pub index_source_layer_ids: Vec<usize>,
    /// The second level of selection, where there is one.
    pub candidate: Option<CandidateConfig>,
    /// Indexer heads.
    pub index_n_heads: usize,
    /// Channels of an index key.
    pub index_head_dim: usize,
    /// Compressed rows a query attends to, at most.
    pub index_topk: usize,
    /// RoPE base where the ratio is 0.
    pub rope_theta: f64,
    /// RoPE base where the ratio is above 0.
    pub compress_rope_theta: f64,
    /// YaRN where the ratio is above 0.
    pub rope_scaling: Option<Yarn>,
    /// Added to the mean square of every norm.
    pub rms_norm_eps: f64,
    /// Residual streams.
    pub hc_mult: usize,
    /// Sinkhorn iterations in all.
    pub hc_sinkhorn_iters: usize,
    /// Added in the hyper-connection mixes.
    pub hc_eps: f64,
    /// Routed experts of a layer.
    pub n_routed_experts: usize,
    /// Routed experts a row uses.
    pub num_experts_per_tok: usize,
    /// Hidden channels of an expert.
    pub moe_intermediate_size: usize,
    /// How router scores come from logits.
    pub scoring_func: Scoring,
    /// Divides the router's logits.
    pub gate_temp: f64,
    /// Whether the chosen scores are divided by their sum.
    pub norm_topk_prob: bool,
    /// Multiplies the routing weights.
    pub routed_scaling_factor: f64,
    /// Clamp of SwiGLU's inputs; 0 is none.
    pub swiglu_limit: f64,
    /// The Engram layers, where there are some.
    pub engram: Option<EngramConfig>,
    /// The draft blocks, where there are some.
    pub drafts: Option<DraftConfig>,
    /// Edge of an FP8 weight's scale tile.
    pub weight_block_size: usize,
    /// The id that begins a text.
    pub bos_token_id: Option<u32>,
    /// Ids that end a reply; empty where the config names none.
    pub eos_token_ids: Vec<u32>,
}

/// The second level of selection (model-spec section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CandidateConfig {
    /// The layer whose scores choose the blocks: `candidate_source_layer_id`.
    pub source_layer_id: usize,
    /// Blocks a query keeps, at most: `candidate_topk_blocks`.
    pub topk_blocks: usize,
    /// Compressed rows of a block: `candidate_block_size`.
    pub block_size: usize,
}

/// The `engram_*` fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngramConfig {
    /// Layers with an Engram, ascending.
    pub layer_ids: Vec<usize>,
    /// The primes are those from here on.
    pub vocab_size: u64,
    /// Table rows, by Engram layer.
    pub num_embeddings: Vec<usize>,
    /// Longest n-gram.
    pub max_ngram_size: usize,
    /// Hash heads of each n-gram size.
    pub n_heads: usize,
    /// Channels of a table row.
    pub head_dim: usize,
    /// The token id that stands for what lies before the prompt.
    pub pad_token_id: u32,
    /// Distinct ids of the token map.
    pub compressed_vocab_size: usize,
}

impl EngramConfig {
    /// Table rows a token reads in one layer.
    pub fn columns(&self) -> usize {
        (self.max_ngram_size - 1) * self.n_heads
    }
}

/// The draft blocks: `num_nextn_predict_layers` and the `dspark_*` fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftConfig {
    /// Draft blocks: `num_nextn_predict_layers`.
    pub layers: usize,
    /// Tokens one pass proposes.
    pub block_size: usize,
    /// The id at the rows after the anchor.
    pub noise_token_id: u32,
    /// Target layers whose inputs are tapped, ascending.
    pub target_layer_ids: Vec<usize>,
    /// Channels of the Markov head's embedding.
    pub markov_rank: usize,
    /// Routed experts of a draft block.
    pub n_routed_experts: usize,
    /// Routed experts a draft row uses.
    pub num_experts_per_tok: usize,
}

impl Config {
    /// Reads the config of the checkpoint in `dir`.
    ///
    /// # Errors
    /// The file cannot be read, or [`Config::parse`] refuses it.
    pub fn load(dir: &Path) -> LoadResult<Config> {
        let file = dir.join(CONFIG_FILE);
        Config::parse(&file, &finback_checkpoint::read_file(&file)?)
    }

    /// Reads a config, composite (`text_config`) or flat; `file` is for messages.
    ///
    /// # Errors
    /// Names the field that is missing, malformed, out of its range or that does not fit another.
    pub fn parse(file: &Path, text: &[u8]) -> LoadResult<Config> {
        let root: Value = serde_json::from_slice(text).map_err(|e| {
            let found = format!("text that does not parse ({e})");
            LoadError::config(file, "the file", found, "a JSON object")
        })?;
        let Value::Object(map) = &root else {
            return Err(LoadError::config(file, "the file", "no object", "a JSON object"));
        };
        let root = Fields { file, path: "", map };
        let text = root.object("text_config", "text_config.")?.unwrap_or(root);
        let config = read(&root, &text)?;
        schedule::check(&text, &config)?;
        Ok(config)
    }

    /// The layer whose compressed rows `layer` reads: the nearest kv source at or below it.
    pub fn kv_source(&self, layer: usize) -> Option<usize> {
        nearest(&self.kv_source_layer_ids, layer)
    }

    /// The layer whose selection `layer` uses: the nearest index source at or below it.
    pub fn index_source(&self, layer: usize) -> Option<usize> {
        nearest(&self.index_source_layer_ids, layer)
    }
}

fn nearest(sources: &[usize], layer: usize) -> Option<usize> {
    sources.iter().copied().rfind(|&s| s <= layer)
}

fn read(root: &Fields<'_>, t: &Fields<'_>) -> LoadResult<Config> {
    let width = |field| multiple(t, field, t.count(field, WIDTH..=WIDTH_MAX, None)?, WIDTH);
    let positive = |field, default| t.number(field, "a number above 0", |x| x > 0.0, default);
    let single = |field, default| t.single(field, "a number above 0", |x| x > 0.0, default);
    let not_negative =
        |field, default| t.single(field, "a number not below 0", |x| x >= 0.0, default);
    only_known(t)?;
    let vocab_size = t.count("vocab_size", 1..=(1 << 31) - 1, None)?;
    let layers = t.count("num_hidden_layers", 1..=1024, None)?;
    let n_routed_experts = t.count("n_routed_experts", 1..=4096, None)?;
    let topk = t.count("num_experts_per_tok", 1..=n_routed_experts, None)?;
    let special = if root.get("eos_token_id").is_some() { root } else { t };
    Ok(Config {
        vocab_size,
        hidden_size: width("hidden_size")?,
        num_hidden_layers: layers,
        num_attention_heads: t.count("num_attention_heads", 1..=4096, None)?,
        head_dim: width("head_dim")?,
        qk_rope_head_dim: t.count("qk_rope_head_dim", 2..=WIDTH_MAX, None)?,
        q_lora_rank: width("q_lora_rank")?,
        o_groups: t.count("o_groups", 1..=4096, None)?,
        o_lora_rank: t.count("o_lora_rank", 1..=WIDTH_MAX, None)?,
        sliding_window: t.count("sliding_window", 1..=WIDTH_MAX, None)?,
        max_position_embeddings: t.count("max_position_embeddings", 1..=1 << 30, None)?,
        compress_ratios: read_ratios(t, layers)?,
        kv_source_layer_ids: t.layers("kv_source_layer_ids", layers)?,
        index_source_layer_ids: t.layers("index_source_layer_ids", layers)?,
        candidate: read_candidate(t, layers)?,
        index_n_heads: t.count("index_n_heads", 1..=4096, None)?,
        index_head_dim: width("index_head_dim")?,
        index_topk: t.count("index_topk", 1..=WIDTH_MAX, None)?,
        rope_theta: positive("rope_theta", None)?,
        compress_rope_theta: positive("compress_rope_theta", None)?,
        rope_scaling: read_yarn(t)?,
        rms_norm_eps: not_negative("rms_norm_eps", Some(1e-20))?,
        hc_mult: t.count("hc_mult", 1..=16, Some(4))?,
        hc_sinkhorn_iters: t.count("hc_sinkhorn_iters", 1..=1000, Some(20))?,
        hc_eps: not_negative("hc_eps", Some(1e-6))?,
        n_routed_experts,
        num_experts_per_tok: topk,
        moe_intermediate_size: width("moe_intermediate_size")?,
        scoring_func: t.word("scoring_func", SCORING, Some(Scoring::SqrtSoftplus))?,
        gate_temp: single("gate_temp", Some(1.0))?,
        norm_topk_prob: t.flag("norm_topk_prob", true)?,
        routed_scaling_factor: single("routed_scaling_factor", Some(1.0))?,
        swiglu_limit: not_negative("swiglu_limit", Some(0.0))?,
        engram: read_engram(t, layers, vocab_size)?,
        drafts: read_drafts(t, layers, vocab_size, n_routed_experts, topk)?,
        weight_block_size: read_quantization(root, t)?,
        bos_token_id: special.optional_token("bos_token_id", vocab_size)?,
        eos_token_ids: special.tokens("eos_token_id", vocab_size)?,
    })
}

const SCORING: &[(&str, Scoring)] = &[
    ("sqrtsoftplus", Scoring::SqrtSoftplus),
    ("sigmoid", Scoring::Sigmoid),
    ("softmax", Scoring::Softmax),
];

/// Fields with one value this model knows.
fn only_known(t: &Fields<'_>) -> LoadResult<()> {
    t.only("tie_word_embeddings", &json!(false))?;
    t.only("attention_bias", &json!(false))?;
    t.only("hidden_act", &json!("silu"))?;
    t.only("n_shared_experts", &json!(1))?;
    t.only("num_key_value_heads", &json!(1))?;
    t.only("topk_method", &json!("noaux_tc"))
}

#[cfg(test)]
mod tests;
