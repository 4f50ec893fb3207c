//! FP8 values (e4m3, no infinities) and their power-of-two scales (e8m0).

use crate::lanes::{Bits, Lanes};

/// The largest finite e4m3 value.
pub const E4M3_MAX: f32 = 448.0;
/// The code of an e4m3 NaN; with the sign bit set it is one too.
pub const E4M3_NAN: u8 = 0x7f;
/// The e8m0 byte that stands for NaN. A checkpoint that holds it is refused.
pub const E8M0_NAN: u8 = 255;

/// 2^120: an e4m3 code with its sign at bit 31 and its other bits at 20..27 is its value times
/// 2^-120 as f32, subnormal codes included.
const UNSHIFT: f32 = f32::from_bits((127 + 120) << 23);
/// 2^-120.
const SHIFT: f32 = f32::from_bits((127 - 120) << 23);

/// The value of every e4m3 code.
pub const E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        let bits = ((code as u32 & 0x80) << 24) | ((code as u32 & 0x7f) << 20);
        table[code] = if code & 0x7f == 0x7f { f32::NAN } else { f32::from_bits(bits) * UNSHIFT };
        code += 1;
    }
    table
};

/// The value of an e4m3 code; codes 0x7f and 0xff are NaN.
#[inline(always)]
pub fn decode(code: u8) -> f32 {
    E4M3[code as usize]
}

/// The e4m3 code nearest to `x`, ties to the even code, saturating at ±448 (infinities too).
#[inline(always)]
pub fn encode(x: f32) -> u8 {
    if x.is_nan() {
        return E4M3_NAN | ((x.to_bits() >> 24) as u8 & 0x80);
    }
    code_of(round(x)) as u8
}

/// `x` rounded to the nearest e4m3 value, ties to even, saturating at ±448, in each lane.
/// A NaN gives ±448: callers keep NaNs out through the block's scale.
#[inline(always)]
pub fn round<L: Lanes>(x: L) -> L {
    let magnitude = x.abs().min(x.splat(E4M3_MAX));
    // Adding 2^(e+20) puts the last kept bit, 2^(e-3), in the last place of the sum.
    let bits = magnitude.max(x.splat(f32::from_bits((127 - 6) << 23))).bits();
    let big = L::from_bits((bits & bits.splat(0x7f80_0000)).add(bits.splat(20 << 23)));
    ((magnitude + big) - big).copysign(x)
}

/// The code, in the low byte of each word, of a value that lies on the e4m3 grid.
#[inline(always)]
pub fn code_of<L: Lanes>(rounded: L) -> L::Bits {
    let bits = (rounded * rounded.splat(SHIFT)).bits();
    (bits.shr::<20>() & bits.splat(0x7f)) | (bits.shr::<24>() & bits.splat(0x80))
}

/// The values of e4m3 codes in the low byte of each word, whose other bits must be zero.
/// NaN codes read as ±480. `shape` only gives the number of lanes.
#[inline(always)]
pub fn lift_word<L: Lanes>(code: L::Bits, shape: L) -> L {
    let bits = (code & code.splat(0x80)).shl::<24>() | (code & code.splat(0x7f)).shl::<20>();
    L::from_bits(bits) * shape.splat(UNSHIFT)
}

/// 2^(byte - 127); byte 0 is 2^-127, byte 255 is NaN.
#[inline(always)]
pub const fn e8m0(byte: u8) -> f32 {
    match byte {
        0 => f32::from_bits(0x0040_0000),
        E8M0_NAN => f32::NAN,
        _ => f32::from_bits((byte as u32) << 23),
    }
}

/// The e8m0 byte of the smallest power of two that is at least `x`, from the bits of `x`
/// (`x` positive). A value above 2^127, an infinity or a NaN gives [`E8M0_NAN`].
#[inline(always)]
pub const fn pow2_at_least(x: f32) -> u8 {
    let bits = x.to_bits() & 0x7fff_ffff;
    if bits <= 0x0040_0000 {
        return 0;
    }
    let byte = (bits + 0x007f_ffff) >> 23;
    if byte > 254 { E8M0_NAN } else { byte as u8 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The value of an e4m3 code by its definition.
    fn by_definition(code: u8) -> f64 {
        let (exponent, mantissa) = ((code >> 3 & 15) as i32, (code & 7) as f64);
        let magnitude = match (exponent, code & 7) {
            (15, 7) => f64::NAN,
            (0, _) => mantissa * 2f64.powi(-9),
            _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
        };
        if code & 0x80 != 0 { -magnitude } else { magnitude }
    }

    #[test]
    fn every_code_has_its_value_and_comes_back() {
        for code in 0..=255u8 {
            let value = decode(code);
            if by_definition(code).is_nan() {
                assert!(value.is_nan());
                assert_eq!(encode(value) & 0x7f, E4M3_NAN);
            } else {
                assert_eq!(value as f64, by_definition(code), "{code:#04x}");
                assert_eq!(value.is_sign_negative(), code & 0x80 != 0);
                assert_eq!(encode(value), code);
                assert_eq!(lift_word(code as u32, 0.0f32).to_bits(), value.to_bits());
            }
        }
    }

    #[test]
    fn between_two_codes_the_middle_goes_to_the_even_one() {
        for code in 0..0x7eu8 {
            let (low, high) = (decode(code), decode(code + 1));
            let middle = (low + high) / 2.0;
            let even = if code & 1 == 0 { code } else { code + 1 };
            assert_eq!(encode(middle), even);
            assert_eq!(encode(-middle), even | 0x80);
            assert_eq!(encode(f32::from_bits(middle.to_bits() - 1)), code);
            assert_eq!(encode(f32::from_bits(middle.to_bits() + 1)), code + 1);
        }
    }

    #[test]
    fn large_values_saturate() {
        for x in [448.0, 449.0, 464.0, 480.0, 1e9, f32::MAX, f32::INFINITY] {
            assert_eq!((encode(x), encode(-x)), (0x7e, 0xfe));
        }
    }

    #[test]
    fn e8m0_bytes_are_powers_of_two() {
        for byte in 0..255u8 {
            assert_eq!(e8m0(byte) as f64, 2f64.powi(byte as i32 - 127));
            assert_eq!(pow2_at_least(e8m0(byte)), byte);
        }
        assert!(e8m0(255).is_nan());
        assert_eq!(pow2_at_least(f32::MAX), E8M0_NAN);
        assert_eq!(pow2_at_least(f32::INFINITY), E8M0_NAN);
        assert_eq!(pow2_at_least(f32::NAN), E8M0_NAN);
    }

    proptest! {
        #[test]
        fn no_code_is_nearer(x in -500.0f32..500.0, small in -0.02f32..0.02) {
            for x in [x, small] {
                let gap = |code: u8| (decode(code) as f64 - x as f64).abs();
                let best = (0..=255u8).filter(|c| c & 0x7f != 0x7f).map(gap).fold(9e9, f64::min);
                prop_assert_eq!(gap(encode(x)), best);
            }
        }

        #[test]
        fn pow2_is_the_smallest_that_suffices(bits in 0u32..0x7f00_0000) {
            let x = f32::from_bits(bits);
            let byte = pow2_at_least(x);
            prop_assert!(e8m0(byte) >= x);
            prop_assert!(byte == 0 || e8m0(byte - 1) < x);
        }
    }
}
