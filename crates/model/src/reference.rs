//! The float64 oracle: the whole model row by row, plain, slow, obviously right. For tests only.
//!
//! It shares nothing with the product's forward pass but the config and the constants of Engram
//! addressing: it reads a checkpoint's bytes by its own formulas, keeps every row of every layer, and
//! rounds only where model-spec section 11 says so. Every sum runs in float64.
//!
//! Section numbers below are those of the model specification.

mod attention;
mod draft;
mod engram;
mod experts;
pub mod fuzz;
mod hyper;
mod linear;
mod load;
mod number;
mod rope;
mod state;
#[cfg(test)]
mod tests;
mod trace;

use finback_numerics::rng;
use finback_ops::{Engram, Numerics};

use crate::config::Config;
pub use draft::DraftRound;
use linear::Linear;
use load::{Block, Drafter};
pub use state::State;
pub use trace::{LayerTrace, Trace};

/// A model whose every weight is in memory as float64.
#[derive(Debug)]
pub struct Reference {
    config: Config,
    numerics: Numerics,
    /// `[vocab][hidden]`.
    embed: Vec<Vec<f64>>,
    blocks: Vec<Block>,
    norm: Vec<f64>,
    head: Linear,
    engram: Option<Engram>,
    drafter: Option<Drafter>,
    /// Seed and relative size.
    jitter: Option<(u64, f64)>,
}

/// A row on its way through the layers: the residual streams and the mix that collapses them next.
#[derive(Debug, Clone)]
struct Row {
    /// `[hc][hidden]`.
    streams: Vec<Vec<f64>>,
    /// `[hc]`.
    pre: Vec<f64>,
}

/// What layers hand on to the layers above them, for one row.
#[derive(Debug, Default)]
struct Shared {
    /// Compressed rows that the last index source chose, ascending.
    chosen: Vec<usize>,
    /// Whether each compressed row lies in a candidate block, from the candidate source on.
    candidates: Vec<bool>,
}

impl Reference {
    /// Runs `tokens` at the positions after `state`'s; a logit row `[vocab]` for each.
    ///
    /// Ids must be below the vocabulary.
    pub fn forward(&self, state: &mut State, tokens: &[u32]) -> Vec<Vec<f64>> {
        tokens.iter().map(|&token| self.step(state, token, &mut Trace::default())).collect()
    }

    /// [`Reference::forward`], and what every row decided.
    pub fn forward_traced(&self, state: &mut State, tokens: &[u32]) -> (Vec<Vec<f64>>, Vec<Trace>) {
        let traced = |&token| {
            let mut trace = Trace::default();
            (self.step(state, token, &mut trace), trace)
        };
        tokens.iter().map(traced).unzip()
    }

    /// The `count` greedy tokens after `prompt`, from an empty state.
    pub fn greedy(&self, prompt: &[u32], count: usize) -> Vec<u32> {
        let mut state = State::default();
        let mut logits = self.forward(&mut state, prompt).pop().unwrap_or_default();
        let mut out = Vec::new();
        while out.len() < count {
            let token = argmax(&logits);
            out.push(token);
            logits = self.step(&mut state, token, &mut Trace::default());
        }
        out
    }

    /// Adds noise of this relative size, keyed by `seed`, at every point where the release stores a
    /// value. A row whose logits move by far more has a rounding or a choice on its edge.
    pub fn jitter(&mut self, seed: u64, relative: f64) {
        self.jitter = Some((seed, relative));
    }

    /// One row through the whole model (section 3).
    fn step(&self, state: &mut State, token: u32, trace: &mut Trace) -> Vec<f64> {
        let position = state.len();
        if let Some(engram) = &self.engram {
            state.ids.push(engram.map[token as usize]);
        }
        let mut row = self.first(token);
        let (mut shared, mut taps) = (Shared::default(), Vec::new());
        for block in &self.blocks {
            let mut seen = LayerTrace::default();
            if let Some(engram) = &block.engram {
                self.apply_engram(engram, &mut row.streams, state, &mut seen);
            }
            if self.taps(block.layer) {
                taps.extend(self.tap(&row.streams));
            }
            let attend = |x: &[Vec<f64>], seen: &mut LayerTrace| {
                vec![self.attention(block, &x[0], position, state, &mut shared, seen)]
            };
            let mut rows = [row];
            self.layer(block, &mut rows, attend, &mut seen);
            [row] = rows;
            seen.streams = row.streams.concat();
            trace.layers.push(seen);
        }
        self.append_context(&taps, position, state);
        state.length += 1;
        let hidden = self.rms(&self.collapse(&row.streams, &row.pre), &self.norm);
        self.head.exact(&hidden)
    }

