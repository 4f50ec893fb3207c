//! NEON: eight lanes in two registers.
#![allow(unsafe_code)]

use std::arch::aarch64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

use finback_numerics::lanes::{Bits, Lanes};

use super::{Kernel, Simd};

/// NEON is part of every aarch64 CPU; the value only selects this code.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

/// Eight f32: lanes 0 to 3, lanes 4 to 7.
#[derive(Clone, Copy)]
pub(super) struct F(float32x4_t, float32x4_t);

/// Eight 32-bit words: lanes 0 to 3, lanes 4 to 7.
#[derive(Clone, Copy)]
pub(super) struct W(uint32x4_t, uint32x4_t);

/// Runs `kernel` on NEON.
///
/// # Safety
/// The CPU has NEON.
#[target_feature(enable = "neon")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Neon(()))
}

/// An intrinsic call on registers.
macro_rules! intrinsic {
    ($call:expr) => {{
        // SAFETY: aarch64 always has NEON; no memory is touched.
        unsafe { $call }
    }};
}

macro_rules! operators {
    ($($t:ident: $trait:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $trait for $t {
            type Output = $t;
            #[inline(always)]
            fn $method(self, other: $t) -> $t {
                $t(intrinsic!($intrinsic(self.0, other.0)), intrinsic!($intrinsic(self.1, other.1)))
            }
        }
    )*};
}

operators! {
    F: Add add vaddq_f32;
    F: Sub sub vsubq_f32;
    F: Mul mul vmulq_f32;
    F: Div div vdivq_f32;
    W: BitAnd bitand vandq_u32;
    W: BitOr bitor vorrq_u32;
    W: BitXor bitxor veorq_u32;
}

impl Neg for F {
    type Output = F;
    #[inline(always)]
    fn neg(self) -> F {
        F(intrinsic!(vnegq_f32(self.0)), intrinsic!(vnegq_f32(self.1)))
    }
}

impl Lanes for F {
    type Bits = W;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        let half = intrinsic!(vdupq_n_f32(value));
        F(half, half)
    }
    #[inline(always)]
    fn fma(self, factor: F, term: F) -> F {
        F(
            intrinsic!(vfmaq_f32(term.0, self.0, factor.0)),
            intrinsic!(vfmaq_f32(term.1, self.1, factor.1)),
        )
    }
    // The instructions for maximum and minimum treat NaN and zeros otherwise: compare and select.
    #[inline(always)]
    fn max(self, other: F) -> F {
        F::select(other.less(self), self, other)
    }
    #[inline(always)]
    fn min(self, other: F) -> F {
        F::select(self.less(other), self, other)
    }
    #[inline(always)]
    fn sqrt(self) -> F {
        F(intrinsic!(vsqrtq_f32(self.0)), intrinsic!(vsqrtq_f32(self.1)))
    }
    #[inline(always)]
    fn bits(self) -> W {
        W(intrinsic!(vreinterpretq_u32_f32(self.0)), intrinsic!(vreinterpretq_u32_f32(self.1)))
    }
    #[inline(always)]
    fn from_bits(bits: W) -> F {
        F(intrinsic!(vreinterpretq_f32_u32(bits.0)), intrinsic!(vreinterpretq_f32_u32(bits.1)))
    }
    #[inline(always)]
    fn less(self, other: F) -> W {
        W(intrinsic!(vcltq_f32(self.0, other.0)), intrinsic!(vcltq_f32(self.1, other.1)))
    }
    #[inline(always)]
    fn select(mask: W, yes: F, no: F) -> F {
        F(intrinsic!(vbslq_f32(mask.0, yes.0, no.0)), intrinsic!(vbslq_f32(mask.1, yes.1, no.1)))
    }
}

impl W {
    #[inline(always)]
    fn signed(self) -> (int32x4_t, int32x4_t) {
        (intrinsic!(vreinterpretq_s32_u32(self.0)), intrinsic!(vreinterpretq_s32_u32(self.1)))
    }
    #[inline(always)]
    fn from_signed(a: int32x4_t, b: int32x4_t) -> W {
        W(intrinsic!(vreinterpretq_u32_s32(a)), intrinsic!(vreinterpretq_u32_s32(b)))
    }
}

