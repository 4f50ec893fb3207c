//! The oracle against the stored answers.

use finback_checkpoint::Checkpoint;
use finback_ops::Numerics;
use finback_testkit::{self as testkit, Case};

use super::*;

fn load(name: &str, numerics: Numerics) -> Reference {
    let dir = testkit::checkpoint(name);
    let map = if name == "no-engram" { vec![] } else { testkit::token_map(name) };
    let config = Config::load(&dir).unwrap();
    Reference::load(&Checkpoint::open(&dir).unwrap(), &config, &map, numerics).unwrap()
}

/// The largest difference between the last rows and what is stored for them.
fn distance(rows: &[Vec<f64>], stored: &testkit::Array<f64>) -> f64 {
    let last = &rows[rows.len() - stored.rows()..];
    let pairs = last.concat();
    assert_eq!(pairs.len(), stored.values.len());
    pairs.iter().zip(&stored.values).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn stored(case: &Case, what: &str) -> Option<testkit::Array<f64>> {
    testkit::logits(&format!("{}/{what}", case.name))
}

#[test]
fn every_case_has_the_stored_rows_decisions_drafts_and_reply() {
    for checkpoint in testkit::CHECKPOINTS {
        let model = load(checkpoint, Numerics::PLAIN);
        for case in testkit::cases().iter().filter(|case| case.checkpoint == checkpoint) {
            let mut state = State::default();
            let (rows, traces) = model.forward_traced(&mut state, &case.prompt);
            assert!(distance(&rows, &stored(case, "last").unwrap()) < 1e-9, "{}", case.name);
            check_trace(case, &traces[traces.len() - 1]);
            assert_eq!(model.draft(&state, case.greedy[0]).is_some(), case.draft.is_some());
            if let (Some(got), Some(want)) = (model.draft(&state, case.greedy[0]), &case.draft) {
                assert_eq!(want.anchor, case.greedy[0]);
                assert_eq!(got.tokens, want.tokens, "{}", case.name);
                assert!(distance(&got.logits, &stored(case, "draft").unwrap()) < 1e-9);
                for (a, b) in got.confidence.iter().zip(&want.confidence) {
                    assert!((a - b).abs() < 1e-9, "{}", case.name);
                }
            }
            let mut logits = rows[rows.len() - 1].clone();
            for &token in &case.greedy {
                assert_eq!(argmax(&logits), token, "{}", case.name);
                logits = model.forward(&mut state, &[token]).remove(0);
            }
        }
    }
}

fn check_trace(case: &Case, trace: &Trace) {
    let streams = stored(case, "streams").unwrap();
    for (layer, seen) in trace.layers.iter().enumerate() {
        assert_eq!(seen.experts, case.trace.experts[layer], "{} layer {layer}", case.name);
        let far = seen.streams.iter().zip(streams.row(layer)).map(|(a, b)| (a - b).abs());
        assert!(far.fold(0.0, f64::max) < 1e-9, "{} layer {layer}", case.name);
    }
    for (&layer, picked) in &case.trace.picked {
        assert_eq!(&trace.layers[layer].picked, picked, "{} layer {layer}", case.name);
    }
    for (&layer, rows) in &case.trace.engram_rows {
        assert_eq!(&trace.layers[layer].engram_rows, rows, "{} layer {layer}", case.name);
    }
}

#[test]
fn rounded_linear_inputs_give_the_stored_rows() {
    let numerics = Numerics { round_inputs: true, ..Numerics::PLAIN };
    let mut seen = 0;
    for checkpoint in testkit::CHECKPOINTS {
        let model = load(checkpoint, numerics);
        for case in testkit::cases().iter().filter(|case| case.checkpoint == checkpoint) {
            let Some(want) = stored(case, "act_quant") else { continue };
            let rows = model.forward(&mut State::default(), &case.prompt);
            assert!(distance(&rows, &want) < 1e-9, "{}", case.name);
            seen += 1;
        }
    }
    assert_eq!(seen, 9);
}

#[test]
fn release_roundings_give_the_stored_rows() {
    // The stored rows have exact RoPE angles.
    let model = load("full", Numerics { rope_f32: false, ..Numerics::RELEASE });
    for length in [1, 4] {
        let (prompts, logits) = testkit::release_rows(length);
        for i in 0..prompts.rows() {
            let prompt: Vec<u32> = prompts.row(i).iter().map(|&id| id as u32).collect();
            let row = model.forward(&mut State::default(), &prompt).pop().unwrap();
            let far = row.iter().zip(logits.row(i)).map(|(a, b)| (a - b).abs());
            assert!(far.fold(0.0, f64::max) < 1e-9, "length {length}, prompt {i}");
        }
    }
}

#[test]
fn a_truncated_state_goes_on_as_if_the_rest_had_never_run() {
    let model = load("full", Numerics::PLAIN);
    let prompt = &testkit::cases().pop().unwrap().prompt[..40];
    let mut state = State::default();
    let rows = model.forward(&mut state, prompt);
    // Odd and even lengths: half-groups are rewound too.
    for keep in [39, 31, 18, 1, 0] {
        let draft = {
            let mut fresh = State::default();
            model.forward(&mut fresh, &prompt[..keep]);
            model.draft(&fresh, 7)
        };
        state.truncate(keep);
        assert_eq!(model.draft(&state, 7), draft);
        model.forward(&mut state, &[3, 4, 5]);
        state.truncate(keep);
        assert_eq!(model.forward(&mut state, &prompt[keep..]), rows[keep..]);
    }
}
