//! Number formats and the model's quantisers (sections 2 and 5), from their definitions.

/// The value of an e4m3 code: bias 7, no infinities, NaN at all ones.
pub(super) fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let size = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * 2f64.powi(-6),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    };
    if code >> 7 == 1 { -size } else { size }
}

/// The value of an e8m0 scale: 255 is NaN.
pub(super) fn e8m0(code: u8) -> f64 {
    if code == 255 { f64::NAN } else { 2f64.powi(i32::from(code) - 127) }
}

/// The value of the low four bits, an e2m1 code.
pub(super) fn e2m1(code: u8) -> f64 {
    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
    if code >> 3 & 1 == 1 { -size } else { size }
}

/// The value of a bf16.
pub(super) fn bf16(bits: u16) -> f64 {
    f64::from(f32::from_bits(u32::from(bits) << 16))
}

/// The value of an IEEE half.
pub(super) fn f16(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    let size = match exponent {
        0 => mantissa * 2f64.powi(-14),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// To f32, then to bf16, ties to even both times.
pub(super) fn round_bf16(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    bf16((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
}

/// The nearest e4m3 value, ties to even, at most 448.
fn round_e4m3(x: f64) -> f64 {
    let x = x.clamp(-448.0, 448.0);
    let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
    // Below 2^-6 the values are evenly spaced.
    let step = 2f64.powi(exponent.max(-6) - 3);
    (x / step).round_ties_even() * step
}

/// The nearest e2m1 value, ties to the even code, at most 6.
fn round_e2m1(x: f64) -> f64 {
    let size = x.abs().min(6.0);
    let step = match size {
        s if s < 2.0 => 0.5,
        s if s < 4.0 => 1.0,
        _ => 2.0,
    };
    ((size / step).round_ties_even() * step).copysign(x)
}

/// The smallest power of two that is at least `x`, a normal f32 above 0.
fn power_of_two_from(x: f32) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 23) as i32 - 127;
    2f64.powi(if bits << 9 == 0 { exponent } else { exponent + 1 })
}

/// Rounds to e4m3 codes with one power-of-two scale per 32 channels: window rows, linear inputs.
pub(super) fn fp8_block32(x: &[f64]) -> Vec<f64> {
    blocks(x, 32, |block| {
        let scale = power_of_two_from(amax(block).max(1e-4) * (1.0 / 448.0));
        block.iter().map(|&v| round_e4m3(f64::from(v) / scale) * scale).collect()
    })
}

/// Rounds to e2m1 codes with one power-of-two scale per 32 channels: index queries and keys.
pub(super) fn fp4_block32(x: &[f64]) -> Vec<f64> {
    blocks(x, 32, |block| {
        let scale = power_of_two_from(amax(block).max(6.0 * 2f32.powi(-126)) * (1.0 / 6.0));
        block.iter().map(|&v| round_e2m1(f64::from(v) / scale) * scale).collect()
    })
}

/// Rounds to e2m1 codes with one e4m3 scale per 16 channels: compressed rows.
pub(super) fn fp4_block16(x: &[f64]) -> Vec<f64> {
    blocks(x, 16, |block| {
        let scale = round_e4m3(f64::from(amax(block).max(6.0 * 2f32.powi(-9)) / 6.0));
        // The quotient is an f32, as in the release's kernel.
        block.iter().map(|&v| round_e2m1(f64::from(v / scale as f32)) * scale).collect()
    })
}

fn amax(block: &[f32]) -> f32 {
    block.iter().fold(0.0, |m, v| v.abs().max(m))
}

/// The quantisers see f32.
fn blocks(x: &[f64], size: usize, quantise: impl Fn(&[f32]) -> Vec<f64>) -> Vec<f64> {
    let x: Vec<f32> = x.iter().map(|&v| v as f32).collect();
    x.chunks(size).flat_map(quantise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every finite value of a format, from its codes.
    fn values(codes: std::ops::Range<u16>, value: fn(u8) -> f64) -> Vec<f64> {
        codes.map(|code| value(code as u8)).filter(|v| v.is_finite()).collect()
    }

    /// The nearest of `values`, listed by code; ties go to the even code.
    fn nearest(values: &[f64], x: f64) -> f64 {
        let far = |i: usize| (values[i] - x).abs();
        let best = (0..values.len())
            .min_by(|&a, &b| far(a).total_cmp(&far(b)).then((a % 2).cmp(&(b % 2))))
            .unwrap();
        values[best]
    }

    #[test]
    fn rounding_takes_the_nearest_value_of_the_format() {
        let (eight, four) = (values(0..127, e4m3), values(0..8, e2m1));
        for i in 0..=4000 {
            // Ties of e2m1 and e4m3 among them.
            let x = f64::from(i) / 8.0;
            assert_eq!(round_e4m3(x), nearest(&eight, x.min(448.0)), "{x}");
            assert_eq!(round_e4m3(-x / 512.0), -nearest(&eight, x / 512.0), "{x}");
            assert_eq!(round_e2m1(x / 32.0), nearest(&four, x / 32.0), "{x}");
        }
    }

    #[test]
    fn scales_are_exact_at_powers_of_two() {
        for k in -20..20 {
            let x = 2f32.powi(k);
            assert_eq!(power_of_two_from(448.0 * x * (1.0 / 448.0)), f64::from(x));
            assert_eq!(power_of_two_from(6.0 * x * (1.0 / 6.0)), f64::from(x));
            assert_eq!(power_of_two_from(x.next_up()), f64::from(2.0 * x));
        }
    }

    #[test]
    fn blocks_of_zeros_and_of_representable_values_stay() {
        assert_eq!(fp8_block32(&[0.0; 64]), [0.0; 64]);
        assert_eq!(fp4_block32(&[0.0; 32]), [0.0; 32]);
        assert_eq!(fp4_block16(&[0.0; 16]), [0.0; 16]);
        let codes: Vec<f64> = (0..16).map(|code| e2m1(code) * 0.25).collect();
        assert_eq!(fp4_block16(&codes), codes);
        let codes: Vec<f64> = codes.iter().chain(&codes).copied().collect();
        assert_eq!(fp4_block32(&codes), codes);
        assert_eq!(fp8_block32(&codes), codes);
    }

    #[test]
    fn halves_lift_to_their_values() {
        for (bits, value) in [(0x3c00, 1.0), (0xc000, -2.0), (1, 2f64.powi(-24)), (0x7bff, 65504.0)]
        {
            assert_eq!(f16(bits), value);
        }
        assert_eq!(bf16(0x3fc0), 1.5);
        assert_eq!(round_bf16(1.0 + 2f64.powi(-8)), 1.0);
        assert_eq!(round_bf16(1.0 + 3.0 * 2f64.powi(-8)), 1.0 + 2f64.powi(-6));
    }
}
