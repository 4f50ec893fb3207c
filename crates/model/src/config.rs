//! `config.json`: every size and constant of the model, checked.
//!
//! Field names are the JSON's. A value that the release states is required; a few have the
//! defaults that the release's own code has. Fields that the text model does not read
//! (`vision_config` and the like) are left alone.

mod fields;
mod schedule;

use std::path::Path;

use finback_ops::{Scoring, Yarn};
use serde_json::{Value, json};

use crate::engram::primes;
use crate::error::{LoadError, LoadResult};
use fields::Fields;

/// The config's file name in a checkpoint.
pub const CONFIG_FILE: &str = "config.json";

/// Rows of one verify window: the newest token and its drafts.
const WINDOW_ROWS_MAX: usize = 16;
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
        let text = std::fs::read(&file)
            .map_err(|source| finback_checkpoint::Error::Io { file: file.clone(), source })?;
        Config::parse(&file, &text)
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
    let not_negative =
        |field, default| t.number(field, "a number not below 0", |x| x >= 0.0, default);
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
        gate_temp: positive("gate_temp", Some(1.0))?,
        norm_topk_prob: t.flag("norm_topk_prob", true)?,
        routed_scaling_factor: positive("routed_scaling_factor", Some(1.0))?,
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

fn multiple(t: &Fields<'_>, field: &str, value: usize, of: usize) -> LoadResult<usize> {
    match value % of {
        0 => Ok(value),
        _ => Err(t.refuse(field, value, format!("a multiple of {of}"))),
    }
}

/// The target's ratios; entries for draft blocks may follow, which have to be 0.
fn read_ratios(t: &Fields<'_>, layers: usize) -> LoadResult<Vec<usize>> {
    let field = "compress_ratios";
    let mut ratios = t.counts(field, 0..=256)?;
    if ratios.len() < layers {
        let found = format!("{} entries", ratios.len());
        return Err(t.refuse(field, found, format!("one a layer, {layers} (num_hidden_layers)")));
    }
    if ratios[layers..].iter().any(|&r| r > 0) {
        let found = format!("{:?} after the {layers} layers", &ratios[layers..]);
        return Err(t.refuse(field, found, "0 for each draft block"));
    }
    ratios.truncate(layers);
    Ok(ratios)
}

fn read_candidate(t: &Fields<'_>, layers: usize) -> LoadResult<Option<CandidateConfig>> {
    let field = "candidate_source_layer_id";
    if t.get(field).is_none_or(|v| v.as_i64().is_some_and(|id| id < 0)) {
        return Ok(None);
    }
    Ok(Some(CandidateConfig {
        source_layer_id: t.count(field, 0..=layers - 1, None)?,
        topk_blocks: t.count("candidate_topk_blocks", 1..=1 << 30, None)?,
        block_size: t.count("candidate_block_size", 1..=1 << 20, None)?,
    }))
}

fn read_yarn(t: &Fields<'_>) -> LoadResult<Option<Yarn>> {
    let path = if t.path.is_empty() { "rope_scaling." } else { "text_config.rope_scaling." };
    let Some(y) = t.object("rope_scaling", path)? else { return Ok(None) };
    if y.map.is_empty() {
        return Ok(None);
    }
    // Older files say `type`.
    let field = if y.get("rope_type").is_some() { "rope_type" } else { "type" };
    y.word(field, &[("yarn", ())], Some(()))?;
    let from_one = |field, default| y.number(field, "a number not below 1", |x| x >= 1.0, default);
    let above_zero = |field, default| y.number(field, "a number above 0", |x| x > 0.0, default);
    let yarn = Yarn {
        factor: from_one("factor", None)?,
        beta_fast: above_zero("beta_fast", Some(32.0))?,
        beta_slow: above_zero("beta_slow", Some(1.0))?,
        original: from_one("original_max_position_embeddings", None)?,
    };
    if yarn.beta_fast < yarn.beta_slow {
        let wanted = format!("at least beta_slow, {}", yarn.beta_slow);
        return Err(y.refuse("beta_fast", yarn.beta_fast, wanted));
    }
    Ok(Some(yarn))
}

