//! Attention of one row's heads over decoded keys, which are also the values.

use finback_numerics::lanes::Lanes;
use finback_numerics::math;

use crate::row::dots;
use crate::simd::{LANES, Simd};

/// The keys of one row, decoded once for all its heads.
pub struct Keys {
    head_dim: usize,
    rows: Vec<f32>,
    len: usize,
    /// Weights of up to [`HEADS`] heads over the keys.
    weights: Vec<f32>,
}

/// Heads that share one read of the keys.
const HEADS: usize = 4;

impl Keys {
    /// Room for `most` keys.
    pub fn new(most: usize, head_dim: usize) -> Self {
        let padded = most.next_multiple_of(LANES);
        Self {
            head_dim,
            rows: vec![0.0; most * head_dim],
            len: 0,
            weights: vec![0.0; HEADS * padded],
        }
    }

    /// Forgets the keys.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The next key, to fill.
    pub fn push(&mut self) -> &mut [f32] {
        let at = self.len * self.head_dim;
        self.len += 1;
        &mut self.rows[at..at + self.head_dim]
    }

    /// Replaces the queries of consecutive heads by their attention over the keys, in their order:
    /// `sum_k exp(s_k - m) k / (sum_k exp(s_k - m) + exp(sink - m))` with `s_k = q . k * scale`.
    #[inline(always)]
    pub fn attend<S: Simd>(&mut self, s: S, q: &mut [f32], sinks: &[f32], scale: f32) {
        let mut heads = q.chunks_exact_mut(HEADS * self.head_dim);
        let mut sinks4 = sinks.chunks_exact(HEADS);
        for (q, sinks) in heads.by_ref().zip(sinks4.by_ref()) {
            self.heads::<S, HEADS>(s, q, sinks, scale);
        }
        let rest = heads.into_remainder();
        for (q, sink) in rest.chunks_exact_mut(self.head_dim).zip(sinks4.remainder().chunks(1)) {
            self.heads::<S, 1>(s, q, sink, scale);
        }
    }

    #[inline(always)]
    fn heads<S: Simd, const H: usize>(&mut self, s: S, q: &mut [f32], sinks: &[f32], scale: f32) {
        let padded = self.len.next_multiple_of(LANES);
        self.scores::<S, H>(s, q, scale, padded);
        let mut divisor = [0.0f32; H];
        for h in 0..H {
            let weights = &mut self.weights[h * padded..(h + 1) * padded];
            divisor[h] = softmax(s, weights, self.len, sinks[h]);
        }
        self.mix::<S, H>(s, q, &divisor, padded);
    }

    #[inline(always)]
    fn scores<S: Simd, const H: usize>(&mut self, s: S, q: &[f32], scale: f32, padded: usize) {
        let pairs = self.len / 2 * 2;
        for k in (0..pairs).step_by(2) {
            self.score_keys::<S, H, 2>(s, q, scale, padded, k);
        }
        if pairs < self.len {
            self.score_keys::<S, H, 1>(s, q, scale, padded, pairs);
        }
    }

    #[inline(always)]
    fn score_keys<S: Simd, const H: usize, const K: usize>(
        &mut self,
        s: S,
        q: &[f32],
        scale: f32,
        padded: usize,
        k: usize,
    ) {
        let d = self.head_dim;
        let scores = dots::<S, H, K>(s, q, &self.rows[k * d..(k + K) * d], d);
        for (weights, scores) in self.weights.chunks_exact_mut(padded).zip(scores) {
            for (weight, score) in weights[k..].iter_mut().zip(scores) {
                *weight = score * scale;
            }
        }
    }

    #[inline(always)]
    fn mix<S: Simd, const H: usize>(
        &self,
        s: S,
        out: &mut [f32],
        divisor: &[f32; H],
        padded: usize,
    ) {
        let d = self.head_dim;
        for at in (0..d).step_by(2 * LANES) {
            let mut sum = [[s.splat(0.0); 2]; H];
            for k in 0..self.len {
                let key = &self.rows[k * d + at..k * d + at + 2 * LANES];
                let key = [s.load(key), s.load(&key[LANES..])];
                for (h, sum) in sum.iter_mut().enumerate() {
                    let w = s.splat(self.weights[h * padded + k]);
                    sum[0] = w.fma(key[0], sum[0]);
                    sum[1] = w.fma(key[1], sum[1]);
                }
            }
            for ((out, sum), by) in out.chunks_exact_mut(d).zip(sum).zip(divisor) {
                let by = s.splat(*by);
                s.store(&mut out[at..], sum[0] / by);
                s.store(&mut out[at + LANES..], sum[1] / by);
            }
        }
    }
}

/// Turns the first `len` scores into `exp(s - m)`, the padding into 0; returns the divisor.
#[inline(always)]
fn softmax<S: Simd>(s: S, weights: &mut [f32], len: usize, sink: f32) -> f32 {
    weights[len..].fill(f32::NEG_INFINITY);
    let mut top = sink;
    for &w in &weights[..len] {
        top = if w > top { w } else { top };
    }
    let (base, mut sum) = (s.splat(top), s.splat(0.0));
    for chunk in weights.chunks_exact_mut(LANES) {
        let e = math::exp(s.load(chunk) - base);
        s.store(chunk, e);
        sum = sum + e;
    }
    s.tree(sum) + math::exp(sink - top)
}
