//! Elementary functions from multiply, add, divide and fused multiply-add only: the same bits on
//! every instruction set, lane by lane.
//!
//! Each is within three units in the last place over its whole range, `exp` and `ln` within one, gives the right limit
//! at overflow and underflow (gradually, through the subnormals), and keeps NaN.

use crate::lanes::{Bits, Lanes};

/// 1.5 * 2^23: adding it rounds a small f32 to an integer, found in the sum's low bits.
const TO_INTEGER: f32 = 12_582_912.0;
/// The upper bits of ln 2, with eight zero bits below, and the rest.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;
const LOG2_E: f32 = std::f32::consts::LOG2_E;

/// e^x.
#[inline(always)]
pub fn exp<L: Lanes>(x: L) -> L {
    let (p, first, second) = exp_parts(x);
    p * first * second
}

/// e^x as three factors: a value near 1 and two powers of two. Multiplied in order, only the last
/// product can leave the normal range.
#[inline(always)]
fn exp_parts<L: Lanes>(x: L) -> (L, L, L) {
    // Beyond ±128 the result is infinite or zero anyway. Operand order keeps a NaN.
    let x = x.splat(-128.0).max(x.splat(128.0).min(x));
    let shifted = x.fma(x.splat(LOG2_E), x.splat(TO_INTEGER));
    let n = shifted - x.splat(TO_INTEGER);
    let r = (-n).fma(x.splat(LN2_LOW), (-n).fma(x.splat(LN2_HIGH), x));
    // Fitted to (e^r - 1 - r) / r^2 on |r| <= ln(2) / 2.
    let q = r.splat(1.395_059_4e-3).fma(r, r.splat(8.368_954e-3));
    let q = q.fma(r, r.splat(4.166_620_6e-2)).fma(r, r.splat(0.166_665_18));
    let q = q.fma(r, r.splat(0.5));
    let p = q.fma(r, r.splat(1.0)).fma(r, r.splat(1.0));
    let n = shifted.bits().sub(shifted.bits().splat(TO_INTEGER.to_bits()));
    let half = n.sar::<1>();
    (p, power_of_two(half), power_of_two(n.sub(half)))
}

/// 2^n for words within -126..=127.
#[inline(always)]
fn power_of_two<L: Lanes>(n: L::Bits) -> L {
    L::from_bits(n.add(n.splat(127)).shl::<23>())
}

/// The natural logarithm: -infinity at 0, NaN below.
#[inline(always)]
pub fn ln<L: Lanes>(x: L) -> L {
    // Subnormals are lifted into the normal range first.
    let tiny = x.less(x.splat(f32::MIN_POSITIVE));
    let lifted = L::select(tiny, x * x.splat(8_388_608.0), x);
    let bias = L::select(tiny, x.splat(23.0), x.splat(0.0));
    // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
    let root_half = lifted.bits().splat(std::f32::consts::FRAC_1_SQRT_2.to_bits());
    let above = lifted.bits().sub(root_half);
    let m = L::from_bits(lifted.bits().sub(above & above.splat(0xff80_0000)));
    let magic = above.splat(TO_INTEGER.to_bits());
    let e = (L::from_bits(above.sar::<23>().add(magic)) - x.splat(TO_INTEGER)) - bias;
    // ln(1 + f) = f - s (f - r), s = f / (2 + f), r = 2 (s^2 / 3 + s^4 / 5 + ...), fitted.
    let f = m - x.splat(1.0);
    let s = f / (f + x.splat(2.0));
    let z = s * s;
    let r = z.fma(z.splat(0.2359), z.splat(0.285_369_2)).fma(z, z.splat(0.400_003_4));
    let r = r.fma(z, z.splat(0.666_666_6)) * z;
    let tail = e.fma(x.splat(LN2_LOW), s * (r - f));
    let value = e.fma(x.splat(LN2_HIGH), f + tail);
    let zero = x.splat(0.0);
    let value = L::select(x.less(x.splat(f32::INFINITY)), value, x);
    let value = L::select(zero.less(x), value, x.splat(f32::NAN));
    let is_zero = x.abs().less(x.splat(f32::from_bits(1)));
    L::select(is_zero, x.splat(f32::NEG_INFINITY), value)
}

/// ln(1 + x), accurate near 0: -infinity at -1, NaN below.
#[inline(always)]
pub fn log1p<L: Lanes>(x: L) -> L {
    let w = x + x.splat(1.0);
    // What rounding w lost, to first order.
    let lost = (x - (w - x.splat(1.0))) / w;
    let value = ln(w) + lost;
    // At -1 and at infinity the correction is not a number.
    L::select(lost.abs().less(x.splat(1.0)), value, ln(w))
}

/// ln(1 + e^x).
#[inline(always)]
pub fn softplus<L: Lanes>(x: L) -> L {
    // Operand order keeps a NaN.
    x.splat(0.0).max(x) + log1p(exp(-x.abs()))
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid<L: Lanes>(x: L) -> L {
    // From e^-|x|, so that the small side keeps its precision.
    let small = exp(-x.abs());
    let top = L::select(x.less(x.splat(0.0)), small, x.splat(1.0));
    top / (small + x.splat(1.0))
}

/// x / (1 + e^-x).
#[inline(always)]
pub fn silu<L: Lanes>(x: L) -> L {
    let (p, first, second) = exp_parts(-x.abs());
    let small = p * first * second;
    // The small side times x before the last factor, which may be subnormal; below -128 it is zero.
    let low = x.splat(-128.0).max(x);
    let top = L::select(x.less(x.splat(0.0)), low * p * first * second, x);
    top / (small + x.splat(1.0))
}

#[cfg(test)]
mod tests;
