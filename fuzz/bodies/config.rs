//! Any bytes give a config whose layers fit together, or one line.

use std::path::Path;

use finback_model::Config;

/// Parses `data` as a config and checks what comes out; panics where it is wrong.
pub fn run(data: &[u8]) {
    let c = match Config::parse(Path::new("config.json"), data) {
        Ok(config) => config,
        Err(e) => {
            let line = e.to_string();
            assert!(line.starts_with("config.json: ") && !line.contains('\n'), "{line:?}");
            return;
        }
    };
    assert_eq!(c.compress_ratios.len(), c.num_hidden_layers);
    for (layer, &ratio) in c.compress_ratios.iter().enumerate().filter(|(_, r)| **r > 0) {
        let source = c.kv_source(layer);
        assert_eq!(source.map(|s| c.compress_ratios[s]), Some(ratio));
        let selection = c.index_source(layer).and_then(|index| c.kv_source(index));
        assert_eq!(selection, source, "the rows selected are rows of the layer's source");
        assert_eq!(256 % ratio, 0);
    }
    for width in [c.hidden_size, c.head_dim, c.q_lora_rank, c.index_head_dim] {
        assert!(width > 0 && width.is_multiple_of(32));
    }
    assert!(c.qk_rope_head_dim <= c.head_dim.min(c.index_head_dim));
    assert!(c.num_experts_per_tok <= c.n_routed_experts);
    // The table of a large config is only long.
    if c.num_hidden_layers * c.n_routed_experts <= 10_000 {
        let weights = finback_model::names::weights(&c);
        let mut names: Vec<_> = weights.iter().map(|w| &w.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|a, b| a < b), "names are unique");
        assert!(weights.iter().all(|w| !w.entries(c.weight_block_size).is_empty()));
    }
}
