//! From options to the config: the layer schedule, and every field of the file.

use serde_json::{Map, Value, json};

use super::{SynthOptions, Vocabulary};
use crate::engram::primes_from;

/// Window layers at the bottom.
const WINDOW_LAYERS: usize = 2;
/// Longest n-gram of a synthetic Engram.
const NGRAM: usize = 4;
/// Tokens a draft pass proposes, and draft blocks, as in the release.
const DRAFT_TOKENS: usize = 5;
const DRAFT_BLOCKS: usize = 3;

/// The composite config that the options ask for.
pub(super) fn config_json(o: &SynthOptions, v: &Vocabulary<'_>) -> Value {
    let mut text = text_json(o, v);
    for (field, value) in &o.set {
        text[field] = value.clone();
    }
    if !o.set.contains_key("engram_num_embeddings") {
        text["engram_num_embeddings"] = json!(table_rows(&text));
    }
    json!({
        "architectures": ["DeepseekV41ForCausalLM"],
        "model_type": "deepseek_v41",
        "dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "quantization_config": {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [32, 32],
            "scale_fmt": "ue8m0",
            "expert_dtype": "fp4",
        },
        "text_config": text,
    })
}

fn text_json(o: &SynthOptions, v: &Vocabulary<'_>) -> Value {
    let layers = Schedule::of(o.layers);
    let draft_blocks = if o.drafts { DRAFT_BLOCKS } else { 0 };
    let mut ratios = layers.ratios;
    ratios.resize(o.layers + draft_blocks, 0);
    let targets: Vec<usize> = (o.layers.saturating_sub(3)..o.layers).collect();
    let widths = json!({
        "vocab_size": v.size,
        "hidden_size": o.hidden,
        "num_hidden_layers": o.layers,
        "num_attention_heads": o.heads,
        "num_key_value_heads": 1,
        "head_dim": o.head_dim,
        "qk_rope_head_dim": o.rope_dim,
        "q_lora_rank": o.q_rank,
        "o_groups": o.o_groups,
        "o_lora_rank": o.o_rank,
        "tie_word_embeddings": false,
        "attention_bias": false,
    });
    let positions = json!({
        "sliding_window": o.window,
        "max_position_embeddings": o.context,
        "rope_theta": 10000.0,
        "compress_rope_theta": 160_000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 16.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "original_max_position_embeddings": (o.context / 16).max(1),
        },
    });
    let selection = json!({
        "compress_ratios": ratios,
        "kv_source_layer_ids": layers.kv_sources,
        "index_source_layer_ids": layers.index_sources,
        "candidate_source_layer_id": layers.candidate.map_or(-1, |layer| layer as i64),
        "candidate_topk_blocks": (o.index_topk / 4).max(1),
        "candidate_block_size": 8,
        "index_n_heads": o.index_heads,
        "index_head_dim": o.index_dim,
        "index_topk": o.index_topk,
    });
    let experts = json!({
        "n_routed_experts": o.experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": o.experts_per_token,
        "moe_intermediate_size": o.intermediate,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "gate_temp": 1.0,
        "norm_topk_prob": true,
        "routed_scaling_factor": 1.5,
        "hidden_act": "silu",
        "swiglu_limit": 10.0,
    });
    let streams = json!({
        "rms_norm_eps": 1e-20,
        "hc_mult": 4,
        "hc_sinkhorn_iters": 20,
        "hc_eps": 1e-6,
    });
    let engram = json!({
        "engram_layer_ids": if o.engram { engram_layers(o.layers) } else { vec![] },
        "engram_vocab_size": o.engram_vocab,
        "engram_max_ngram_size": NGRAM,
        "engram_n_heads": o.engram_heads,
        "engram_head_dim": o.engram_dim,
        "engram_pad_token_id": 2,
        "engram_compressed_vocab_size": v.compressed_size,
    });
    let draft_experts = (o.experts / 2).max(1);
    let drafts = json!({
        "num_nextn_predict_layers": draft_blocks,
        "dspark_block_size": if o.drafts { DRAFT_TOKENS } else { 0 },
        "dspark_noise_token_id": v.noise,
        "dspark_target_layer_ids": if o.drafts { targets } else { vec![] },
        "dspark_markov_rank": 32,
        "dspark_n_routed_experts": draft_experts,
        "dspark_num_experts_per_tok": o.experts_per_token.div_ceil(2).min(draft_experts),
    });
    let mut text = Map::from_iter([("model_type".to_owned(), json!("deepseek_v41_text"))]);
    for part in [widths, positions, selection, experts, streams, engram, drafts] {
        if let Value::Object(fields) = part {
            text.extend(fields);
        }
    }
    Value::Object(text)
}

