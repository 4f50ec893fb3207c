//! The model on the CPU backend against the float64 oracle, on random checkpoints.
#![allow(clippy::unwrap_used)]

mod answer;
mod stored;
mod subject;

use finback_model::reference::fuzz::{self, Dice};
use finback_model::synth::{self, SynthOptions};
use finback_ops::Numerics;

use answer::{Answer, far};
use subject::{Ran, Subject};

/// Logits that noise in the oracle moves less than this must agree within [`NEAR`].
const STEADY: f64 = 1e-4;
const NEAR: f64 = 1e-3;

/// How many checkpoints each test tries; others by `ORACLE_SEEDS=from..to`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("ORACLE_SEEDS") else { return 0..24 };
    let (from, to) = range.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// What a test changes of a drawn checkpoint.
type Change = fn(&mut SynthOptions);

/// One random checkpoint and text of at most `length` tokens: what both sides make of it.
struct Trial {
    seed: u64,
    subject: Subject,
    ids: Vec<u32>,
    anchor: u32,
    ran: Ran,
    _dir: tempfile::TempDir,
}

impl Trial {
    fn new(seed: u64, numerics: Numerics, length: usize, change: Change) -> Self {
        let mut dice = Dice::new(seed);
        let (mut options, vocabulary) = fuzz::checkpoint(&mut dice);
        change(&mut options);
        let dir = finback_testkit::temp_dir();
        synth::write(dir.path(), &options, &vocabulary).unwrap();
        if dice.once_in(2) {
            stored::rewrite(dir.path(), &mut dice);
        }
        let subject = Subject::open(dir.path(), numerics);
        let length = dice.number(1, length);
        let ids = dice.tokens(length, vocabulary.size);
        let anchor = dice.number(0, vocabulary.size - 1) as u32;
        let ran = subject.run(&mut dice, &ids, anchor);
        // Cut otherwise, the same bits: of every row that both gave, of the drafts and of the state.
        let again = subject.run(&mut dice, &ids, anchor);
        for (position, (a, b)) in ran.rows.iter().zip(&again.rows).enumerate() {
            let same = a.as_ref().zip(b.as_ref()).is_none_or(|(a, b)| a == b);
            assert!(same, "seed {seed}, position {position} of {length}: other bits cut otherwise");
        }
        assert!(ran.draft == again.draft, "seed {seed}: other drafts cut otherwise");
        assert!(ran.state == again.state, "seed {seed}: another state cut otherwise");
        Self { seed, subject, ids, anchor, ran, _dir: dir }
    }

    /// The oracle's answer; with a seed, that of one with noise.
    fn oracle(&self, jitter: Option<u64>) -> Answer {
        Answer::of(&self.subject.oracle(jitter), &self.ids, self.anchor)
    }

    /// Every row that the backend gave beside the oracle's, with its name.
    fn pairs<'a>(&'a self, want: &'a Answer) -> Vec<(String, &'a [f64], Where)> {
        let (seed, length) = (self.seed, self.ids.len());
        let mut pairs = Vec::new();
        for (position, row) in self.ran.rows.iter().enumerate() {
            if let Some(row) = row {
                let what = format!("seed {seed}, position {position} of {length}");
                pairs.push((what, &row[..], Where::Row(position)));
            }
        }
        assert_eq!(self.ran.draft.len(), want.draft.len(), "seed {seed}");
        for (i, row) in self.ran.draft.iter().enumerate() {
            pairs.push((format!("seed {seed}, draft {i} after {length}"), row, Where::Draft(i)));
        }
        pairs
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Row(usize),
    /// Logits with the confidence behind them.
    Draft(usize),
}

/// Holds every row that noise does not move; most of them must be such.
fn check_steady_rows(numerics: Numerics, length: usize, change: Change) {
    let (mut compared, mut edges) = (0, 0);
    for seed in seeds() {
        let trial = Trial::new(seed, numerics, length, change);
        let want = trial.oracle(None);
        let noisy: Vec<Answer> = (1..4).map(|seed| trial.oracle(Some(seed))).collect();
        for (what, row, at) in trial.pairs(&want) {
            let moves = |other: &Answer| far(other.at(at), want.at(at)) > STEADY;
            let distance = far(row, want.at(at));
            // An edge may take more noises to be seen.
            let edge = noisy.iter().any(moves)
                || (distance >= NEAR && (4..100).any(|seed| moves(&trial.oracle(Some(seed)))));
            if edge {
                edges += 1;
                // The drafts after this one may follow another token.
                if matches!(at, Where::Draft(_)) {
                    break;
                }
                continue;
            }
            compared += 1;
            assert!(distance < NEAR, "{what}: {distance}");
        }
    }
    println!("{compared} rows agree, {edges} on an edge");
    assert!(compared > 2 * edges);
}

#[test]
fn plain_numerics_give_the_oracles_rows_and_drafts() {
    check_steady_rows(Numerics::PLAIN, 70, |_| ());
}

#[test]
fn output_groups_may_split_a_scale_tile() {
    check_steady_rows(Numerics::PLAIN, 10, |options| {
        (options.o_groups, options.o_rank) = (2, 48);
        options.heads = options.heads.next_multiple_of(2);
    });
}

#[test]
fn rounded_linear_inputs_give_the_oracles_rows_and_drafts() {
    check_steady_rows(Numerics { round_inputs: true, ..Numerics::PLAIN }, 12, |_| ());
}

/// Here noise moves nearly every row, as products of few bits often lie right between two bf16
/// values. So a share of rows has to agree, and some of nearly every checkpoint's: a rounding at a
/// wrong point moves all of them.
#[test]
fn release_numerics_give_nearly_all_of_the_oracles_rows_and_drafts() {
    let (mut near, mut all, mut lost, mut checkpoints) = (0, 0, 0, 0);
    for seed in seeds() {
        let trial = Trial::new(seed, Numerics::RELEASE, 3, |_| ());
        let want = trial.oracle(None);
        let pairs = trial.pairs(&want);
        let own = pairs.iter().filter(|(_, row, at)| far(row, want.at(*at)) < STEADY).count();
        if own == 0 {
            println!("seed {seed}: none of {} rows", pairs.len());
        }
        lost += usize::from(own == 0);
        checkpoints += 1;
        near += own;
        all += pairs.len();
    }
    println!("{near} of {all} rows agree, {lost} of {checkpoints} checkpoints have none");
    assert!(20 * near > 19 * all && 20 * lost <= checkpoints);
}
