//! Index scores of one row and the choice of the best (model-spec section 5).

use std::ops::Range;

use finback_numerics::lanes::Lanes;

use crate::row::dots;
use crate::simd::Simd;

/// Index heads that share one read of a key.
const HEADS: usize = 4;

/// The index query of one row.
pub struct Query<'a> {
    /// `[heads, dim]`.
    pub q: &'a [f32],
    /// `[heads]`, the constants of the score included.
    pub w: &'a [f32],
    /// Channels of a key.
    pub dim: usize,
}

impl Query<'_> {
    /// `sum_h w_h * relu(q_h . key)`, heads ascending.
    #[inline(always)]
    pub fn score<S: Simd>(&self, s: S, key: &[f32]) -> f32 {
        let mut sum = 0.0;
        let mut at = 0;
        while at + HEADS <= self.w.len() {
            let q = &self.q[at * self.dim..(at + HEADS) * self.dim];
            let dots = dots::<S, HEADS, 1>(s, q, key, self.dim);
            for (h, dot) in dots.iter().enumerate() {
                sum = self.w[at + h].fma(relu(dot[0]), sum);
            }
            at += HEADS;
        }
        for h in at..self.w.len() {
            let q = &self.q[h * self.dim..(h + 1) * self.dim];
            let dot = dots::<S, 1, 1>(s, q, key, self.dim)[0][0];
            sum = self.w[h].fma(relu(dot), sum);
        }
        sum
    }
}

/// `max(x, 0)`; a NaN stays.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// Orders by score, then by lower index: larger is better. `None` for what no query may choose: a
/// NaN or minus infinity.
fn rank(score: f32, index: usize) -> Option<u64> {
    if score.is_nan() || score == f32::NEG_INFINITY {
        return None;
    }
    // Adding 0 makes the two zeros one.
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    Some((u64::from(ordered) << 32) | u64::from(u32::MAX - index as u32))
}

/// The best `k` of the (index, score) pairs, ascending by index, into `out`; returns how many.
/// Ties go to the lower index. `ranks` is scratch.
pub fn best(
    pairs: impl Iterator<Item = (usize, f32)>,
    k: usize,
    ranks: &mut Vec<u64>,
    out: &mut [u32],
) -> usize {
    ranks.clear();
    ranks.extend(pairs.filter_map(|(i, score)| rank(score, i)));
    let from = ranks.len().saturating_sub(k);
    if from > 0 {
        ranks.select_nth_unstable(from);
    }
    let chosen = &ranks[from..];
    for (out, rank) in out.iter_mut().zip(chosen) {
        *out = u32::MAX - *rank as u32;
    }
    out[..chosen.len()].sort_unstable();
    chosen.len()
}

/// The candidate blocks of a row: the best `k` by their best score, the newest always among them.
pub fn candidate_blocks(
    scores: &[f32],
    size: usize,
    k: usize,
    ranks: &mut Vec<u64>,
    out: &mut [u32],
) -> usize {
    let newest = scores.len().wrapping_sub(1) / size;
    let blocks = scores.chunks(size).enumerate().map(|(i, block)| {
        let top = block.iter().fold(f32::NEG_INFINITY, |top, &x| if x > top { x } else { top });
        (i, if i == newest { f32::INFINITY } else { top })
    });
    best(blocks, k, ranks, out)
}

/// The rows of a block that exist.
pub fn block_rows(block: u32, size: usize, rows: usize) -> Range<usize> {
    let start = block as usize * size;
    start..(start + size).min(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(scores: &[f32], k: usize) -> Vec<u32> {
        let mut out = vec![0; k];
        let n = best(scores.iter().copied().enumerate(), k, &mut Vec::new(), &mut out);
        out.truncate(n);
        out
    }

    #[test]
    fn ties_go_to_the_lower_index_and_picks_ascend() {
        assert_eq!(pick(&[1.0, 3.0, 3.0, 2.0, 3.0], 2), [1, 2]);
        assert_eq!(pick(&[0.0, -0.0, 0.0], 1), [0]);
        assert_eq!(pick(&[-1.0, -2.0, -0.5], 2), [0, 2]);
    }

    #[test]
    fn what_cannot_be_chosen_is_left_out() {
        let scores = [f32::NAN, f32::NEG_INFINITY, f32::MIN, f32::INFINITY];
        assert_eq!(pick(&scores, 4), [2, 3]);
    }

    #[test]
    fn the_newest_block_takes_one_of_the_places() {
        let scores = [9.0, 9.0, 5.0, 5.0, 7.0, 7.0, -3.0];
        let mut out = [0; 2];
        let n = candidate_blocks(&scores, 2, 2, &mut Vec::new(), &mut out);
        assert_eq!((n, out), (2, [0, 3]));
        assert_eq!(block_rows(3, 2, scores.len()), 6..7);
    }
}
