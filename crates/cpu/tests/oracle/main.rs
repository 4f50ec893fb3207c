//! The model on the CPU backend against the float64 oracle, on random checkpoints.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_model::reference::fuzz::{self, Dice};
use finback_model::reference::{Reference, State};
use finback_model::{Config, Draft, DraftRequest, ModelRunner, Runner, Window, spec, synth};
use finback_ops::{Limits, Numerics, Sampling};

/// Relative noise on the oracle's embeddings that finds rows on an edge: that of f32 arithmetic.
const JITTER: f64 = 1e-6;
/// Logits that noise moves less than this must agree within [`NEAR`].
const STEADY: f64 = 1e-4;
const NEAR: f64 = 1e-3;

/// A checkpoint as both sides load it.
struct Subject {
    config: Config,
    ck: Checkpoint,
    map: Option<Vec<u32>>,
    numerics: Numerics,
}

impl Subject {
    fn open(dir: &Path, numerics: Numerics) -> Self {
        let map = std::fs::read(dir.join("engram_token_map.json")).ok();
        Self {
            config: Config::load(dir).unwrap(),
            ck: Checkpoint::open(dir).unwrap(),
            map: map.map(|text| serde_json::from_slice(&text).unwrap()),
            numerics,
        }
    }

    fn runner(&self, chunk: usize) -> ModelRunner {
        let spec = spec::load(&self.ck, &self.config, self.map.clone(), self.numerics).unwrap();
        let spec = Arc::new(spec);
        let logit_rows = ModelRunner::logit_rows(1);
        let limits = Limits { slots: 1, rows: chunk.max(16), logit_rows, context: 256, blocks: 1 };
        let options = CpuOptions { threads: 1, isa: Isa::detect() };
        let ops = CpuOps::new(spec.clone(), limits, options).unwrap();
        ModelRunner::new(Box::new(ops), spec)
    }

    fn oracle(&self, jitter: Option<u64>) -> Reference {
        let map = self.map.clone().unwrap_or_default();
        let mut oracle = Reference::load(&self.ck, &self.config, &map, self.numerics).unwrap();
        if let Some(seed) = jitter {
            oracle.jitter(seed, JITTER);
        }
        oracle
    }
}

/// Logit rows of every position, and a draft pass's rows and confidences.
struct Answer {
    rows: Vec<Vec<f64>>,
    draft: Vec<Vec<f64>>,
    confidence: Vec<f64>,
}

impl Answer {
    /// The oracle's; drafts follow the `forced` tokens where they differ from its own.
    fn of(oracle: &Reference, ids: &[u32], anchor: u32) -> Self {
        let mut state = State::default();
        let rows = oracle.forward(&mut state, ids);
        let round = oracle.draft(&state, anchor);
        let (draft, confidence) = round.map(|r| (r.logits, r.confidence)).unwrap_or_default();
        Self { rows, draft, confidence }
    }
}

fn far(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn lift(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| f64::from(x)).collect()
}

/// What the backend made of the same tokens: logits by position, where it gave some.
fn run(
    r: &mut ModelRunner,
    dice: &mut Dice,
    ids: &[u32],
    vocab: usize,
) -> (Vec<Option<Vec<f64>>>, u32, Option<(Vec<Vec<f64>>, Draft)>) {
    let mut rows: Vec<Option<Vec<f64>>> = vec![None; ids.len()];
    let prompt = dice.number(1, ids.len());
    let head = dice.number(1, prompt.min(16));
    r.begin(0, &ids[..prompt], 256, head).unwrap();
    loop {
        let piece = dice.number(1, r.info().chunk_rows);
        if r.piece(0, piece).unwrap() == 0 {
            break;
        }
    }
    if head > 1 {
        for (i, row) in r.prompt_logits(0).unwrap().iter().enumerate() {
            rows[prompt - head + i] = Some(lift(row));
        }
    }
    let choice = r.finish(0, Sampling::GREEDY, true).unwrap();
    rows[prompt - 1] = choice.logits.map(|row| lift(&row));
    let mut at = prompt;
    while at < ids.len() {
        let count = dice.number(1, 16);
        let kept = dice.number(0, count.min(ids.len() - at));
        // Past the kept rows the guesses are wrong.
        let mut tokens = ids[at..at + kept].to_vec();
        tokens.extend(dice.tokens(count - kept, vocab));
        let window = Window { slot: 0, tokens: &tokens, sampling: Sampling::GREEDY, logits: true };
        let choices = r.windows(&[window]).unwrap().remove(0);
        r.keep(0, kept).unwrap();
        for (i, choice) in choices.into_iter().take(kept).enumerate() {
            rows[at + i] = choice.logits.map(|row| lift(&row));
        }
        at += kept;
    }
    let anchor = dice.number(0, vocab - 1) as u32;
    let mut draft = None;
    if r.info().draft_tokens > 0 {
        let request = DraftRequest { slot: 0, anchor, sampling: Sampling::GREEDY };
        let got = r.draft(&[request]).unwrap().remove(0);
        let logits = (0..got.tokens.len()).map(|i| lift(&r.logit_row(i).unwrap())).collect();
        draft = Some((logits, got));
    }
    (rows, anchor, draft)
}

