//! A round's launches: the same bytes for every round of a kind.

use finback_model::{DraftRequest, ModelRunner, Runner, Window};
use finback_ops::{Numerics, Penalties, Sampling};

use crate::load::{ids, prompt, tiny};
use crate::watched::Watched;

fn round(r: &mut ModelRunner, tokens: [&[u32]; 2], seed: u64) {
    let sampling = Sampling { temperature: 1.0, seed, ..Sampling::GREEDY };
    let windows: Vec<Window<'_>> = tokens
        .iter()
        .enumerate()
        .map(|(slot, tokens)| Window { slot, tokens, sampling, adjust: &[], logits: false })
        .collect();
    r.windows(&windows).unwrap();
    for slot in [0, 1] {
        r.keep(slot, 1).unwrap();
    }
    let requests: Vec<DraftRequest<'_>> = [0, 1]
        .map(|slot| DraftRequest {
            slot,
            anchor: tokens[slot][0],
            sampling,
            adjust: &[],
            penalties: Penalties::default(),
        })
        .to_vec();
    r.draft(&requests).unwrap();
}

#[test]
fn rounds_of_a_kind_have_the_same_tape_while_their_contexts_grow() {
    let spec = tiny(Numerics::RELEASE);
    let (mut r, notes) = Watched::runner(&spec, 2, false);
    for slot in [0, 1] {
        prompt(&mut r, slot, &ids(5 + 4 * slot), 160, 1);
        r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
    }
    notes.lock().unwrap().tapes.clear();
    let ids = ids(40);
    for i in 0..4 {
        round(&mut r, [&ids[i..i + 2], &ids[i + 9..i + 12]], 3 + i as u64);
    }
    round(&mut r, [&ids[..3], &ids[9..12]], 9);
    let tapes = std::mem::take(&mut notes.lock().unwrap().tapes);
    assert_eq!(tapes.len(), 10);
    for i in 1..4 {
        assert!(tapes[2 * i].same(&tapes[0]), "round {i}");
        assert!(tapes[2 * i + 1].same(&tapes[1]), "drafts of round {i}");
    }
    assert!(!tapes[8].same(&tapes[0]), "another row is another tape");
    assert!(tapes[9].same(&tapes[1]), "and the same drafts");
    assert!(tapes[0].len() > 10 * spec.layers.len() && tapes[1].len() > 50);
}
