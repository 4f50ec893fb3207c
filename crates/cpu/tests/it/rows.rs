//! The row rule: a row's bits depend on the row and its slot's earlier rows alone.

use std::sync::Arc;

use finback_cpu::simd::Isa;
use finback_model::{DraftRequest, ModelRunner, Runner, Window};
use finback_ops::{ModelSpec, Numerics, Penalties, Sampling};
use finback_testkit::{CHECKPOINTS, cases};

use crate::load::{ops, prompt, spec_of, step};

/// A prompt longer than two windows of every stored checkpoint.
fn ids(n: usize) -> Vec<u32> {
    let case = cases().into_iter().max_by_key(|c| c.prompt.len()).unwrap();
    case.prompt.into_iter().take(n).collect()
}

fn full() -> Arc<ModelSpec> {
    spec_of(&finback_testkit::checkpoint("full"), Numerics::RELEASE)
}

fn runner(spec: &Arc<ModelSpec>, slots: usize) -> ModelRunner {
    ModelRunner::new(Box::new(ops(spec, slots, 1, Isa::detect())), spec.clone())
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

/// Logits of the last rows and the state after a prompt in pieces.
fn outcome(r: &mut ModelRunner, ids: &[u32], piece: usize) -> (Vec<Vec<u32>>, Vec<u8>) {
    let rows = prompt(r, 0, ids, piece, 5);
    (bits(&rows), r.state(0).unwrap())
}

#[test]
fn pieces_equal_the_whole_prompt() {
    for name in CHECKPOINTS {
        for numerics in [Numerics::RELEASE, Numerics::PLAIN] {
            let spec = spec_of(&finback_testkit::checkpoint(name), numerics);
            let (mut r, ids) = (runner(&spec, 1), ids(150));
            let whole = outcome(&mut r, &ids, 160);
            for piece in [1, 2, 7, 16, 64, 100, 149] {
                assert!(outcome(&mut r, &ids, piece) == whole, "{name}: pieces of {piece}");
            }
        }
    }
}

#[test]
fn a_prompt_equals_running_every_row_of_every_layer() {
    // Windows run all layers on all rows; a prompt runs the upper layers at its end only.
    for name in CHECKPOINTS {
        let spec = spec_of(&finback_testkit::checkpoint(name), Numerics::RELEASE);
        for n in [2, 17, 40, 150] {
            let (mut r, ids) = (runner(&spec, 1), ids(n));
            prompt(&mut r, 0, &ids[..1], 160, 1);
            r.finish(0, Sampling::GREEDY, &[], false).unwrap();
            let last: Vec<Vec<f32>> =
                ids[1..].iter().map(|&id| step(&mut r, 0, id).logits.unwrap()).collect();
            let everything = r.state(0).unwrap();
            let rows = prompt(&mut r, 0, &ids, 160, 2);
            assert!(r.state(0).unwrap() == everything, "{name}, {n} tokens: state");
            assert_eq!(bits(&rows).pop(), bits(&last).pop(), "{name}, {n} tokens: logits");
        }
    }
}

#[test]
fn any_prefix_of_any_window_can_be_kept() {
    let spec = full();
    let (mut r, ids) = (runner(&spec, 2), ids(120));
    let start = 30;
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
        tokens[kept..].iter_mut().for_each(|t| *t = (*t + 11) % 500);
        let window = Window {
            slot: 0,
            tokens: &tokens,
            sampling: Sampling::GREEDY,
            adjust: &[],
            logits: true,
        };
        let choices = r.windows(&[window]).unwrap().remove(0);
        for (i, choice) in choices.iter().take(kept).enumerate() {
            let got = choice.logits.as_ref().unwrap();
            assert!(
                bits(std::slice::from_ref(got))
                    == bits(std::slice::from_ref(&serial[at + i - start])),
                "row {at}+{i}"
            );
        }
        r.keep(0, kept).unwrap();
        at += kept;
    }
    assert!(r.state(0).unwrap() == r.state(1).unwrap());
}

