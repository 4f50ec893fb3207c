use proptest::prelude::*;
use serde_json::Map;

use super::*;

const FILE: &str = "config.json";

/// The config of the stored checkpoint that has every part.
pub(super) fn composite() -> Value {
    let text = std::fs::read(finback_testkit::checkpoint("full").join(CONFIG_FILE)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

pub(super) fn parse(value: &Value) -> LoadResult<Config> {
    Config::parse(Path::new(FILE), value.to_string().as_bytes())
}

/// The refusal of the config with some text fields replaced; null takes a field out.
pub(super) fn refusal(fields: &Value) -> String {
    let mut root = composite();
    let text = root["text_config"].as_object_mut().unwrap();
    text.extend(fields.as_object().unwrap().clone());
    match parse(&root) {
        Err(e) => e.to_string().replace("config.json: text_config.", ""),
        Ok(_) => panic!("{fields} is accepted"),
    }
}

pub(super) fn accepts(fields: &Value) -> Config {
    let mut root = composite();
    root["text_config"].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    parse(&root).unwrap()
}

#[test]
fn the_stored_configs_are_read_whole() {
    let c = parse(&composite()).unwrap();
    assert_eq!((c.vocab_size, c.hidden_size, c.num_hidden_layers), (512, 128, 8));
    assert_eq!((c.head_dim, c.qk_rope_head_dim, c.q_lora_rank), (64, 32, 64));
    assert_eq!(c.compress_ratios, [0, 0, 2, 2, 2, 1, 1, 1]);
    assert_eq!(c.kv_source_layer_ids, [2, 4, 5]);
    assert_eq!(c.index_source_layer_ids, [2, 4, 5, 7]);
    let candidate = CandidateConfig { source_layer_id: 5, topk_blocks: 4, block_size: 8 };
    assert_eq!(c.candidate, Some(candidate));
    let yarn = Yarn { factor: 16.0, beta_fast: 32.0, beta_slow: 1.0, original: 512.0 };
    assert_eq!(c.rope_scaling, Some(yarn));
    assert_eq!((c.rms_norm_eps, c.hc_eps), (1e-20, 1e-6));
    assert_eq!((c.hc_mult, c.hc_sinkhorn_iters), (4, 20));
    assert_eq!((c.routed_scaling_factor, c.swiglu_limit), (1.5, 10.0));
    assert_eq!((c.scoring_func, c.norm_topk_prob), (Scoring::SqrtSoftplus, true));
    let e = c.engram.as_ref().unwrap();
    assert_eq!(e.num_embeddings, [1092, 1854]);
    assert_eq!((e.columns(), e.pad_token_id, e.compressed_vocab_size), (12, 2, 400));
    let d = c.drafts.as_ref().unwrap();
    assert_eq!((d.layers, d.block_size, d.noise_token_id, d.markov_rank), (3, 5, 500, 32));
    assert_eq!((d.n_routed_experts, d.num_experts_per_tok), (4, 2));
    assert_eq!(d.target_layer_ids, [5, 6, 7]);
    assert_eq!((c.weight_block_size, c.bos_token_id), (32, Some(0)));
    assert_eq!(c.eos_token_ids, [1]);

    for (name, engram) in [("no-engram", false), ("engram", true)] {
        let c = Config::load(&finback_testkit::checkpoint(name)).unwrap();
        assert_eq!((c.engram.is_some(), c.drafts.is_some()), (engram, false));
    }
}

#[test]
fn flat_and_composite_are_the_same() {
    let root = composite();
    let mut flat = root["text_config"].as_object().unwrap().clone();
    let mut rest = root.as_object().unwrap().clone();
    rest.remove("text_config");
    rest.remove("model_type");
    flat.extend(rest);
    let flat = parse(&Value::Object(flat)).unwrap();
    assert_eq!(flat, parse(&root).unwrap());

    // The text object alone: the format's own block, and no ids that end a reply.
    let alone = parse(&root["text_config"]).unwrap();
    assert_eq!(alone, Config { bos_token_id: None, eos_token_ids: vec![], ..flat });
}

#[test]
fn kv_and_index_sources_are_the_nearest_below() {
    let c = parse(&composite()).unwrap();
    let kv: Vec<_> = (0..8).map(|l| c.kv_source(l)).collect();
    assert_eq!(kv[..2], [None, None]);
    assert_eq!(kv[2..], [2, 2, 4, 5, 5, 5].map(Some));
    assert_eq!(c.index_source(6), Some(5));
    assert_eq!(c.index_source(7), Some(7));
}

#[test]
fn fields_left_out_take_the_releases_own_defaults() {
    let root = json!({
        "rms_norm_eps": null, "hc_eps": null, "hc_mult": null, "hc_sinkhorn_iters": null,
        "scoring_func": null, "gate_temp": null, "norm_topk_prob": null,
        "routed_scaling_factor": null, "swiglu_limit": null, "rope_scaling": null,
        "candidate_source_layer_id": -1, "dspark_n_routed_experts": null,
        "dspark_num_experts_per_tok": 0, "engram_pad_token_id": null, "engram_pad_id": 9,
        "some_new_field": {"x": 1},
    });
    let c = accepts(&root);
    assert_eq!((c.rms_norm_eps, c.hc_eps, c.hc_mult, c.hc_sinkhorn_iters), (1e-20, 1e-6, 4, 20));
    assert_eq!((c.routed_scaling_factor, c.swiglu_limit, c.rope_scaling), (1.0, 0.0, None));
    assert_eq!(c.candidate, None);
    let d = c.drafts.unwrap();
    assert_eq!((d.n_routed_experts, d.num_experts_per_tok), (8, 3));
    assert_eq!(c.engram.unwrap().pad_token_id, 9);
}

#[test]
fn a_field_that_must_be_there() {
    for field in [
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "head_dim",
        "qk_rope_head_dim",
        "q_lora_rank",
        "o_groups",
        "o_lora_rank",
        "sliding_window",
        "max_position_embeddings",
        "compress_ratios",
        "kv_source_layer_ids",
        "index_source_layer_ids",
        "index_n_heads",
        "index_head_dim",
        "index_topk",
        "rope_theta",
        "compress_rope_theta",
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "candidate_topk_blocks",
        "candidate_block_size",
        "engram_vocab_size",
        "engram_num_embeddings",
        "engram_max_ngram_size",
        "engram_n_heads",
        "engram_head_dim",
        "engram_compressed_vocab_size",
        "dspark_target_layer_ids",
        "dspark_markov_rank",
    ] {
        let text = refusal(&json!({ field: null }));
        assert!(text.starts_with(&format!("{field}: found nothing, wanted ")), "{text}");
    }
}

#[test]
fn ranges_and_types_have_their_lines() {
    let cases = [
        (
            json!({"vocab_size": 0}),
            "vocab_size: found 0, wanted a whole number from 1 to 2147483647",
        ),
        (
            json!({"hidden_size": "x"}),
            "hidden_size: found \"x\", wanted a whole number from 32 to 1048576",
        ),
        (json!({"hidden_size": 130}), "hidden_size: found 130, wanted a multiple of 32"),
        (json!({"head_dim": 48}), "head_dim: found 48, wanted a multiple of 32"),
        (json!({"q_lora_rank": 65}), "q_lora_rank: found 65, wanted a multiple of 32"),
        (json!({"index_head_dim": 80}), "index_head_dim: found 80, wanted a multiple of 32"),
        (
            json!({"moe_intermediate_size": 72}),
            "moe_intermediate_size: found 72, wanted a multiple of 32",
        ),
        (
            json!({"num_hidden_layers": 8.5}),
            "num_hidden_layers: found 8.5, wanted a whole number from 1 to 1024",
        ),
        (
            json!({"num_attention_heads": 3}),
            "num_attention_heads: found 3, wanted a multiple of o_groups, 2",
        ),
        (
            json!({"o_lora_rank": 24}),
            "o_lora_rank: found 24, wanted 32 to divide o_groups * o_lora_rank (o_groups is 2)",
        ),
        (
            json!({"qk_rope_head_dim": 33}),
            "qk_rope_head_dim: found 33, wanted an even number up to 64 (head_dim and index_head_dim)",
        ),
        (
            json!({"qk_rope_head_dim": 96}),
            "qk_rope_head_dim: found 96, wanted an even number up to 64 (head_dim and index_head_dim)",
        ),
        (
            json!({"sliding_window": -1}),
            "sliding_window: found -1, wanted a whole number from 1 to 1048576",
        ),
        (json!({"rope_theta": 0}), "rope_theta: found 0, wanted a number above 0"),
        (json!({"rms_norm_eps": -1}), "rms_norm_eps: found -1, wanted a number not below 0"),
        (json!({"gate_temp": 0.0}), "gate_temp: found 0.0, wanted a number above 0"),
        (
            json!({"gate_temp": 1e-300}),
            "gate_temp: found 1e-300, wanted a number above 0 that single precision holds, 1.2e-38 \
             to 3.4e38",
        ),
        (
            json!({"routed_scaling_factor": 1e300}),
            "routed_scaling_factor: found 1e300, wanted a number above 0 that single precision \
             holds, 1.2e-38 to 3.4e38",
        ),
        (
            json!({"swiglu_limit": 1e-300}),
            "swiglu_limit: found 1e-300, wanted a number not below 0 that single precision holds, \
             1.2e-38 to 3.4e38",
        ),
        (json!({"norm_topk_prob": 1}), "norm_topk_prob: found 1, wanted true or false"),
        (
            json!({"hc_sinkhorn_iters": 0}),
            "hc_sinkhorn_iters: found 0, wanted a whole number from 1 to 1000",
        ),
        (
            json!({"num_experts_per_tok": 9}),
            "num_experts_per_tok: found 9, wanted a whole number from 1 to 8",
        ),
        (
            json!({"scoring_func": "tanh"}),
            "scoring_func: found \"tanh\", wanted \"sqrtsoftplus\" or \"sigmoid\" or \"softmax\"",
        ),
        (json!({"tie_word_embeddings": true}), "tie_word_embeddings: found true, wanted false"),
        (json!({"attention_bias": true}), "attention_bias: found true, wanted false"),
        (json!({"hidden_act": "gelu"}), "hidden_act: found \"gelu\", wanted \"silu\""),
        (json!({"n_shared_experts": 2}), "n_shared_experts: found 2, wanted 1"),
        (json!({"num_key_value_heads": 2}), "num_key_value_heads: found 2, wanted 1"),
        (json!({"topk_method": "greedy"}), "topk_method: found \"greedy\", wanted \"noaux_tc\""),
        (json!({"rope_scaling": 3}), "rope_scaling: found 3, wanted an object"),
    ];
    for (fields, line) in cases {
        assert_eq!(refusal(&fields), line);
    }
    let long = refusal(&json!({"scoring_func": "x".repeat(500)}));
    assert!(long.len() < 250, "{long}");
}

#[test]
fn special_ids_lie_in_the_vocabulary() {
    let mut root = composite();
    root["eos_token_id"] = json!([1, 5]);
    assert_eq!(parse(&root).unwrap().eos_token_ids, [1, 5]);
    root["eos_token_id"] = json!(512);
    assert_eq!(
        parse(&root).unwrap_err().to_string(),
        "config.json: eos_token_id: found 512, wanted a whole number from 0 to 511"
    );
}

#[test]
fn what_is_no_config() {
    let say = |text: &str| Config::parse(Path::new(FILE), text.as_bytes()).unwrap_err().to_string();
    assert_eq!(say("[]"), "config.json: the file: found no object, wanted a JSON object");
    assert_eq!(
        say("{"),
        "config.json: the file: found text that does not parse (EOF while parsing an object at \
         line 1 column 1), wanted a JSON object"
    );
    assert!(say("{}").starts_with("config.json: vocab_size: found nothing"));
    assert_eq!(say(r#"{"text_config":1}"#), "config.json: text_config: found 1, wanted an object");
    let dir = finback_testkit::temp_dir();
    let text = Config::load(dir.path()).unwrap_err().to_string();
    assert!(text.ends_with("config.json: No such file or directory (os error 2)"), "{text}");
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..40).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        Just(json!("yarn")),
        prop::collection::vec(0u64..12, 0..12).prop_map(Value::from),
        Just(Value::Object(Map::new())),
    ]
}

proptest! {
    #[test]
    fn any_change_gives_a_config_or_one_line(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_value()), 1..4),
    ) {
        let mut root = composite();
        let text = root["text_config"].as_object_mut().unwrap();
        let names: Vec<String> = text.keys().cloned().collect();
        for (at, value) in changes {
            text.insert(at.get(&names).clone(), value);
        }
        if let Err(e) = parse(&root) {
            let line = e.to_string();
            prop_assert!(line.starts_with("config.json: ") && !line.contains('\n'), "{}", line);
        }
    }
}
