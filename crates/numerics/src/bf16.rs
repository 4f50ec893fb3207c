//! bfloat16 and binary16: conversions to and from f32.

use crate::lanes::{Bits, Lanes};

/// The f32 of a bf16 bit pattern; exact.
#[inline(always)]
pub const fn lift(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// The bf16 bit pattern nearest to `x`, ties to even; a NaN stays a (quiet) NaN.
#[inline(always)]
pub fn encode(x: f32) -> u16 {
    (round(x).to_bits() >> 16) as u16
}

/// `x` rounded to the nearest bf16 value, ties to even, in each lane; a NaN stays a (quiet) NaN.
#[inline(always)]
pub fn round<L: Lanes>(x: L) -> L {
    let bits = x.bits();
    let odd = bits.shr::<16>() & bits.splat(1);
    let rounded = bits.add(bits.splat(0x7fff)).add(odd) & bits.splat(0xffff_0000);
    // Adding to a NaN's bits could carry into an infinity or a number: keep its top half instead.
    let quiet = (bits & bits.splat(0xffff_0000)) | bits.splat(0x0040_0000);
    let is_number = x.abs().less(x.splat(f32::INFINITY)) | infinity_mask(x);
    L::select(is_number, L::from_bits(rounded), L::from_bits(quiet))
}

/// All ones where `x` is an infinity.
#[inline(always)]
fn infinity_mask<L: Lanes>(x: L) -> L::Bits {
    x.splat(f32::MAX).less(x.abs())
}

/// The f32 of a binary16 bit pattern; exact. Infinities and NaNs are kept.
#[inline(always)]
pub fn lift_f16(bits: u16) -> f32 {
    lift_f16_word(bits as u32, 0.0)
}

/// The f32 of the binary16 pattern in the low half of each word; the high half must be zero.
/// `shape` only gives the number of lanes.
#[inline(always)]
pub fn lift_f16_word<L: Lanes>(word: L::Bits, shape: L) -> L {
    let magnitude = (word & word.splat(0x7fff)).shl::<13>();
    let sign = (word & word.splat(0x8000)).shl::<16>();
    // The exponent bias differs by 112; the product is exact, subnormals included.
    let value = L::from_bits(magnitude) * shape.splat(f32::from_bits((127 + 112) << 23));
    let special = L::from_bits(magnitude | magnitude.splat(0x7f80_0000));
    let finite = value.less(shape.splat(65536.0));
    L::from_bits(L::select(finite, value, special).bits() | sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_bf16_survives_the_round_trip() {
        for bits in 0..=u16::MAX {
            let x = lift(bits);
            if x.is_nan() {
                assert!(lift(encode(x)).is_nan());
                assert_eq!(encode(x) >> 15, bits >> 15);
            } else {
                assert_eq!(encode(x), bits);
            }
        }
    }

    #[test]
    fn rounding_goes_to_the_nearest_and_ties_to_even() {
        assert_eq!(encode(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(encode(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(encode(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(encode(f32::MAX), 0x7f80);
        assert_eq!(encode(f32::INFINITY), 0x7f80);
        assert_eq!(encode(-0.0), 0x8000);
        // A NaN whose payload lies in the low half only.
        assert!(lift(encode(f32::from_bits(0x7f80_0001))).is_nan());
        assert!(lift(encode(f32::from_bits(0xffff_ffff))).is_nan());
    }

    proptest! {
        #[test]
        fn no_bf16_is_nearer(bits in any::<u32>()) {
            let x = f32::from_bits(bits);
            prop_assume!(x.is_finite() && x.abs() < 3.3e38);
            let r = encode(x);
            let gap = |b: u16| (lift(b) as f64 - x as f64).abs();
            for other in [r.wrapping_sub(1), r.wrapping_add(1)] {
                let other_gap = gap(other);
                if other_gap.is_finite() {
                    prop_assert!(gap(r) < other_gap || (gap(r) == other_gap && r & 1 == 0));
                }
            }
        }
    }

    /// The value of a binary16 pattern by its definition.
    fn f16_by_definition(bits: u16) -> f64 {
        let (exponent, mantissa) = ((bits >> 10 & 31) as i32, (bits & 1023) as f64);
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(-24),
            31 if mantissa == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            e => (1.0 + mantissa / 1024.0) * 2f64.powi(e - 15),
        };
        if bits >> 15 == 1 { -magnitude } else { magnitude }
    }

    #[test]
    fn every_f16_lifts_exactly() {
        for bits in 0..=u16::MAX {
            let (got, want) = (lift_f16(bits), f16_by_definition(bits));
            if want.is_nan() {
                assert!(got.is_nan(), "{bits:#06x}");
            } else {
                assert_eq!(got as f64, want, "{bits:#06x}");
                assert_eq!(got.is_sign_negative(), want.is_sign_negative());
            }
        }
    }
}
