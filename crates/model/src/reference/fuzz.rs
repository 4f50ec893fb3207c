//! Random small checkpoints of every shape that a config may describe.

use finback_numerics::rng;
use serde_json::{Map, Value, json};

use crate::synth::{SynthOptions, Vocabulary};

/// Draws keyed by a seed, one after the other.
#[derive(Debug, Clone)]
pub struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    /// Dice that fall the same way for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A whole number in `from..=to`.
    pub fn number(&mut self, from: usize, to: usize) -> usize {
        self.drawn += 1;
        let u = f64::from(rng::uniform(self.seed, self.drawn, 0));
        from + (u * (to - from + 1) as f64) as usize
    }

    /// True once in `n` times.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.number(1, n) == 1
    }

    /// One of `values`, which are not empty.
    pub fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.number(0, values.len() - 1)]
    }

    /// A non-empty ascending subset of `0..count`.
    fn subset(&mut self, count: usize) -> Vec<usize> {
        let mut picked: Vec<usize> = (0..count).filter(|_| self.once_in(2)).collect();
        if picked.is_empty() {
            picked.push(self.number(0, count - 1));
        }
        picked
    }

    /// Token ids below `vocab`.
    pub fn tokens(&mut self, count: usize, vocab: usize) -> Vec<u32> {
        (0..count).map(|_| self.number(0, vocab - 1) as u32).collect()
    }
}

/// Options of a random small checkpoint; the same for the same dice.
pub fn checkpoint(dice: &mut Dice) -> (SynthOptions, Vocabulary<'static>) {
    let layers = dice.number(1, 7);
    let vocabulary = Vocabulary::bare(dice.number(20, 260));
    let groups = dice.one_of(&[1, 2, 4]);
    let (head_dim, index_dim) = (32 * dice.number(1, 3), 32 * dice.number(1, 2));
    let experts = dice.number(1, 9);
    let mut set = Map::new();
    schedule(dice, layers, &mut set);
    numbers(dice, &mut set);
    let engram = dice.once_in(2);
    if engram {
        set.insert("engram_layer_ids".into(), json!(dice.subset(layers)));
        set.insert("engram_max_ngram_size".into(), json!(dice.number(2, 5)));
        set.insert("engram_pad_token_id".into(), json!(dice.number(0, vocabulary.size - 1)));
    }
    let drafts = dice.once_in(2);
    if drafts {
        let experts = dice.number(1, 6);
        set.insert("num_nextn_predict_layers".into(), json!(dice.number(1, 3)));
        set.insert("dspark_block_size".into(), json!(dice.number(1, 8)));
        set.insert("dspark_target_layer_ids".into(), json!(dice.subset(layers)));
        set.insert("dspark_markov_rank".into(), json!(dice.number(1, 40)));
        set.insert("dspark_n_routed_experts".into(), json!(experts));
        set.insert("dspark_num_experts_per_tok".into(), json!(dice.number(1, experts)));
    }
    let options = SynthOptions {
        seed: dice.number(0, 1 << 30) as u64,
        layers,
        hidden: 32 * dice.number(1, 5),
        heads: groups * dice.number(1, 3),
        head_dim,
        rope_dim: 2 * dice.number(1, head_dim.min(index_dim) / 2),
        q_rank: 32 * dice.number(1, 3),
        o_groups: groups,
        o_rank: 32 * dice.number(1, 3),
        window: dice.number(1, 20),
        index_heads: dice.number(1, 8),
        index_dim,
        index_topk: dice.number(1, 20),
        experts,
        experts_per_token: dice.number(1, experts),
        intermediate: 32 * dice.number(1, 3),
        context: 4096,
        engram,
        engram_vocab: dice.number(2, 60),
        engram_heads: dice.number(1, 5),
        engram_dim: 32 * dice.number(1, 2),
        engram_holes: false,
        hole_bytes: usize::MAX,
        drafts,
        set,
    };
    (options, vocabulary)
}

/// Which layers compress, make rows, select rows, and choose candidate blocks.
fn schedule(dice: &mut Dice, layers: usize, set: &mut Map<String, Value>) {
    let candidate = if dice.once_in(2) { Some(dice.number(0, layers - 1)) } else { None };
    let (mut ratios, mut kv_sources, mut index_sources) = (vec![], vec![], vec![]);
    let mut ratio = 0;
    for layer in 0..layers {
        let at = candidate == Some(layer);
        let below = candidate.is_some_and(|c| layer < c);
        let above = candidate.is_some_and(|c| layer > c);
        let makes = !above && (dice.once_in(3) || (at && ratio == 0));
        if makes {
            ratio = dice.one_of(&[1, 1, 2, 2, 4]);
            kv_sources.push(layer);
        }
        // Below the candidate source only layers that make rows may select.
        let selects = makes || at || (ratio > 0 && !below && dice.once_in(2));
        if selects {
            index_sources.push(layer);
        }
        ratios.push(if selects || !dice.once_in(4) { ratio } else { 0 });
    }
    set.insert("compress_ratios".into(), json!(ratios));
    set.insert("kv_source_layer_ids".into(), json!(kv_sources));
    set.insert("index_source_layer_ids".into(), json!(index_sources));
    set.insert("candidate_source_layer_id".into(), json!(candidate.map_or(-1, |c| c as i64)));
    set.insert("candidate_topk_blocks".into(), json!(dice.number(1, 5)));
    set.insert("candidate_block_size".into(), json!(dice.number(1, 6)));
}

/// Constants that no other field depends on.
fn numbers(dice: &mut Dice, set: &mut Map<String, Value>) {
    let mut put = |field: &str, value: Value| set.insert(field.to_owned(), value);
    put("hc_mult", json!(dice.number(1, 5)));
    put("hc_sinkhorn_iters", json!(dice.one_of(&[1, 2, 7, 20])));
    put("hc_eps", json!(dice.one_of(&[1e-6, 1e-3])));
    put("rms_norm_eps", json!(dice.one_of(&[1e-20, 1e-6, 1e-2])));
    put("scoring_func", json!(dice.one_of(&["sqrtsoftplus", "sigmoid", "softmax"])));
    put("gate_temp", json!(dice.one_of(&[1.0, 0.7, 3.0])));
    put("norm_topk_prob", json!(dice.once_in(2)));
    put("routed_scaling_factor", json!(dice.one_of(&[1.0, 1.5])));
    put("swiglu_limit", json!(dice.one_of(&[0.0, 0.5, 10.0])));
    put("rope_theta", json!(dice.one_of(&[10_000.0, 50.0])));
    put("compress_rope_theta", json!(dice.one_of(&[160_000.0, 90.0])));
    if dice.once_in(3) {
        put("rope_scaling", Value::Null);
    } else {
        let yarn = json!({
            "rope_type": "yarn",
            "factor": dice.one_of(&[1.0, 4.0, 16.0]),
            "beta_fast": dice.one_of(&[32, 4]),
            "beta_slow": dice.one_of(&[1, 2]),
            "original_max_position_embeddings": dice.one_of(&[64, 512, 65536]),
        });
        put("rope_scaling", yarn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_draw_is_a_valid_config() {
        let dir = finback_testkit::temp_dir();
        for seed in 0..40 {
            let (options, vocabulary) = checkpoint(&mut Dice::new(seed));
            let written = crate::synth::write(dir.path(), &options, &vocabulary);
            assert!(written.is_ok(), "seed {seed}: {}", written.unwrap_err());
        }
        let same = |seed| format!("{:?}", checkpoint(&mut Dice::new(seed)).0);
        assert_eq!(same(3), same(3));
        assert_ne!(same(3), same(4));
    }
}
