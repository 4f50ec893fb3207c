//! The model's block quantisers: f32 rows to codes with one scale a block, and back.
//!
//! Rows must be whole blocks. A block that holds a NaN or an infinity gets the NaN scale, so its
//! every value reads as NaN. Lifting gives exactly the values of the model's fake quantisation:
//! code times scale needs no rounding.

use crate::{fp4, fp8};

/// Channels that share a scale in [`fp8_block32`] and [`fp4_block32`].
pub const BLOCK32: usize = 32;
/// Channels that share a scale in [`fp4_block16`].
pub const BLOCK16: usize = 16;

/// The smallest block maximum that [`fp8_block32`] tells apart.
const FP8_FLOOR: f32 = 1e-4;
/// The smallest block maximum of [`fp4_block32`]: 6 * 2^-126.
const FP4_FLOOR: f32 = 6.0 * f32::MIN_POSITIVE;
/// The smallest block maximum of [`fp4_block16`]: 6 * 2^-9, the smallest e4m3 scale.
const FP4_E4M3_FLOOR: f32 = 6.0 / 512.0;

/// The largest magnitude in a block; NaN if it holds one.
#[inline]
pub fn amax(block: &[f32]) -> f32 {
    // As integers, magnitudes order like floats and NaN lies above infinity.
    f32::from_bits(block.iter().fold(0, |top, x| top.max(x.to_bits() & 0x7fff_ffff)))
}

/// The e8m0 scale of an e4m3 block with this maximum: 2^ceil(log2(amax / 448)), `amax` at least
/// 1e-4; the NaN byte when it is not finite.
#[inline]
pub fn fp8_scale(amax: f32) -> u8 {
    // Comparing this way keeps a NaN.
    let amax = if amax < FP8_FLOOR { FP8_FLOOR } else { amax };
    fp8::pow2_at_least(amax * (1.0 / fp8::E4M3_MAX))
}

/// The e8m0 scale of an e2m1 block with this maximum: 2^ceil(log2(amax / 6)), `amax` at least
/// 6 * 2^-126; the NaN byte when it is not finite.
#[inline]
pub fn fp4_scale(amax: f32) -> u8 {
    let amax = if amax < FP4_FLOOR { FP4_FLOOR } else { amax };
    fp8::pow2_at_least(amax * (1.0 / fp4::E2M1_MAX))
}

/// The e4m3 scale of an e2m1 block with this maximum: amax / 6 rounded to nearest even, `amax`
/// at least 6 * 2^-9, saturating at 448; the NaN code when it is not finite.
#[inline]
pub fn fp4_e4m3_scale(amax: f32) -> u8 {
    if amax.is_nan() || amax.is_infinite() {
        return fp8::E4M3_NAN;
    }
    let amax = if amax < FP4_E4M3_FLOOR { FP4_E4M3_FLOOR } else { amax };
    fp8::encode(amax / fp4::E2M1_MAX)
}

/// The reciprocal of a scale byte that a quantiser gave: a power of two, 0 for the NaN byte.
#[inline]
pub fn e8m0_reciprocal(byte: u8) -> f32 {
    if byte == fp8::E8M0_NAN { 0.0 } else { fp8::e8m0(254 - byte) }
}

/// Rounds a row to e4m3 codes, one e8m0 scale for 32 channels.
pub fn fp8_block32(row: &[f32], codes: &mut [u8], scales: &mut [u8]) {
    check(row.len(), BLOCK32, codes.len(), row.len(), scales.len());
    let blocks = row.chunks_exact(BLOCK32).zip(codes.chunks_exact_mut(BLOCK32));
    for ((block, codes), scale) in blocks.zip(scales) {
        *scale = fp8_scale(amax(block));
        let down = e8m0_reciprocal(*scale);
        for (x, code) in block.iter().zip(codes) {
            *code = fp8::encode(x * down);
        }
    }
}

