use std::path::Path;

use serde_json::json;

use super::*;
use crate::synth::{SynthOptions, Vocabulary, write};

/// The released config (model-spec section 1).
pub(crate) fn release() -> Config {
    let ratios = [vec![0; 2], vec![2; 18], vec![1; 20], vec![0; 3]].concat();
    let text = json!({
        "vocab_size": 129_280, "hidden_size": 5120, "num_hidden_layers": 40,
        "num_attention_heads": 64, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1280,
        "o_groups": 8, "o_lora_rank": 1024, "sliding_window": 128,
        "max_position_embeddings": 1_048_576,
        "compress_ratios": ratios,
        "kv_source_layer_ids": [2, 8, 14, 20],
        "index_source_layer_ids": [2, 8, 14, 20, 24, 28, 32, 36],
        "candidate_source_layer_id": 20, "candidate_topk_blocks": 2048, "candidate_block_size": 8,
        "index_n_heads": 32, "index_head_dim": 128, "index_topk": 512,
        "rope_theta": 10000, "compress_rope_theta": 160_000,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
            "original_max_position_embeddings": 65536,
        },
        "n_routed_experts": 384, "num_experts_per_tok": 6, "moe_intermediate_size": 2304,
        "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
    });
    let parts = json!({
        "engram_layer_ids": [1, 14], "engram_vocab_size": 16_000_000,
        "engram_num_embeddings": [384_006_168, 384_016_682], "engram_max_ngram_size": 4,
        "engram_n_heads": 8, "engram_head_dim": 256, "engram_compressed_vocab_size": 99_092,
        "num_nextn_predict_layers": 3, "dspark_block_size": 5, "dspark_noise_token_id": 128_799,
        "dspark_target_layer_ids": [37, 38, 39], "dspark_markov_rank": 256,
        "dspark_n_routed_experts": 128, "dspark_num_experts_per_tok": 3,
    });
    let mut text = text.as_object().unwrap().clone();
    text.extend(parts.as_object().unwrap().clone());
    Config::parse(Path::new("config.json"), json!(text).to_string().as_bytes()).unwrap()
}

#[test]
fn the_release_keeps_890_bytes_a_position() {
    let s = StateBytes::of(&release());
    assert_eq!((s.compressed_row, s.window_row), (356, 528));
    assert_eq!(s.kv_per_position(), 890.0);
    assert_eq!(s.block, 256 * 890);
    assert_eq!((s.rings, s.draft_rings), (40 * 128 * 528, 3 * 128 * 528));
    // Three sources of ratio 2: one raw row each, kv and gate.
    assert_eq!(s.open_groups, 3 * 2 * 512 * 4);
}

#[test]
fn the_release_reads_its_12_9_gigabytes_a_round() {
    let (config, census) = (release(), Census::released(&release()));
    let expert = census.bytes(|w| w.name.starts_with("layers.7.ffn.experts.33."));
    assert_eq!(expert, 18_800_640);
    let round = RoundBytes::of(&config, &census);
    assert_eq!(round.experts, 40 * 6 * 18_800_640);
    let total = round.total() as f64 / 1e9;
    assert!((12.85..13.05).contains(&total), "{total} GB");
    // Two tables of 101 GB, and 48 rows of 264 bytes a token.
    assert_eq!(census.table_bytes(), (384_006_168 + 384_016_682) * 264);
    let projections = census.bytes(|w| w.class == Class::Engram) - census.table_bytes();
    assert_eq!(round.engram - projections, 48 * 264);
}

#[test]
fn a_checkpoint_is_counted_as_its_config_declares() {
    for name in finback_testkit::CHECKPOINTS {
        let dir = finback_testkit::checkpoint(name);
        let config = Config::load(&dir).unwrap();
        let ck = Checkpoint::open(&dir).unwrap();
        let held = Census::of(&config, &ck).unwrap();
        assert_eq!(held.classes(&config), Census::released(&config).classes(&config));
        assert_eq!(
            RoundBytes::of(&config, &held),
            RoundBytes::of(&config, &Census::released(&config))
        );
        let tensors: usize = held.classes(&config).iter().map(|t| t.tensors).sum();
        let bytes: u64 = held.classes(&config).iter().map(|t| t.bytes).sum();
        assert_eq!(tensors, ck.tensors().len());
        assert_eq!(bytes, ck.tensors().map(|t| t.bytes().len() as u64).sum::<u64>());
        let classes: Vec<_> = held.classes(&config).iter().map(|t| t.class).collect();
        assert_eq!(classes.contains(&Class::Drafts), name == "full");
        assert_eq!(classes.contains(&Class::Engram), name != "no-engram");
    }
}

#[test]
fn tensors_of_other_parts_are_counted_apart() {
    let dir = finback_testkit::temp_dir();
    let options = SynthOptions { layers: 2, engram: false, drafts: false, ..Default::default() };
    let config = write(dir.path(), &options, &Vocabulary::bare(64)).unwrap();
    let extra = |name: &str, bytes| finback_checkpoint::Entry {
        name: name.into(),
        dtype: finback_checkpoint::Dtype::U8,
        shape: vec![bytes],
    };
    // Without an index every shard of the directory counts.
    std::fs::remove_file(dir.path().join(finback_checkpoint::INDEX_FILE)).unwrap();
    let entries = [extra("vision.a", 10), extra("image_start", 5), extra("mtp.9.x", 3)];
    let file = dir.path().join("extra.safetensors");
    finback_checkpoint::write_file(&file, &entries, |_, out| out.hole()).unwrap();
    let census = Census::of(&config, &Checkpoint::open(dir.path()).unwrap()).unwrap();
    assert_eq!(census.unread, [(Class::Vision, 2, 15), (Class::Other, 1, 3)]);
    let last = census.classes(&config).pop().unwrap();
    assert_eq!((last.class, last.tensors, last.bytes, last.parameters), (Class::Other, 1, 3, 0));
}
