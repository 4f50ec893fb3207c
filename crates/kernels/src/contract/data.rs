//! Seeded inputs, and bounds from operation counts.

use finback_numerics::{bf16, fp8, quant, rng};

use super::case::Want;

/// The unit roundoff of f32.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
/// The unit roundoff of bf16.
pub const BF16_UNIT: f64 = 1.0 / 256.0;

/// The relative error of `n` rounded operations in a row.
pub fn gamma(n: usize) -> f64 {
    let n = n as f64 * UNIT;
    n / (1.0 - n)
}

/// Roundings between a term and a group's sum of `n`: a lane's chain, the warp's five steps, and the
/// two of the four warps.
pub fn group_depth(n: usize) -> usize {
    n.div_ceil(128) + 7
}

/// A value within `bound`, and rounded to bf16 after that where asked.
pub fn near(value: f64, bound: f64, round: bool) -> (f64, f64) {
    let bound = bound + f64::from(f32::MIN_POSITIVE);
    (value, if round { bound + (value.abs() + bound) * BF16_UNIT } else { bound })
}

/// Values with a bound each.
pub fn nears(values: impl Iterator<Item = (f64, f64)>) -> Want {
    Want::Near(values.collect())
}

/// A row as products of FP8 and FP4 weights take it: codes in steps of 128, then the scale of each step.
pub fn coded_row(x: &[f32]) -> Vec<u8> {
    let (mut codes, mut scales) = (vec![0; x.len()], vec![0; x.len() / 32]);
    quant::fp8_block32(x, &mut codes, &mut scales);
    let tops: Vec<u8> = scales.chunks(4).filter_map(|four| four.iter().max().copied()).collect();
    // Byte p of a step is that of an input; eight bytes of a block follow each other in two fours.
    let code = |p: usize| {
        let (i, half, block, j) = (p % 128 / 32, p % 32 / 16, p % 16 / 4, p % 4);
        let n = p / 128 * 128 + block * 32 + i * 8 + half * 4 + j;
        let apart = f32::from(tops[n / 128] - scales[n / 32]);
        fp8::encode(fp8::decode(codes[n]) * (-apart).exp2())
    };
    let steps = tops.iter().flat_map(|&top| fp8::e8m0(top).to_ne_bytes());
    (0..x.len()).map(code).chain(steps).collect()
}

/// Whether a coded row of so many channels is as it was but for one step, in which a block is all NaN, and so is the
/// step's scale.
pub fn block_is_nan(before: &[u8], after: &[u8], width: usize, channel: usize) -> bool {
    let (step, block) = (channel / 128, channel % 128 / 32);
    let scale = width + step * 4;
    let codes = step * 128..(step + 1) * 128;
    let own = after[codes.clone()].iter().enumerate().filter(|(p, _)| p % 16 / 4 == block);
    let nan = f32::from_ne_bytes([0, 1, 2, 3].map(|i| after[scale + i])).is_nan();
    let same = before.iter().zip(after).enumerate().all(|(at, (before, after))| {
        before == after || codes.contains(&at) || (scale..scale + 4).contains(&at)
    });
    own.fold(nan && same, |all, (_, code)| all && *code == 0x7f)
}

/// Draws for a case's inputs.
pub struct Data {
    seed: u64,
    next: u64,
}

impl Data {
    /// Its own stream of draws for each seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, next: 0 }
    }

    /// A draw in (0, 1).
    pub fn unit(&mut self) -> f32 {
        self.next += 1;
        rng::uniform(self.seed, self.next, 0)
    }

    /// Values in (-scale, scale), some of them much smaller than the rest.
    pub fn floats(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n)
            .map(|_| {
                let x = (self.unit() * 2.0 - 1.0) * scale;
                if self.unit() < 0.1 { x * 0.01 } else { x }
            })
            .collect()
    }

    /// [`Data::floats`], rounded to bf16 where asked.
    pub fn kept(&mut self, n: usize, scale: f32, round: bool) -> Vec<f32> {
        let values = self.floats(n, scale).into_iter();
        values.map(|x| if round { bf16::round(x) } else { x }).collect()
    }

    /// Values in (low, high).
    pub fn between(&mut self, n: usize, low: f32, high: f32) -> Vec<f32> {
        (0..n).map(|_| low + (high - low) * self.unit()).collect()
    }

    /// Whole numbers below `below`.
    pub fn below(&mut self, n: usize, below: usize) -> Vec<u32> {
        (0..n).map(|_| ((self.unit() * below as f32) as usize).min(below - 1) as u32).collect()
    }

    /// Bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        self.below(n, 256).into_iter().map(|x| x as u8).collect()
    }

    /// E4M3 codes, none of them NaN.
    pub fn e4m3(&mut self, n: usize) -> Vec<u8> {
        let codes = self.bytes(n);
        codes.into_iter().map(|code| if code & 0x7f == 0x7f { code - 1 } else { code }).collect()
    }

    /// E8M0 scales around `2^middle`.
    pub fn e8m0(&mut self, n: usize, middle: i32) -> Vec<u8> {
        self.below(n, 5).into_iter().map(|x| (125 + middle + x as i32) as u8).collect()
    }
}