#[test]
fn company_threads_and_instruction_sets_do_not_show() {
    let spec = full();
    let ids = ids(80);
    let run = |slots: usize, threads, isa| {
        let mut r = ModelRunner::new(Box::new(ops(&spec, slots, threads, isa)), spec.clone());
        for slot in 0..slots {
            prompt(&mut r, slot, &ids[..20 + 13 * slot], 50, 1);
            r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
        }
        let mut out = Vec::new();
        for round in 0..4 {
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
    let alone = run(1, 1, Isa::detect());
    for (slots, threads) in [(1, 2), (1, 3), (4, 1), (4, 2)] {
        assert!(run(slots, threads, Isa::detect()) == alone, "{slots} slots, {threads} threads");
    }
    for isa in Isa::available() {
        assert!(run(2, 2, isa) == alone, "{}", isa.name());
    }
}

#[test]
fn a_reused_slot_and_its_blocks_read_as_fresh() {
    let spec = full();
    let mut r = runner(&spec, 1);
    let fresh = outcome(&mut r, &ids(60), 160);
    outcome(&mut r, &ids(150), 160);
    assert!(outcome(&mut r, &ids(60), 160) == fresh);
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let spec = full();
    let mut r = runner(&spec, 2);
    let window = |slot, tokens| Window {
        slot,
        tokens,
        sampling: Sampling::GREEDY,
        adjust: &[],
        logits: false,
    };
    let text = |e: finback_model::RunnerError| e.to_string();
    assert_eq!(
        text(r.begin(2, &[1], 8, 1).unwrap_err()),
        "slot 2 does not exist: this runner has 2"
    );
    assert_eq!(
        text(r.begin(0, &[1, 512], 8, 1).unwrap_err()),
        "token id 512 at position 1 is outside the vocabulary of 512"
    );
    assert_eq!(
        text(r.begin(0, &[], 8, 1).unwrap_err()),
        "prompt tokens: 0, accepted are 1 to 1024"
    );
    assert_eq!(
        text(r.begin(0, &[1], 1025, 1).unwrap_err()),
        "1025 positions exceed the context of 1024"
    );
    r.begin(0, &[1, 2, 3], 8, 1).unwrap();
    assert_eq!(
        text(r.finish(0, Sampling::GREEDY, &[], false).unwrap_err()),
        "slot 0 is running its prompt, the call needs it at its prompt's end"
    );
    assert_eq!(
        text(r.windows(&[window(1, &[5])]).unwrap_err()),
        "slot 1 is idle, the call needs it ready"
    );
    assert_eq!(r.piece(0, 160).unwrap(), 0);
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let two = [window(0, &[5]), window(0, &[6])];
    assert_eq!(text(r.windows(&two).unwrap_err()), "slot 0 appears twice in one round");
    let long = [7; 17];
    assert_eq!(
        text(r.windows(&[window(0, &long)]).unwrap_err()),
        "rows of a window: 17, accepted are 1 to 16"
    );
    let before = r.state(0).unwrap();
    r.windows(&[window(0, &[5, 6])]).unwrap();
    assert_eq!(text(r.keep(0, 3).unwrap_err()), "slot 0: keeping 3 rows of a window of 2");
    assert_eq!(
        text(r.windows(&[window(0, &[5])]).unwrap_err()),
        "slot 0 is waiting for its window to be kept, the call needs it kept before another pass"
    );
    r.keep(0, 0).unwrap();
    assert!(r.state(0).unwrap() == before);
    let no_drafts = spec_of(&finback_testkit::checkpoint("engram"), Numerics::PLAIN);
    let request = DraftRequest {
        slot: 0,
        anchor: 1,
        sampling: Sampling::GREEDY,
        adjust: &[],
        penalties: Penalties::default(),
    };
    let refused = runner(&no_drafts, 1).draft(&[request]).unwrap_err();
    assert_eq!(text(refused), "this checkpoint has no draft blocks");
}
