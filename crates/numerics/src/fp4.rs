//! FP4 values (e2m1): codes 0..8 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; bit 3 is the sign.

use crate::lanes::{Bits, Lanes};

/// The largest e2m1 value.
pub const E2M1_MAX: f32 = 6.0;

/// The value of every e2m1 code.
pub const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// 2^126: an e2m1 code with its sign at bit 31 and its other bits at 22..25 is its value times
/// 2^-126 as f32.
const UNSHIFT: f32 = f32::from_bits((127 + 126) << 23);
/// 2^-126.
const SHIFT: f32 = f32::from_bits((127 - 126) << 23);

/// The value of the code in the low four bits of `code`.
#[inline(always)]
pub fn decode(code: u8) -> f32 {
    E2M1[(code & 15) as usize]
}

/// The e2m1 code nearest to `x`, ties to the even code, saturating at ±6. A NaN gives ±6.
#[inline(always)]
pub fn encode(x: f32) -> u8 {
    code_of(round(x)) as u8
}

/// `x` rounded to the nearest e2m1 value, ties to even, saturating at ±6, in each lane.
/// A NaN gives ±6: callers keep NaNs out through the block's scale.
#[inline(always)]
pub fn round<L: Lanes>(x: L) -> L {
    let magnitude = x.abs().min(x.splat(E2M1_MAX));
    // Adding 2^(e+22) puts the last kept bit, 2^(e-1), in the last place of the sum.
    let bits = magnitude.max(x.splat(1.0)).bits();
    let big = L::from_bits((bits & bits.splat(0x7f80_0000)).add(bits.splat(22 << 23)));
    ((magnitude + big) - big).copysign(x)
}

/// The code, in the low four bits of each word, of a value that lies on the e2m1 grid.
#[inline(always)]
pub fn code_of<L: Lanes>(rounded: L) -> L::Bits {
    let bits = (rounded * rounded.splat(SHIFT)).bits();
    (bits.shr::<22>() & bits.splat(7)) | (bits.shr::<28>() & bits.splat(8))
}

/// The values of e2m1 codes in the low four bits of each word, whose other bits are ignored.
/// `shape` only gives the number of lanes.
#[inline(always)]
pub fn lift_word<L: Lanes>(code: L::Bits, shape: L) -> L {
    let bits = (code & code.splat(8)).shl::<28>() | (code & code.splat(7)).shl::<22>();
    L::from_bits(bits) * shape.splat(UNSHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_code_comes_back() {
        for code in 0..16u8 {
            assert_eq!(encode(decode(code)), code);
            assert_eq!(lift_word(code as u32 | 0x30, 0.0f32).to_bits(), decode(code).to_bits());
        }
    }

    #[test]
    fn ties_go_to_the_even_code() {
        let ties =
            [(0.25, 0), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6), (7.0, 7)];
        for (x, code) in ties {
            assert_eq!(encode(x), code, "{x}");
            assert_eq!(encode(-x), code | 8, "-{x}");
        }
        assert_eq!(encode(f32::INFINITY), 7);
    }

    proptest! {
        #[test]
        fn no_code_is_nearer(x in -7.0f32..7.0) {
            let gap = |code: u8| (decode(code) as f64 - x as f64).abs();
            let best = (0..16u8).map(gap).fold(9e9, f64::min);
            prop_assert_eq!(gap(encode(x)), best);
        }
    }
}
