//! The arithmetic that formulas are written in: one value or a vector of independent lanes.
//!
//! Every operation works lane by lane and is exactly rounded (or exact), so a formula over
//! [`Lanes`] has the same bits as `f32` and as any vector type.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

/// One `f32`, or several that take the same steps.
///
/// `+ - * /` are IEEE operations, rounded to nearest even and never contracted.
pub trait Lanes:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The same lanes as 32-bit words.
    type Bits: Bits;

    /// `value` in every lane of a value shaped like `self`.
    fn splat(self, value: f32) -> Self;
    /// `self * factor + term`, rounded once.
    fn fma(self, factor: Self, term: Self) -> Self;
    /// `self` where `self > other`, else `other`: a NaN in either gives `other`.
    fn max(self, other: Self) -> Self;
    /// `self` where `self < other`, else `other`: a NaN in either gives `other`.
    fn min(self, other: Self) -> Self;
    /// The square root, rounded to nearest even.
    fn sqrt(self) -> Self;
    /// The bit patterns.
    fn bits(self) -> Self::Bits;
    /// The value of bit patterns.
    fn from_bits(bits: Self::Bits) -> Self;
    /// All ones where `self < other`, else zero; a NaN compares false.
    fn less(self, other: Self) -> Self::Bits;
    /// `yes` where the mask's lane is all ones, `no` where it is zero.
    fn select(mask: Self::Bits, yes: Self, no: Self) -> Self;

    /// The value without its sign.
    #[inline(always)]
    fn abs(self) -> Self {
        let bits = self.bits();
        Self::from_bits(bits & bits.splat(0x7fff_ffff))
    }

    /// The magnitude of `self` with the sign of `sign`.
    #[inline(always)]
    fn copysign(self, sign: Self) -> Self {
        let (bits, top) = (self.bits(), sign.bits());
        Self::from_bits((bits & bits.splat(0x7fff_ffff)) | (top & top.splat(0x8000_0000)))
    }
}

/// 32-bit words, one for each lane. Arithmetic wraps.
pub trait Bits:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self>
{
    /// `value` in every lane of a value shaped like `self`.
    fn splat(self, value: u32) -> Self;
    /// Sum modulo 2^32.
    fn add(self, other: Self) -> Self;
    /// Difference modulo 2^32.
    fn sub(self, other: Self) -> Self;
    /// Shift left by `N` bits.
    fn shl<const N: i32>(self) -> Self;
    /// Shift right by `N` bits, zeros coming in.
    fn shr<const N: i32>(self) -> Self;
    /// Shift right by `N` bits, the sign bit coming in.
    fn sar<const N: i32>(self) -> Self;
    /// The larger of two words read as signed integers.
    fn max_signed(self, other: Self) -> Self;
    /// The smaller of two words read as signed integers.
    fn min_signed(self, other: Self) -> Self;
}

impl Lanes for f32 {
    type Bits = u32;

    #[inline(always)]
    fn splat(self, value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn fma(self, factor: f32, term: f32) -> f32 {
        self.mul_add(factor, term)
    }
    #[inline(always)]
    fn max(self, other: f32) -> f32 {
        if self > other { self } else { other }
    }
    #[inline(always)]
    fn min(self, other: f32) -> f32 {
        if self < other { self } else { other }
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn bits(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }
    #[inline(always)]
    fn less(self, other: f32) -> u32 {
        if self < other { u32::MAX } else { 0 }
    }
    #[inline(always)]
    fn select(mask: u32, yes: f32, no: f32) -> f32 {
        if mask != 0 { yes } else { no }
    }
}

impl Bits for u32 {
    #[inline(always)]
    fn splat(self, value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn add(self, other: u32) -> u32 {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn sub(self, other: u32) -> u32 {
        self.wrapping_sub(other)
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> u32 {
        self << N
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> u32 {
        self >> N
    }
    #[inline(always)]
    fn sar<const N: i32>(self) -> u32 {
        ((self as i32) >> N) as u32
    }
    #[inline(always)]
    fn max_signed(self, other: u32) -> u32 {
        (self as i32).max(other as i32) as u32
    }
    #[inline(always)]
    fn min_signed(self, other: u32) -> u32 {
        (self as i32).min(other as i32) as u32
    }
}
