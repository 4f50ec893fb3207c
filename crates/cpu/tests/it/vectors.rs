//! The stored cases: plain numerics, rounded linear inputs, release numerics.

use finback_model::{DraftRequest, Runner};
use finback_ops::{Numerics, Penalties, Sampling};
use finback_testkit::{CHECKPOINTS, cases, logits, release_rows};

use crate::load::{RELEASE_ROWS, STORED_TOKENS, prompt, runner, step};

fn argmax(row: &[f32]) -> u32 {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32
}

fn distance(row: &[f32], want: &[f64]) -> f64 {
    row.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}

#[test]
fn plain_numerics_give_the_stored_rows_tokens_and_drafts() {
    let (mut same, mut all) = (0, 0);
    for name in CHECKPOINTS {
        let mut r = runner(name, Numerics::PLAIN);
        for case in cases().into_iter().filter(|c| c.checkpoint == name) {
            let want = logits(&format!("{}/last", case.name)).unwrap();
            let rows = prompt(&mut r, 0, &case.prompt, 160, want.rows().max(2));
            let rows = &rows[rows.len() - want.rows()..];
            for (i, row) in rows.iter().enumerate() {
                let d = distance(row, want.row(i));
                assert!(d < 1e-3, "{} row {i}: {d}", case.name);
                assert_eq!(argmax(row), case.last.argmax[i], "{} row {i}", case.name);
            }
            let first = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
            if let Some(draft) = &case.draft {
                let request = DraftRequest {
                    slot: 0,
                    anchor: first,
                    sampling: Sampling::GREEDY,
                    adjust: &[],
                    penalties: Penalties::default(),
                };
                let got = r.draft(&[request]).unwrap().remove(0);
                assert_eq!((first, &got.tokens), (draft.anchor, &draft.tokens), "{}", case.name);
                let want = logits(&format!("{}/draft", case.name)).unwrap();
                for i in 0..want.rows() {
                    let d = distance(&r.logit_row(i).unwrap(), want.row(i));
                    assert!(d < 1e-3, "{} draft {i}: {d}", case.name);
                    let d = (f64::from(got.confidence[i]) - draft.confidence[i]).abs();
                    assert!(d < 1e-3, "{} confidence {i}: {d}", case.name);
                }
            }
            assert_eq!(first, case.greedy[0], "{}", case.name);
            for tokens in case.greedy.windows(2) {
                same += usize::from(step(&mut r, 0, tokens[0]).token == Some(tokens[1]));
                all += 1;
            }
        }
    }
    println!("{same} of {all} stored tokens");
    assert!(1000 * same >= STORED_TOKENS * all, "{same} of {all} stored tokens");
}

#[test]
fn rounded_linear_inputs_give_the_stored_rows() {
    let numerics = Numerics { round_inputs: true, ..Numerics::PLAIN };
    let mut seen = 0;
    for name in CHECKPOINTS {
        let mut r = runner(name, numerics);
        for case in cases().into_iter().filter(|c| c.checkpoint == name) {
            let Some(want) = logits(&format!("{}/act_quant", case.name)) else { continue };
            let rows = prompt(&mut r, 0, &case.prompt, 160, want.rows().max(2));
            for (i, row) in rows[rows.len() - want.rows()..].iter().enumerate() {
                let d = distance(row, want.row(i));
                assert!(d < 1e-3, "{} row {i}: {d}", case.name);
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 3 * (1 + 2 + 8));
}

#[test]
fn release_numerics_meet_the_share_of_rows() {
    let mut r = runner("full", Numerics::RELEASE);
    for (length, near_wanted, argmax_wanted) in RELEASE_ROWS {
        let (prompts, want) = release_rows(length);
        let (mut near, mut same) = (0, 0);
        for i in 0..prompts.rows() {
            let ids: Vec<u32> = prompts.row(i).iter().map(|&id| id as u32).collect();
            let row = prompt(&mut r, 0, &ids, 160, 2).pop().unwrap();
            near += usize::from(distance(&row, want.row(i)) < 1e-2);
            let best = want.row(i).iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0;
            same += usize::from(argmax(&row) as usize == best);
        }
        println!("{length} tokens: {near} of 40 rows within 1e-2, {same} of 40 argmax");
        assert!(near >= near_wanted && same >= argmax_wanted, "{length}: {near}, {same}");
    }
}