/// Which layers do what; the release's schedule at 40 layers.
struct Schedule {
    ratios: Vec<usize>,
    kv_sources: Vec<usize>,
    index_sources: Vec<usize>,
    candidate: Option<usize>,
}

impl Schedule {
    /// Two window layers; ratio 2 up to the middle with a kv source every sixth of the depth;
    /// ratio 1 from the middle on, whose first layer is the candidate source and every fifth of the
    /// rest selects again.
    fn of(layers: usize) -> Schedule {
        let middle = (layers / 2).max(WINDOW_LAYERS + 1);
        let step = ((middle.min(layers).saturating_sub(WINDOW_LAYERS)) / 3).max(2);
        let mut kv_sources: Vec<usize> =
            (WINDOW_LAYERS..middle.min(layers)).step_by(step).collect();
        let mut index_sources = kv_sources.clone();
        let candidate = (middle < layers).then_some(middle);
        if let Some(middle) = candidate {
            kv_sources.push(middle);
            let step = ((layers - middle) / 5).max(2);
            index_sources.extend((middle..layers).step_by(step));
        }
        let ratio = |layer| match layer {
            _ if layer < WINDOW_LAYERS => 0,
            _ if layer < middle => 2,
            _ => 1,
        };
        Schedule { ratios: (0..layers).map(ratio).collect(), kv_sources, index_sources, candidate }
    }
}

/// What sets a layer apart from others of a schedule, its Engram left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerKind {
    /// Positions of a compressed row; 0: the window alone.
    pub ratio: usize,
    /// Whether it makes compressed rows.
    pub makes_rows: bool,
    /// Whether it selects rows.
    pub selects: bool,
    /// Whether its selection is the candidates of layers above.
    pub candidates: bool,
}

/// The kind of every layer of a synthetic checkpoint of so many; of 40, those of the release.
pub fn layer_kinds(layers: usize) -> Vec<LayerKind> {
    let schedule = Schedule::of(layers);
    let kind = |(layer, &ratio)| LayerKind {
        ratio,
        makes_rows: schedule.kv_sources.contains(&layer),
        selects: schedule.index_sources.contains(&layer),
        candidates: schedule.candidate == Some(layer),
    };
    schedule.ratios.iter().enumerate().map(kind).collect()
}

/// As in the release at 40 layers: 1 and 14.
fn engram_layers(layers: usize) -> Vec<usize> {
    let mut ids = vec![1, (layers * 7 / 20).max(2)];
    ids.retain(|&id| id < layers);
    ids
}

/// The primes' sums of the fields as they stand. Fields that make no sense give any sums: the
/// config's own check names them.
fn table_rows(text: &Value) -> Vec<u64> {
    let number = |field: &str, most: u64| text[field].as_u64().unwrap_or(0).min(most);
    let tables = text["engram_layer_ids"].as_array().map_or(0, Vec::len).min(1024);
    let columns =
        number("engram_max_ngram_size", 16).saturating_sub(1) * number("engram_n_heads", 64);
    let from = number("engram_vocab_size", 1 << 40);
    primes_from(from, tables, columns as usize).iter().map(|p| p.iter().sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_layers_are_the_releases() {
        let s = Schedule::of(40);
        let ratios = [vec![0; 2], vec![2; 18], vec![1; 20]].concat();
        assert_eq!((s.ratios, s.candidate), (ratios, Some(20)));
        assert_eq!(s.kv_sources, [2, 8, 14, 20]);
        assert_eq!(s.index_sources, [2, 8, 14, 20, 24, 28, 32, 36]);
        assert_eq!(engram_layers(40), [1, 14]);
    }

    #[test]
    fn ten_layers_have_one_of_every_kind() {
        let s = Schedule::of(10);
        assert_eq!(s.ratios, [0, 0, 2, 2, 2, 1, 1, 1, 1, 1]);
        assert_eq!((s.kv_sources, s.candidate), (vec![2, 4, 5], Some(5)));
        assert_eq!(s.index_sources, [2, 4, 5, 7, 9]);
        let ten = layer_kinds(10);
        assert!(layer_kinds(40).iter().all(|kind| ten.contains(kind)));
        assert!(layer_kinds(4).len() == 4 && !layer_kinds(4).contains(&ten[6]));
    }
}
