//! The row rule: a row's bits depend on the row and its slot's earlier rows alone.

use finback_model::{DraftRequest, ModelRunner, Runner, Window};
use finback_ops::{Numerics, Penalties, Sampling};

use crate::load::{bits, ids, ops, prompt, runner, step, tiny};

/// Logits of the last rows and the state after a prompt in pieces.
fn outcome(r: &mut ModelRunner, ids: &[u32], piece: usize) -> (Vec<Vec<u32>>, Vec<u8>) {
    let rows = prompt(r, 0, ids, piece, 3);
    (bits(&rows), r.state(0).unwrap())
}

#[test]
fn pieces_equal_the_whole_prompt() {
    let (spec, ids) = (tiny(Numerics::RELEASE), ids(33));
    let mut r = runner(&spec, 1);
    let whole = outcome(&mut r, &ids, 160);
    for piece in [7, 16] {
        assert!(outcome(&mut r, &ids, piece) == whole, "pieces of {piece}");
    }
    // Launched one by one, as pieces are that are too long for a tape.
    let mut plain = ops(&spec, 1);
    plain.tape_up_to(2);
    let mut r = ModelRunner::new(Box::new(plain), spec);
    assert!(outcome(&mut r, &ids, 31) == whole);
    // And with the next piece announced, whose table rows and angles are then made ready before.
    r.release(0).unwrap();
    r.begin(0, &ids, ids.len() + 128, 3).unwrap();
    let hits = r.staged().hits;
    loop {
        r.stage(0, 16, 16).unwrap();
        if r.piece(0, 16).unwrap() == 0 {
            break;
        }
    }
    let rows = r.prompt_logits(0).unwrap();
    assert!((bits(&rows), r.state(0).unwrap()) == whole, "announced pieces");
    assert!(r.staged().hits > hits);
}

#[test]
fn a_prompt_equals_running_every_row_of_every_layer() {
    // Windows run all layers on all rows; a prompt runs the upper layers at its end only.
    let spec = tiny(Numerics::RELEASE);
    let (mut r, ids) = (runner(&spec, 1), ids(27));
    prompt(&mut r, 0, &ids[..1], 160, 1);
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let last: Vec<Vec<f32>> =
        ids[1..].iter().map(|&id| step(&mut r, 0, id).logits.unwrap()).collect();
    let everything = r.state(0).unwrap();
    let rows = prompt(&mut r, 0, &ids, 160, 2);
    assert!(r.state(0).unwrap() == everything);
    assert_eq!(bits(&rows).pop(), bits(&last).pop());
}

#[test]
fn any_prefix_of_any_window_can_be_kept() {
    let spec = tiny(Numerics::RELEASE);
    let (mut r, ids) = (runner(&spec, 2), ids(34));
    let start = 8;
    for slot in [0, 1] {
        prompt(&mut r, slot, &ids[..start], 160, 1);
        r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
    }
    let serial: Vec<_> =
        ids[start..].iter().map(|&id| step(&mut r, 1, id).logits.unwrap()).collect();
    let (mut at, mut turn) = (start, 0);
    while at < ids.len() {
        turn += 1;
        let rows = (turn * 7 % 16 + 1).min(ids.len() - at);
        let kept = turn * 5 % (rows + 1);
        // The rows past the kept ones are wrong guesses.
        let mut tokens = ids[at..at + rows].to_vec();
        tokens[kept..].iter_mut().for_each(|t| *t = (*t + 11) % 60);
        let window = Window {
            slot: 0,
            tokens: &tokens,
            sampling: Sampling::GREEDY,
            adjust: &[],
            logits: true,
        };
        let choices = r.windows(&[window]).unwrap().remove(0);
        for (i, choice) in choices.iter().take(kept).enumerate() {
            let (got, want) = (choice.logits.clone().unwrap(), serial[at + i - start].clone());
            assert!(bits(&[got]) == bits(&[want]), "row {at}+{i}");
        }
        r.keep(0, kept).unwrap();
        at += kept;
    }
    assert!(r.state(0).unwrap() == r.state(1).unwrap());
}

#[test]
fn company_does_not_show() {
    let spec = tiny(Numerics::RELEASE);
    let ids = ids(60);
    let run = |slots: usize| {
        let mut r = runner(&spec, slots);
        for slot in 0..slots {
            prompt(&mut r, slot, &ids[..9 + 3 * slot], 50, 1);
            r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
        }
        let mut out = Vec::new();
        for round in 0..2 {
            let windows: Vec<Window<'_>> = (0..slots)
                .map(|slot| Window {
                    slot,
                    tokens: &ids[round * 5..round * 5 + 1 + (slot + round) % 4],
                    sampling: Sampling { temperature: 1.0, seed: 7, ..Sampling::GREEDY },
                    adjust: &[],
                    logits: true,
                })
                .collect();
            let choices = r.windows(&windows).unwrap();
            for (slot, w) in windows.iter().enumerate() {
                r.keep(slot, w.tokens.len()).unwrap();
            }
            let rows: Vec<_> = choices[0].iter().map(|c| c.logits.clone().unwrap()).collect();
            let tokens: Vec<_> = choices[0].iter().map(|c| c.token).collect();
            let drafts: Vec<_> = (0..slots)
                .map(|slot| DraftRequest {
                    slot,
                    anchor: 9,
                    sampling: Sampling::GREEDY,
                    adjust: &[],
                    penalties: Penalties::default(),
                })
                .collect();
            let draft = r.draft(&drafts).unwrap().remove(0);
            let confidence: Vec<u32> = draft.confidence.iter().map(|c| c.to_bits()).collect();
            out.push((bits(&rows), tokens, draft.tokens, confidence));
        }
        (out, r.state(0).unwrap())
    };
    assert!(run(3) == run(1));
}

#[test]
fn a_reused_slot_and_its_blocks_read_as_fresh() {
    let spec = tiny(Numerics::RELEASE);
    let mut r = runner(&spec, 1);
    let fresh = outcome(&mut r, &ids(14), 160);
    outcome(&mut r, &ids(31), 160);
    assert!(outcome(&mut r, &ids(14), 160) == fresh);
}