impl Bits for W {
    #[inline(always)]
    fn splat(self, value: u32) -> W {
        let half = intrinsic!(vdupq_n_u32(value));
        W(half, half)
    }
    #[inline(always)]
    fn add(self, other: W) -> W {
        W(intrinsic!(vaddq_u32(self.0, other.0)), intrinsic!(vaddq_u32(self.1, other.1)))
    }
    #[inline(always)]
    fn sub(self, other: W) -> W {
        W(intrinsic!(vsubq_u32(self.0, other.0)), intrinsic!(vsubq_u32(self.1, other.1)))
    }
    // Shifts by a vector of counts, negative to the right, allow a count of zero.
    #[inline(always)]
    fn shl<const N: i32>(self) -> W {
        let count = intrinsic!(vdupq_n_s32(N));
        W(intrinsic!(vshlq_u32(self.0, count)), intrinsic!(vshlq_u32(self.1, count)))
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> W {
        let count = intrinsic!(vdupq_n_s32(-N));
        W(intrinsic!(vshlq_u32(self.0, count)), intrinsic!(vshlq_u32(self.1, count)))
    }
    #[inline(always)]
    fn sar<const N: i32>(self) -> W {
        let ((a, b), count) = (self.signed(), intrinsic!(vdupq_n_s32(-N)));
        W::from_signed(intrinsic!(vshlq_s32(a, count)), intrinsic!(vshlq_s32(b, count)))
    }
    #[inline(always)]
    fn max_signed(self, other: W) -> W {
        let ((a, b), (c, d)) = (self.signed(), other.signed());
        W::from_signed(intrinsic!(vmaxq_s32(a, c)), intrinsic!(vmaxq_s32(b, d)))
    }
    #[inline(always)]
    fn min_signed(self, other: W) -> W {
        let ((a, b), (c, d)) = (self.signed(), other.signed());
        W::from_signed(intrinsic!(vminq_s32(a, c)), intrinsic!(vminq_s32(b, d)))
    }
}

impl Simd for Neon {
    type F = F;
    type W = W;

    const REGISTERS: usize = 16;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        self.splat_halves(&[value, value])
    }
    #[inline(always)]
    fn splat_bits(self, value: u32) -> W {
        let half = intrinsic!(vdupq_n_u32(value));
        W(half, half)
    }
    #[inline(always)]
    fn splat_halves(self, pair: &[f32; 2]) -> F {
        F(intrinsic!(vdupq_n_f32(pair[0])), intrinsic!(vdupq_n_f32(pair[1])))
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> F {
        // SAFETY: the caller vouches for 32 readable bytes.
        unsafe { F(vld1q_f32(from), vld1q_f32(from.add(4))) }
    }
    #[inline(always)]
    unsafe fn store_at(self, value: F, to: *mut f32) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe {
            vst1q_f32(to, value.0);
            vst1q_f32(to.add(4), value.1);
        }
    }
    #[inline(always)]
    unsafe fn load_bits_at(self, from: *const u8) -> W {
        // SAFETY: the caller vouches for 32 readable bytes; byte loads need no alignment.
        unsafe {
            W(vreinterpretq_u32_u8(vld1q_u8(from)), vreinterpretq_u32_u8(vld1q_u8(from.add(16))))
        }
    }
    #[inline(always)]
    fn widen(self, bytes: [u8; 8]) -> W {
        intrinsic!({
            let wide = vmovl_u8(vcreate_u8(u64::from_le_bytes(bytes)));
            W(vmovl_u16(vget_low_u16(wide)), vmovl_u16(vget_high_u16(wide)))
        })
    }
    #[inline(always)]
    fn narrow(self, words: W) -> [u8; 8] {
        let packed = intrinsic!({
            let half = vcombine_u16(vmovn_u32(words.0), vmovn_u32(words.1));
            vget_lane_u64::<0>(vreinterpret_u64_u8(vmovn_u16(half)))
        });
        packed.to_le_bytes()
    }
    #[inline(always)]
    fn sar16<const N: i32>(self, words: W) -> W {
        intrinsic!({
            let count = vdupq_n_s16(-N as i16);
            let a = vshlq_s16(vreinterpretq_s16_u32(words.0), count);
            let b = vshlq_s16(vreinterpretq_s16_u32(words.1), count);
            W(vreinterpretq_u32_s16(a), vreinterpretq_u32_s16(b))
        })
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: W) -> W {
        // SAFETY: the table has 16 readable bytes.
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            let a = vqtbl1q_u8(table, vreinterpretq_u8_u32(index.0));
            let b = vqtbl1q_u8(table, vreinterpretq_u8_u32(index.1));
            W(vreinterpretq_u32_u8(a), vreinterpretq_u32_u8(b))
        }
    }
    #[inline(always)]
    fn tree(self, value: F) -> f32 {
        intrinsic!({
            let four = vaddq_f32(value.0, value.1);
            let two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
            vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
        })
    }
    #[inline(always)]
    fn max_bits(self, words: W) -> u32 {
        intrinsic!(vmaxvq_u32(vmaxq_u32(words.0, words.1)))
    }
}
