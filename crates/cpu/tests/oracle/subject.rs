//! A checkpoint as both sides load it, and the backend's way through a text.

use std::path::Path;
use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_model::reference::Reference;
use finback_model::reference::fuzz::Dice;
use finback_model::{Config, DraftRequest, ModelRunner, Runner, Window, spec};
use finback_ops::{Limits, Numerics, Penalties, Sampling};

/// Relative noise in the oracle that finds rows on an edge: about that of f32 arithmetic.
const JITTER: f64 = 2e-7;
const CONTEXT: usize = 256;

pub struct Subject {
    config: Config,
    ck: Checkpoint,
    map: Option<Vec<u32>>,
    numerics: Numerics,
}

/// What the backend made of a text.
pub struct Ran {
    /// Logits by position, where it gave some.
    pub rows: Vec<Option<Vec<f64>>>,
    /// Logits of each draft, with its confidence behind them.
    pub draft: Vec<Vec<f64>>,
    /// The slot's state at the end.
    pub state: Vec<u8>,
}

impl Subject {
    pub fn open(dir: &Path, numerics: Numerics) -> Self {
        let map = std::fs::read(dir.join("engram_token_map.json")).ok();
        Self {
            config: Config::load(dir).unwrap(),
            ck: Checkpoint::open(dir).unwrap(),
            map: map.map(|text| serde_json::from_slice(&text).unwrap()),
            numerics,
        }
    }

    /// The oracle; with a seed, one with noise.
    pub fn oracle(&self, jitter: Option<u64>) -> Reference {
        let map = self.map.clone().unwrap_or_default();
        let mut oracle = Reference::load(&self.ck, &self.config, &map, self.numerics).unwrap();
        if let Some(seed) = jitter {
            oracle.jitter(seed, JITTER);
        }
        oracle
    }

    fn runner(&self, chunk: usize) -> ModelRunner {
        let spec = spec::load(&self.ck, &self.config, self.map.clone(), self.numerics).unwrap();
        let spec = Arc::new(spec);
        let logit_rows = ModelRunner::logit_rows(1);
        let rows = chunk.max(finback_model::WINDOW_ROWS);
        let limits = Limits { slots: 1, rows, logit_rows, context: CONTEXT, blocks: 1 };
        let options = CpuOptions { threads: 1, isa: Isa::detect() };
        let ops = CpuOps::new(spec.clone(), limits, options).unwrap();
        ModelRunner::new(Box::new(ops), spec)
    }

    /// Runs `ids`, then drafts from `anchor`: a prompt in random pieces, then random windows of which
    /// a random part is kept.
    pub fn run(&self, dice: &mut Dice, ids: &[u32], anchor: u32) -> Ran {
        let mut r = self.runner(dice.number(1, 40));
        let mut rows: Vec<Option<Vec<f64>>> = vec![None; ids.len()];
        let prompt = dice.number(1, ids.len());
        let head = dice.number(1, prompt.min(r.info().window_rows));
        r.begin(0, &ids[..prompt], CONTEXT, head).unwrap();
        while r.piece(0, dice.number(1, r.info().chunk_rows)).unwrap() > 0 {}
        if head > 1 {
            for (i, row) in r.prompt_logits(0).unwrap().iter().enumerate() {
                rows[prompt - head + i] = Some(lift(row));
            }
        }
        let choice = r.finish(0, Sampling::GREEDY, &[], true).unwrap();
        rows[prompt - 1] = choice.logits.map(|row| lift(&row));
        let mut at = prompt;
        while at < ids.len() {
            let count = dice.number(1, r.info().window_rows);
            let kept = dice.number(0, count.min(ids.len() - at));
            // Past the kept rows the guesses are wrong.
            let mut tokens = ids[at..at + kept].to_vec();
            tokens.extend(dice.tokens(count - kept, self.config.vocab_size));
            let sampling = Sampling::GREEDY;
            let window = Window { slot: 0, tokens: &tokens, sampling, adjust: &[], logits: true };
            let choices = r.windows(&[window]).unwrap().remove(0);
            r.keep(0, kept).unwrap();
            for (i, choice) in choices.into_iter().take(kept).enumerate() {
                rows[at + i] = choice.logits.map(|row| lift(&row));
            }
            at += kept;
        }
        let draft = draft(&mut r, anchor);
        Ran { rows, draft, state: r.state(0).unwrap() }
    }
}

fn draft(r: &mut ModelRunner, anchor: u32) -> Vec<Vec<f64>> {
    if r.info().draft_tokens == 0 {
        return Vec::new();
    }
    let request = DraftRequest {
        slot: 0,
        anchor,
        sampling: Sampling::GREEDY,
        adjust: &[],
        penalties: Penalties::default(),
    };
    let got = r.draft(&[request]).unwrap().remove(0);
    let row = |(i, &confidence): (usize, &f32)| {
        let mut row = lift(&r.logit_row(i).unwrap());
        row.push(f64::from(confidence));
        row
    };
    got.confidence.iter().enumerate().map(row).collect()
}

fn lift(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| f64::from(x)).collect()
}