/// Rows compared, and rows on an edge.
#[derive(Default)]
struct Count {
    compared: usize,
    edges: usize,
}

impl Count {
    /// Compares a row unless noise moves it.
    fn check(&mut self, got: &[f64], want: &[f64], jittered: &[&[f64]], what: &str) -> bool {
        if jittered.iter().any(|row| far(row, want) > STEADY) {
            self.edges += 1;
            return false;
        }
        self.compared += 1;
        let distance = far(got, want);
            if std::env::var("H5").is_ok() { println!("D {distance:e} {what}"); return true; }
        assert!(distance < NEAR, "{what}: {distance}");
        true
    }
}

fn compare(seed: u64, numerics: Numerics, length: usize, count: &mut Count) {
    let mut dice = Dice::new(seed);
    let (options, vocabulary) = fuzz::checkpoint(&mut dice);
    let dir = finback_testkit::temp_dir();
    synth::write(dir.path(), &options, &vocabulary).unwrap();
    let subject = Subject::open(dir.path(), numerics);
    let vocab = vocabulary.size;
    let length = dice.number(1, length);
    let ids = dice.tokens(length, vocab);
    let mut r = subject.runner(dice.number(1, 40));
    let (rows, anchor, draft) = run(&mut r, &mut dice, &ids, vocab);
    let want = Answer::of(&subject.oracle(None), &ids, anchor);
    let jittered: Vec<Answer> =
        (1..4).map(|j| Answer::of(&subject.oracle(Some(j)), &ids, anchor)).collect();
    for (position, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        let others: Vec<&[f64]> = jittered.iter().map(|a| &a.rows[position][..]).collect();
        let what = format!("seed {seed}, position {position} of {length}");
        count.check(row, &want.rows[position], &others, &what);
    }
    assert_eq!(draft.is_some(), !want.draft.is_empty());
    let Some((logits, got)) = draft else { return };
    assert_eq!(logits.len(), want.draft.len());
    for (i, row) in logits.iter().enumerate() {
        let others: Vec<&[f64]> = jittered.iter().map(|a| &a.draft[i][..]).collect();
        let what = format!("seed {seed}, draft {i} after {length}");
        // Past an edge the drafts may follow other tokens.
        if !count.check(row, &want.draft[i], &others, &what) {
            break;
        }
        let distance = (f64::from(got.confidence[i]) - want.confidence[i]).abs();
        assert!(distance < NEAR, "{what}, confidence: {distance}");
    }
}

/// How many checkpoints to try; more by `ORACLE_SEEDS=from..to`.
fn seeds() -> std::ops::Range<u64> {
    let Ok(range) = std::env::var("ORACLE_SEEDS") else { return 0..24 };
    let (from, to) = range.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn rounded_linear_inputs_give_the_oracles_rows_and_drafts() {
    let mut count = Count::default();
    let numerics = Numerics { round_inputs: true, ..Numerics::PLAIN };
    for seed in seeds() {
        compare(seed, numerics, 12, &mut count);
    }
    println!("{} rows agree, {} on an edge", count.compared, count.edges);
    assert!(count.compared > count.edges);
}

#[test]
fn release_numerics_give_the_oracles_rows_and_drafts() {
    let mut count = Count::default();
    for seed in seeds() {
        compare(seed, Numerics::RELEASE, 3, &mut count);
    }
    println!("{} rows agree, {} on an edge", count.compared, count.edges);
    assert!(count.compared > count.edges);
}

#[test]
fn plain_numerics_give_the_oracles_rows_and_drafts() {
    let mut count = Count::default();
    for seed in seeds() {
        compare(seed, Numerics::PLAIN, 70, &mut count);
    }
    println!("{} rows agree, {} on an edge", count.compared, count.edges);
    assert!(count.compared > 2 * count.edges);
}