/// The values of [`fp8_block32`] codes.
pub fn fp8_block32_lift(codes: &[u8], scales: &[u8], row: &mut [f32]) {
    check(row.len(), BLOCK32, codes.len(), row.len(), scales.len());
    let blocks = row.chunks_exact_mut(BLOCK32).zip(codes.chunks_exact(BLOCK32));
    for ((block, codes), scale) in blocks.zip(scales) {
        let scale = fp8::e8m0(*scale);
        for (x, code) in block.iter_mut().zip(codes) {
            *x = fp8::decode(*code) * scale;
        }
    }
}

/// Rounds a row to e2m1 codes, two in a byte with the even channel low, one e8m0 scale for 32
/// channels.
pub fn fp4_block32(row: &[f32], nibbles: &mut [u8], scales: &mut [u8]) {
    check(row.len(), BLOCK32, nibbles.len(), row.len() / 2, scales.len());
    let blocks = row.chunks_exact(BLOCK32).zip(nibbles.chunks_exact_mut(BLOCK32 / 2));
    for ((block, nibbles), scale) in blocks.zip(scales) {
        *scale = fp4_scale(amax(block));
        let down = e8m0_reciprocal(*scale);
        pack(block, nibbles, |x| x * down);
    }
}

/// The values of [`fp4_block32`] codes.
pub fn fp4_block32_lift(nibbles: &[u8], scales: &[u8], row: &mut [f32]) {
    check(row.len(), BLOCK32, nibbles.len(), row.len() / 2, scales.len());
    let blocks = row.chunks_exact_mut(BLOCK32).zip(nibbles.chunks_exact(BLOCK32 / 2));
    for ((block, nibbles), scale) in blocks.zip(scales) {
        unpack(nibbles, fp8::e8m0(*scale), block);
    }
}

/// Rounds a row to e2m1 codes, two in a byte with the even channel low, one e4m3 scale for 16
/// channels.
pub fn fp4_block16(row: &[f32], nibbles: &mut [u8], scales: &mut [u8]) {
    check(row.len(), BLOCK16, nibbles.len(), row.len() / 2, scales.len());
    let blocks = row.chunks_exact(BLOCK16).zip(nibbles.chunks_exact_mut(BLOCK16 / 2));
    for ((block, nibbles), scale) in blocks.zip(scales) {
        *scale = fp4_e4m3_scale(amax(block));
        let divisor = fp8::decode(*scale);
        // A true division: a reciprocal could cross a tie.
        pack(block, nibbles, |x| x / divisor);
    }
}

/// The values of [`fp4_block16`] codes.
pub fn fp4_block16_lift(nibbles: &[u8], scales: &[u8], row: &mut [f32]) {
    check(row.len(), BLOCK16, nibbles.len(), row.len() / 2, scales.len());
    let blocks = row.chunks_exact_mut(BLOCK16).zip(nibbles.chunks_exact(BLOCK16 / 2));
    for ((block, nibbles), scale) in blocks.zip(scales) {
        unpack(nibbles, fp8::decode(*scale), block);
    }
}

/// Sizes are the caller's layout arithmetic, never input data.
fn check(len: usize, block: usize, codes: usize, want_codes: usize, scales: usize) {
    assert!(len.is_multiple_of(block), "row of {len} channels: a multiple of {block} is needed");
    assert_eq!(codes, want_codes, "code bytes for {len} channels");
    assert_eq!(scales, len / block, "scale bytes for {len} channels");
}

fn pack(block: &[f32], nibbles: &mut [u8], scaled: impl Fn(f32) -> f32) {
    for (pair, byte) in block.chunks_exact(2).zip(nibbles) {
        *byte = fp4::encode(scaled(pair[0])) | fp4::encode(scaled(pair[1])) << 4;
    }
}

