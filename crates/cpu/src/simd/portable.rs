//! Arrays of eight: what the vector types must equal.
#![allow(unsafe_code)]

use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

use finback_numerics::lanes::{Bits, Lanes};
use finback_numerics::order;

use super::Simd;

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

/// Eight f32.
#[derive(Clone, Copy, Debug)]
pub(super) struct F([f32; 8]);

/// Eight 32-bit words.
#[derive(Clone, Copy, Debug)]
pub(super) struct W([u32; 8]);

impl F {
    #[inline(always)]
    fn zip(self, other: F, f: impl Fn(f32, f32) -> f32) -> F {
        F(from_fn(|l| f(self.0[l], other.0[l])))
    }
}

impl W {
    #[inline(always)]
    fn zip(self, other: W, f: impl Fn(u32, u32) -> u32) -> W {
        W(from_fn(|l| f(self.0[l], other.0[l])))
    }
}

macro_rules! operators {
    ($($t:ident: $trait:ident $method:ident $op:tt;)*) => {$(
        impl $trait for $t {
            type Output = $t;
            #[inline(always)]
            fn $method(self, other: $t) -> $t {
                self.zip(other, |a, b| a $op b)
            }
        }
    )*};
}

operators! {
    F: Add add +; F: Sub sub -; F: Mul mul *; F: Div div /;
    W: BitAnd bitand &; W: BitOr bitor |; W: BitXor bitxor ^;
}

impl Neg for F {
    type Output = F;
    #[inline(always)]
    fn neg(self) -> F {
        F(self.0.map(|x| -x))
    }
}

impl Lanes for F {
    type Bits = W;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        F([value; 8])
    }
    #[inline(always)]
    fn fma(self, factor: F, term: F) -> F {
        F(from_fn(|l| self.0[l].mul_add(factor.0[l], term.0[l])))
    }
    #[inline(always)]
    fn max(self, other: F) -> F {
        self.zip(other, Lanes::max)
    }
    #[inline(always)]
    fn min(self, other: F) -> F {
        self.zip(other, Lanes::min)
    }
    #[inline(always)]
    fn sqrt(self) -> F {
        F(self.0.map(f32::sqrt))
    }
    #[inline(always)]
    fn bits(self) -> W {
        W(self.0.map(f32::to_bits))
    }
    #[inline(always)]
    fn from_bits(bits: W) -> F {
        F(bits.0.map(f32::from_bits))
    }
    #[inline(always)]
    fn less(self, other: F) -> W {
        W(from_fn(|l| self.0[l].less(other.0[l])))
    }
    #[inline(always)]
    fn select(mask: W, yes: F, no: F) -> F {
        F(from_fn(|l| if mask.0[l] != 0 { yes.0[l] } else { no.0[l] }))
    }
}

impl Bits for W {
    #[inline(always)]
    fn splat(self, value: u32) -> W {
        W([value; 8])
    }
    #[inline(always)]
    fn add(self, other: W) -> W {
        self.zip(other, u32::wrapping_add)
    }
    #[inline(always)]
    fn sub(self, other: W) -> W {
        self.zip(other, u32::wrapping_sub)
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> W {
        W(self.0.map(|w| w << N))
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> W {
        W(self.0.map(|w| w >> N))
    }
    #[inline(always)]
    fn sar<const N: i32>(self) -> W {
        W(self.0.map(|w| w.sar::<N>()))
    }
    #[inline(always)]
    fn max_signed(self, other: W) -> W {
        self.zip(other, Bits::max_signed)
    }
    #[inline(always)]
    fn min_signed(self, other: W) -> W {
        self.zip(other, Bits::min_signed)
    }
}

impl Simd for Portable {
    type F = F;
    type W = W;

    const REGISTERS: usize = 1;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        F([value; 8])
    }
    #[inline(always)]
    fn splat_bits(self, value: u32) -> W {
        W([value; 8])
    }
    #[inline(always)]
    fn splat_halves(self, pair: &[f32; 2]) -> F {
        let [low, high] = *pair;
        F([low, low, low, low, high, high, high, high])
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> F {
        // SAFETY: the caller vouches for 32 readable bytes.
        F(unsafe { from.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store_at(self, value: F, to: *mut f32) {
        // SAFETY: the caller vouches for 32 writable bytes.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(value.0) }
    }
    #[inline(always)]
    unsafe fn load_bits_at(self, from: *const u8) -> W {
        // SAFETY: the caller vouches for 32 readable bytes.
        W(unsafe { from.cast::<[u32; 8]>().read_unaligned() }.map(u32::from_le))
    }
    #[inline(always)]
    fn widen(self, bytes: [u8; 8]) -> W {
        W(bytes.map(u32::from))
    }
    #[inline(always)]
    fn narrow(self, words: W) -> [u8; 8] {
        words.0.map(|w| w as u8)
    }
    #[inline(always)]
    fn sar16<const N: i32>(self, words: W) -> W {
        let half = |w: u32| ((w as u16 as i16) >> N) as u16 as u32;
        W(words.0.map(|w| half(w) | half(w >> 16) << 16))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: W) -> W {
        let entry = |byte: u8| table[(byte & 15) as usize];
        W(index.0.map(|w| u32::from_le_bytes(w.to_le_bytes().map(entry))))
    }
    #[inline(always)]
    fn tree(self, value: F) -> f32 {
        order::tree(value.0)
    }
    #[inline(always)]
    fn max_bits(self, words: W) -> u32 {
        words.0.into_iter().fold(0, u32::max)
    }
}
