//! What the tests of every backend share: checkpoints to specs, and a runner driven by hand.

use std::path::Path;
use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_model::{Choice, Config, ModelRunner, Runner, SlotId, Window, spec};
use finback_ops::{Limits, ModelSpec, Numerics, Sampling};

pub fn spec_of(dir: &Path, numerics: Numerics) -> Arc<ModelSpec> {
    let config = Config::load(dir).unwrap();
    let map = std::fs::read(dir.join("engram_token_map.json")).ok();
    let map = map.map(|text| serde_json::from_slice(&text).unwrap());
    let ck = Checkpoint::open(dir).unwrap();
    Arc::new(spec::load(&ck, &config, map, numerics).unwrap())
}

pub fn limits(slots: usize) -> Limits {
    let (rows, context) = (160, 1024);
    Limits { slots, rows, logit_rows: ModelRunner::logit_rows(slots), context, blocks: slots * 4 }
}

/// Runs a prompt in pieces of `piece` rows; the logits of its last `head` rows.
pub fn prompt(
    r: &mut dyn Runner,
    slot: SlotId,
    ids: &[u32],
    piece: usize,
    head: usize,
) -> Vec<Vec<f32>> {
    r.release(slot).unwrap();
    r.begin(slot, ids, ids.len() + 128, head).unwrap();
    while r.piece(slot, piece).unwrap() > 0 {}
    r.prompt_logits(slot).unwrap()
}

/// One token, kept.
pub fn step(r: &mut dyn Runner, slot: SlotId, token: u32) -> Choice {
    let window =
        Window { slot, tokens: &[token], sampling: Sampling::GREEDY, adjust: &[], logits: true };
    let choice = r.windows(&[window]).unwrap().remove(0).remove(0);
    r.keep(slot, 1).unwrap();
    choice
}