fn unpack(nibbles: &[u8], scale: f32, block: &mut [f32]) {
    for (byte, pair) in nibbles.iter().zip(block.chunks_exact_mut(2)) {
        pair[0] = fp4::decode(*byte) * scale;
        pair[1] = fp4::decode(*byte >> 4) * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Quantise = fn(&[f32], &mut [u8], &mut [u8]);
    type Lift = fn(&[u8], &[u8], &mut [f32]);

    fn round_trip(row: &[f32], bits: usize, block: usize, q: Quantise, lift: Lift) -> Vec<f32> {
        let (mut codes, mut scales) = (vec![0; row.len() * bits / 8], vec![0; row.len() / block]);
        q(row, &mut codes, &mut scales);
        let mut out = vec![0.0; row.len()];
        lift(&codes, &scales, &mut out);
        out
    }

    fn fp8(row: &[f32]) -> Vec<f32> {
        round_trip(row, 8, 32, fp8_block32, fp8_block32_lift)
    }
    fn fp4(row: &[f32]) -> Vec<f32> {
        round_trip(row, 4, 32, fp4_block32, fp4_block32_lift)
    }
    fn fp4_16(row: &[f32]) -> Vec<f32> {
        round_trip(row, 4, 16, fp4_block16, fp4_block16_lift)
    }

    /// Rounding by the definition in f64: to multiples of `step(magnitude)`, ties to even.
    fn grid(x: f64, max: f64, step: impl Fn(f64) -> f64) -> f64 {
        let x = x.clamp(-max, max);
        let step = step(x.abs());
        (x / step).round_ties_even() * step
    }
    fn grid_e4m3(x: f64) -> f64 {
        grid(x, 448.0, |m| 2f64.powf(m.max(2f64.powi(-6)).log2().floor() - 3.0))
    }
    fn grid_e2m1(x: f64) -> f64 {
        grid(x, 6.0, |m| {
            if m < 2.0 {
                0.5
            } else if m < 4.0 {
                1.0
            } else {
                2.0
            }
        })
    }
    fn ceil_pow2(x: f32) -> f64 {
        let mut p = 2f64.powi(-149);
        while p < x as f64 {
            p *= 2.0;
        }
        p
    }

    fn rows() -> impl Strategy<Value = Vec<f32>> {
        let value = prop_oneof![-3.0f32..3.0, -0.05f32..0.05, -3e4f32..3e4, Just(0.0f32)];
        prop::collection::vec(value, 64)
    }

    proptest! {
        #[test]
        fn rows_are_what_the_definition_says(row in rows()) {
            let (a, b, c) = (fp8(&row), fp4(&row), fp4_16(&row));
            for k in 0..row.len() {
                let top = |n: usize| amax(&row[k / n * n..][..n]);
                let scale = ceil_pow2(top(32).max(1e-4) * (1.0 / 448.0));
                prop_assert_eq!(a[k] as f64, grid_e4m3(row[k] as f64 / scale) * scale);
                let scale = ceil_pow2(top(32).max(6.0 * 2f32.powi(-126)) * (1.0 / 6.0));
                prop_assert_eq!(b[k] as f64, grid_e2m1(row[k] as f64 / scale) * scale);
                let scale = grid_e4m3((top(16).max(6.0 / 512.0) / 6.0) as f64);
                prop_assert_eq!(c[k] as f64, grid_e2m1((row[k] / scale as f32) as f64) * scale);
            }
            // Rounding again changes nothing where the scale is a power of two.
            prop_assert_eq!(fp8(&a), a);
            prop_assert_eq!(fp4(&b), b);
        }
    }

    #[test]
    fn block_maxima_on_a_power_of_two_keep_their_scale() {
        for e in -20..20 {
            assert_eq!(
                fp8::e8m0(fp8_scale(448.0 * 2f32.powi(e))),
                2f32.powi(e).max(2f32.powi(-22))
            );
            assert_eq!(fp8::e8m0(fp4_scale(6.0 * 2f32.powi(e))), 2f32.powi(e));
        }
        assert_eq!(fp4_scale(0.0), 1);
        assert_eq!(fp4_e4m3_scale(0.0), 1);
        assert_eq!(fp4_e4m3_scale(1e30), 0x7e);
    }

    #[test]
    fn a_block_with_a_nan_or_infinity_reads_as_nan_and_its_neighbour_does_not() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut row = vec![1.5; 64];
            row[3] = bad;
            for (out, block) in [(fp8(&row), 32), (fp4(&row), 32), (fp4_16(&row), 16)] {
                assert!(out[..block].iter().all(|x| x.is_nan()));
                assert!(out[block..].iter().all(|x| *x == 1.5), "{out:?}");
            }
        }
    }
}
