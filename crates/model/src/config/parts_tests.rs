use serde_json::{Value, json};

use super::super::tests::{accepts, composite, parse, refusal};

#[test]
fn yarn_fields_have_their_lines() {
    let yarn = |field: &str, value: Value| {
        let mut y = composite()["text_config"]["rope_scaling"].clone();
        y[field] = value;
        json!({ "rope_scaling": y })
    };
    let cases = [
        ("rope_type", json!("linear"), "rope_type: found \"linear\", wanted \"yarn\""),
        ("factor", json!(0.5), "factor: found 0.5, wanted a number not below 1"),
        ("factor", Value::Null, "factor: found nothing, wanted a number not below 1"),
        ("beta_slow", json!(0), "beta_slow: found 0, wanted a number above 0"),
        ("beta_fast", json!(0.5), "beta_fast: found 0.5, wanted at least beta_slow, 1"),
        (
            "original_max_position_embeddings",
            Value::Null,
            "original_max_position_embeddings: found nothing, wanted a number not below 1",
        ),
    ];
    for (field, value, line) in cases {
        let text = refusal(&yarn(field, value));
        assert_eq!(text.replace("rope_scaling.", ""), line);
    }
    assert_eq!(accepts(&json!({"rope_scaling": {}})).rope_scaling, None);
}

#[test]
fn engram_fields_have_their_lines() {
    let cases = [
        (
            json!({"engram_num_embeddings": [1092, 1855]}),
            "engram_num_embeddings: found [1092, 1855], wanted [1092, 1854], the primes' sums",
        ),
        (
            json!({"engram_num_embeddings": [1092]}),
            "engram_num_embeddings: found [1092], wanted [1092, 1854], the primes' sums",
        ),
        (
            json!({"engram_layer_ids": [4, 1]}),
            "engram_layer_ids: found [4, 1], wanted each layer once, ascending",
        ),
        (json!({"engram_head_dim": 40}), "engram_head_dim: found 40, wanted a multiple of 32"),
        (
            json!({"engram_pad_token_id": 512}),
            "engram_pad_token_id: found 512, wanted a whole number from 0 to 511",
        ),
        (
            json!({"engram_compressed_vocab_size": 513}),
            "engram_compressed_vocab_size: found 513, wanted a whole number from 1 to 512",
        ),
        (
            json!({"engram_max_ngram_size": 1}),
            "engram_max_ngram_size: found 1, wanted a whole number from 2 to 16",
        ),
    ];
    for (fields, line) in cases {
        assert_eq!(refusal(&fields), line);
    }
    assert_eq!(accepts(&json!({"engram_layer_ids": []})).engram, None);
}

#[test]
fn draft_fields_have_their_lines() {
    let cases = [
        (
            json!({"dspark_block_size": 16}),
            "dspark_block_size: found 16, wanted a whole number from 0 to 15",
        ),
        (
            json!({"dspark_target_layer_ids": [6, 5]}),
            "dspark_target_layer_ids: found [6, 5], wanted each layer once, ascending",
        ),
        (
            json!({"dspark_target_layer_ids": [8]}),
            "dspark_target_layer_ids: found [8], wanted a list of whole numbers from 0 to 7",
        ),
        (
            json!({"dspark_target_layer_ids": []}),
            "dspark_target_layer_ids: found [], wanted at least one layer",
        ),
        (
            json!({"dspark_noise_token_id": 512}),
            "dspark_noise_token_id: found 512, wanted a whole number from 0 to 511",
        ),
        (
            json!({"dspark_n_routed_experts": 2, "dspark_num_experts_per_tok": null}),
            "dspark_n_routed_experts: found 2, wanted at least the 3 a row uses",
        ),
    ];
    for (fields, line) in cases {
        assert_eq!(refusal(&fields), line);
    }
    for off in [json!({"dspark_block_size": 0}), json!({"dspark_block_size": null})] {
        assert_eq!(accepts(&off).drafts, None);
    }
}

#[test]
fn the_quantisation_object_has_its_lines() {
    let refuse = |field: &str, value: Value| {
        let mut root = composite();
        root["quantization_config"][field] = value;
        parse(&root).unwrap_err().to_string()
    };
    let at = "config.json: quantization_config";
    assert_eq!(
        refuse("quant_method", json!("awq")),
        format!("{at}.quant_method: found \"awq\", wanted \"fp8\"")
    );
    assert_eq!(
        refuse("activation_scheme", json!("static")),
        format!("{at}.activation_scheme: found \"static\", wanted \"dynamic\"")
    );
    assert_eq!(
        refuse("scale_fmt", json!("fp32")),
        format!("{at}.scale_fmt: found \"fp32\", wanted \"ue8m0\"")
    );
    assert_eq!(
        refuse("expert_dtype", json!("int4")),
        format!("{at}.expert_dtype: found \"int4\", wanted \"fp4\" or \"fp8\" or \"bf16\"")
    );
    for block in [json!([32, 64]), json!([48, 48]), json!([32])] {
        let text = refuse("weight_block_size", block.clone());
        assert!(text.ends_with(", wanted two equal multiples of 32: square tiles"), "{text}");
    }
    assert!(refuse("weight_block_size", Value::Null).contains("weight_block_size: found nothing"));
    let mut root = composite();
    root["quantization_config"]["weight_block_size"] = json!([128, 128]);
    assert_eq!(parse(&root).unwrap().weight_block_size, 128);
}
