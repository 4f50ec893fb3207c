//! What is added to logits before a choice: by the kernels, against the sampler on a row that has it.

use finback_model::{DraftRequest, Runner, Window};
use finback_numerics::sample::{Params, Scratch, choose};
use finback_ops::{Numerics, Penalties, Sampling};

use crate::load::{VOCAB, ids, prompt, runner, tiny};

const DRAWN: Sampling =
    Sampling { temperature: 0.9, top_k: 30, top_p: 0.95, min_p: 0.01, seed: 77 };

/// The choice at `position` from `row` with `adds` on it.
fn wanted(row: &[f32], adds: &[(u32, f32)], sampling: Sampling, position: usize) -> Option<u32> {
    let Sampling { temperature, top_k, top_p, min_p, seed } = sampling;
    let params = Params { temperature, top_k, top_p, min_p, seed };
    let mut row = row.to_vec();
    adds.iter().for_each(|&(id, add)| row[id as usize] += add);
    choose(&row, &params, position as u64, &mut Scratch::default())
}

#[test]
fn every_row_of_a_window_is_chosen_with_its_own_additions() {
    let mut r = runner(&tiny(Numerics::RELEASE), 1);
    let ids = ids(5);
    let unfiltered = Sampling { top_k: 0, top_p: 1.0, min_p: 0.0, ..DRAWN };
    for sampling in [Sampling::GREEDY, DRAWN, unfiltered] {
        let last = prompt(&mut r, 0, &ids, 16, 2).remove(1);
        let adds = [(9, 3.0), (30, -4.0), (0, 2.5)];
        let first = r.finish(0, sampling, &adds, true).unwrap();
        assert_eq!(first.logits.as_deref(), Some(&last[..]), "the row keeps its own values");
        assert_eq!(first.token, wanted(&last, &adds, sampling, ids.len()));

        // The third row's likeliest tokens change places, the others have theirs or nothing. The last
        // names so many that not all rows' additions fit at once.
        let many = (0..VOCAB as u32).map(|id| (id, (id % 7) as f32)).collect();
        let adjust = [vec![(17, 40.0)], vec![], vec![(17, -40.0), (40, 38.0), (3, 37.0)], many];
        let tokens = [7, 8, 9, 10];
        let window = Window { slot: 0, tokens: &tokens, sampling, adjust: &adjust, logits: true };
        let choices = r.windows(&[window]).unwrap().remove(0);
        for (i, (choice, adds)) in choices.iter().zip(&adjust).enumerate() {
            let row = choice.logits.as_deref().unwrap();
            let position = ids.len() + i + 1;
            assert_eq!(choice.token, wanted(row, adds, sampling, position), "row {i}");
        }
        assert_eq!(choices[0].token, Some(17));
        assert_eq!(choices[2].token, Some(40));
        r.keep(0, 0).unwrap();
    }
}

#[test]
fn a_chain_of_drafts_pays_for_what_it_has_drafted() {
    let mut r = runner(&tiny(Numerics::RELEASE), 1);
    prompt(&mut r, 0, &ids(5), 16, 2);
    let anchor = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
    let mut draft = |sampling, adjust: &[(u32, f32)], presence, frequency| {
        let penalties = Penalties { presence, frequency };
        let request = DraftRequest { slot: 0, anchor, sampling, adjust, penalties };
        r.draft(&[request]).unwrap().remove(0).tokens
    };
    let plain = draft(Sampling::GREEDY, &[], 0.0, 0.0);
    assert!(plain.len() >= 4, "{plain:?}");
    // Far above every logit: what is added alone decides. A draft of 21 or 22 then costs 150, so that
    // they stand at 1000, 900; 850, 900; 850, 750; 700, 750.
    let adds = [(21, 1000.0), (22, 900.0)];
    for sampling in [Sampling::GREEDY, DRAWN] {
        assert!(draft(sampling, &adds, 0.0, 0.0).iter().all(|&id| id == 21));
        assert_eq!(draft(sampling, &adds, 0.0, 150.0)[..4], [21, 22, 21, 22]);
    }
    // One that nothing named is said once where being there costs more than any logit.
    let mut once = draft(Sampling::GREEDY, &[], 1e6, 0.0);
    assert_eq!(once[0], plain[0]);
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), plain.len());
}