fn read_engram(t: &Fields<'_>, layers: usize, vocab: usize) -> LoadResult<Option<EngramConfig>> {
    if t.get("engram_layer_ids").is_none_or(|v| v.as_array().is_some_and(Vec::is_empty)) {
        return Ok(None);
    }
    // The field's older name.
    let pad = ["engram_pad_token_id", "engram_pad_id"];
    let pad = if t.get(pad[0]).is_some() { pad[0] } else { pad[1] };
    let head_dim = t.count("engram_head_dim", WIDTH..=1 << 16, None)?;
    let e = EngramConfig {
        layer_ids: t.layers("engram_layer_ids", layers)?,
        vocab_size: t.count("engram_vocab_size", 2..=1 << 40, None)? as u64,
        max_ngram_size: t.count("engram_max_ngram_size", 2..=16, None)?,
        n_heads: t.count("engram_n_heads", 1..=64, None)?,
        head_dim: multiple(t, "engram_head_dim", head_dim, WIDTH)?,
        pad_token_id: t.token(pad, vocab, Some(2.min(vocab - 1)))?,
        compressed_vocab_size: t.count("engram_compressed_vocab_size", 1..=vocab, None)?,
        // Last: its message is about the fields before it.
        num_embeddings: t.counts("engram_num_embeddings", 1..=1 << 44)?,
    };
    let sums: Vec<u64> = primes(&e).iter().map(|p| p.iter().sum()).collect();
    if !e.num_embeddings.iter().map(|&n| n as u64).eq(sums.iter().copied()) {
        let found = format!("{:?}", e.num_embeddings);
        return Err(t.refuse(
            "engram_num_embeddings",
            found,
            format!("{sums:?}, the primes' sums"),
        ));
    }
    Ok(Some(e))
}

fn read_drafts(
    t: &Fields<'_>,
    layers: usize,
    vocab: usize,
    experts: usize,
    topk: usize,
) -> LoadResult<Option<DraftConfig>> {
    let block_size = t.count("dspark_block_size", 0..=WINDOW_ROWS_MAX - 1, Some(0))?;
    let blocks = t.count("num_nextn_predict_layers", 0..=64, Some(0))?;
    if block_size == 0 || blocks == 0 {
        return Ok(None);
    }
    let field = "dspark_target_layer_ids";
    let target_layer_ids = t.layers(field, layers)?;
    if target_layer_ids.is_empty() {
        return Err(t.refuse(field, "[]", "at least one layer"));
    }
    // 0 means the target's own number.
    let or = |field, most: usize, own: usize| -> LoadResult<usize> {
        Ok(match t.count(field, 0..=most, Some(0))? {
            0 => own,
            n => n,
        })
    };
    let n_routed_experts = or("dspark_n_routed_experts", 4096, experts)?;
    let num_experts_per_tok = or("dspark_num_experts_per_tok", n_routed_experts, topk)?;
    if num_experts_per_tok > n_routed_experts {
        let found = format!("{n_routed_experts}");
        let wanted = format!("at least the {num_experts_per_tok} a row uses");
        return Err(t.refuse("dspark_n_routed_experts", found, wanted));
    }
    Ok(Some(DraftConfig {
        layers: blocks,
        block_size,
        noise_token_id: t.token("dspark_noise_token_id", vocab, Some(0))?,
        target_layer_ids,
        markov_rank: t.count("dspark_markov_rank", 1..=WIDTH_MAX, None)?,
        n_routed_experts,
        num_experts_per_tok,
    }))
}

/// The edge of an FP8 scale tile. Without the object it is the format's own 32, and every scale
/// tensor's shape has to agree.
fn read_quantization(root: &Fields<'_>, text: &Fields<'_>) -> LoadResult<usize> {
    let field = "quantization_config";
    let q = match root.object(field, "quantization_config.")? {
        Some(q) => q,
        None => match text.object(field, "text_config.quantization_config.")? {
            Some(q) => q,
            None => return Ok(WIDTH),
        },
    };
    q.word("quant_method", &[("fp8", ())], None)?;
    q.word("activation_scheme", &[("dynamic", ())], None)?;
    q.word("scale_fmt", &[("ue8m0", ())], None)?;
    q.word("expert_dtype", &[("fp4", ()), ("fp8", ()), ("bf16", ())], Some(()))?;
    let field = "weight_block_size";
    match q.counts(field, WIDTH..=1 << 16)?[..] {
        [rows, columns] if rows == columns && rows % WIDTH == 0 => Ok(rows),
        ref other => {
            Err(q.refuse(field, format!("{other:?}"), "two equal multiples of 32: square tiles"))
        }
    }
}

#[cfg(test)]
mod tests;
