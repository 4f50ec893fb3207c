use serde_json::json;

use super::super::tests::{accepts, refusal};

#[test]
fn schedules_that_do_not_fit_have_their_lines() {
    let cases = [
        (
            json!({"compress_ratios": [0, 0, 2]}),
            "compress_ratios: found 3 entries, wanted one a layer, 8 (num_hidden_layers)",
        ),
        (
            json!({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, 1, 0, 1, 0]}),
            "compress_ratios: found [0, 1, 0] after the 8 layers, wanted 0 for each draft block",
        ),
        (
            json!({"compress_ratios": [0, 2, 2, 2, 2, 1, 1, 1]}),
            "compress_ratios: found ratio 2 at layer 1, wanted 0 below the first of kv_source_layer_ids",
        ),
        (
            json!({"compress_ratios": [0, 0, 2, 1, 2, 1, 1, 1]}),
            "compress_ratios: found ratio 1 at layer 3, wanted 2, that of its kv source, layer 2",
        ),
        (
            json!({"compress_ratios": [0, 0, 3, 3, 2, 1, 1, 1]}),
            "compress_ratios: found ratio 3 at layer 2, wanted 0 or a divisor of 256, a KV block's positions",
        ),
        (
            json!({"compress_ratios": [0, 0, 0, 0, 2, 1, 1, 1]}),
            "kv_source_layer_ids: found 2, wanted layers whose compress_ratios entry is above 0",
        ),
        (
            json!({"kv_source_layer_ids": [2, 4, 5, 6], "candidate_source_layer_id": -1}),
            "kv_source_layer_ids: found 6, wanted layers that are in index_source_layer_ids too",
        ),
        (
            json!({"kv_source_layer_ids": [2, 5, 4]}),
            "kv_source_layer_ids: found [2, 5, 4], wanted each layer once, ascending",
        ),
        (
            json!({"kv_source_layer_ids": [2, 4, 4, 5]}),
            "kv_source_layer_ids: found [2, 4, 4, 5], wanted each layer once, ascending",
        ),
        (
            json!({"index_source_layer_ids": [2, 4, 5, 8]}),
            "index_source_layer_ids: found [2,4,5,8], wanted a list of whole numbers from 0 to 7",
        ),
        (
            json!({"index_source_layer_ids": [1, 2, 4, 5, 7]}),
            "index_source_layer_ids: found 1 with ratio 0, wanted a kv source at or below it",
        ),
        (
            json!({"compress_ratios": [0, 0, 2, 2, 2, 1, 1, 2]}),
            "index_source_layer_ids: found 7 with ratio 2, wanted ratio 1, that of its kv source, layer 5",
        ),
        (
            json!({"candidate_source_layer_id": 6}),
            "candidate_source_layer_id: found 6, wanted a layer of index_source_layer_ids",
        ),
        (
            json!({"candidate_source_layer_id": 8}),
            "candidate_source_layer_id: found 8, wanted a whole number from 0 to 7",
        ),
        (
            json!({"index_source_layer_ids": [2, 3, 4, 5, 7]}),
            "index_source_layer_ids: found 3, wanted re-index layers above the candidate source, layer 5",
        ),
        (
            json!({"candidate_source_layer_id": 4}),
            "index_source_layer_ids: found 5, wanted layers above 4 with the kv source of \
             candidate_source_layer_id, layer 4",
        ),
    ];
    for (fields, line) in cases {
        assert_eq!(refusal(&fields), line);
    }
}

#[test]
fn schedules_that_fit() {
    // Without a second level a re-index layer may stand anywhere above its kv source.
    let c = accepts(
        &json!({"index_source_layer_ids": [2, 3, 4, 5, 7], "candidate_source_layer_id": -1}),
    );
    assert_eq!(c.candidate, None);
    // Entries for draft blocks that are not there.
    accepts(&json!({"num_nextn_predict_layers": 1}));
    // Window layers alone, and window layers in between.
    accepts(&json!({
        "compress_ratios": [0, 0, 0, 0, 0, 0, 0, 0], "kv_source_layer_ids": [],
        "index_source_layer_ids": [], "candidate_source_layer_id": -1,
    }));
    accepts(&json!({"compress_ratios": [0, 0, 2, 0, 2, 1, 0, 1, 0, 0, 0]}));
    // The second level on the last index source restricts nobody.
    accepts(&json!({"candidate_source_layer_id": 5, "index_source_layer_ids": [2, 4, 5]}));
}