    /// A token's embedding in every stream; the first collapse takes the first stream alone.
    fn first(&self, token: u32) -> Row {
        let hc = self.config.hc_mult;
        let mut pre = vec![0.0; hc];
        pre[0] = 1.0;
        Row { streams: vec![self.embed[token as usize].clone(); hc], pre }
    }

    /// One layer over `rows`: each sublayer collapses with the mix of the sublayer before it.
    fn layer(
        &self,
        block: &Block,
        rows: &mut [Row],
        attend: impl FnOnce(&[Vec<f64>], &mut LayerTrace) -> Vec<Vec<f64>>,
        seen: &mut LayerTrace,
    ) {
        let input =
            |row: &Row, norm: &[f64]| self.rms(&self.collapse(&row.streams, &row.pre), norm);
        let mixes: Vec<_> = rows.iter().map(|row| self.mix(&block.hc_attn, &row.streams)).collect();
        let x: Vec<_> = rows.iter().map(|row| input(row, &block.attn_norm)).collect();
        let y = attend(&x, seen);
        for ((row, mix), y) in rows.iter_mut().zip(mixes).zip(y) {
            row.streams = self.expand(&y, &row.streams, &mix);
            row.pre = mix.pre;
            let mix = self.mix(&block.hc_ffn, &row.streams);
            let y = self.moe(&block.ffn, &input(row, &block.ffn_norm), seen);
            row.streams = self.expand(&y, &row.streams, &mix);
            row.pre = mix.pre;
        }
    }

    /// Where the release keeps bf16, the value that it keeps (section 11).
    fn store(&self, mut x: Vec<f64>) -> Vec<f64> {
        if let Some((seed, relative)) = self.jitter {
            for (i, v) in x.iter_mut().enumerate() {
                let u = f64::from(rng::uniform(seed, v.to_bits(), i as u32));
                *v *= 1.0 + relative * (2.0 * u - 1.0);
            }
        }
        if self.numerics.round_stores {
            x.iter_mut().for_each(|v| *v = number::round_bf16(*v));
        }
        x
    }

    /// `x / sqrt(mean(x^2) + eps) * weight`.
    fn rms(&self, x: &[f64], weight: &[f64]) -> Vec<f64> {
        let norm = self.root_mean_square(x);
        self.store(x.iter().zip(weight).map(|(v, w)| v / norm * w).collect())
    }

    fn root_mean_square(&self, x: &[f64]) -> f64 {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        (mean + self.config.rms_norm_eps).sqrt()
    }
}

/// The index of the largest value; ties go to the lowest.
fn argmax(values: &[f64]) -> u32 {
    let best = |best: usize, (i, &v): (usize, &f64)| if v > values[best] { i } else { best };
    values.iter().enumerate().fold(0, best) as u32
}

/// Indices of the `count` largest values above minus infinity; ties go to the lowest.
fn largest(values: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[b].partial_cmp(&values[a]).unwrap_or(std::cmp::Ordering::Equal));
    order.truncate(count);
    order.retain(|&i| values[i] > f64::NEG_INFINITY);
    order
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softmax(values: &[f64]) -> Vec<f64> {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = values.iter().map(|v| (v - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

/// Four sums side by side, so that tests need not wait for one addition after the other.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.as_chunks::<4>(), b.as_chunks::<4>());
    let mut sums = [0.0; 4];
    for (x, y) in a.0.iter().zip(b.0) {
        (0..4).for_each(|i| sums[i] += x[i] * y[i]);
    }
    let rest: f64 = a.1.iter().zip(b.1).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}
