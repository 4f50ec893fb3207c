//! AVX2 with fused multiply-add: eight lanes in one register. The AVX-512 form is the same code
//! compiled with twice the registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Sub};

use finback_numerics::lanes::{Bits, Lanes};

use super::{Kernel, Simd, vector};

/// Proof that the CPU has AVX2 and FMA: only [`run`] and [`run512`] make one, the
/// first for 16 registers, the second for 32, and every vector
/// below comes from one.
#[derive(Clone, Copy)]
pub(super) struct Avx2<const REGISTERS: usize>(());

/// Eight f32.
#[derive(Clone, Copy)]
pub(super) struct F(__m256);

/// Eight 32-bit words.
#[derive(Clone, Copy)]
pub(super) struct W(__m256i);

/// Runs `kernel` on AVX2.
///
/// # Safety
/// The CPU has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2::<16>(()))
}

/// Runs `kernel` on AVX2 instructions in their AVX-512 encoding, with 32 registers.
///
/// # Safety
/// The CPU has AVX2, FMA and AVX-512 F, VL, BW and DQ.
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512bw,avx512dq")]
pub(super) unsafe fn run512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2::<32>(()))
}

/// An intrinsic call on values that exist, so that the CPU has what it needs.
macro_rules! intrinsic {
    ($call:expr) => {{
        // SAFETY: an `Avx2`, `F` or `W` at hand proves the CPU features; no memory is touched.
        unsafe { $call }
    }};
}

macro_rules! operators {
    ($($t:ident: $trait:ident $method:ident $intrinsic:ident;)*) => {$(
        impl $trait for $t {
            type Output = $t;
            #[inline(always)]
            fn $method(self, other: $t) -> $t {
                $t(intrinsic!($intrinsic(self.0, other.0)))
            }
        }
    )*};
}

operators! {
    F: Add add _mm256_add_ps;
    F: Sub sub _mm256_sub_ps;
    F: Mul mul _mm256_mul_ps;
    F: Div div _mm256_div_ps;
    W: BitAnd bitand _mm256_and_si256;
    W: BitOr bitor _mm256_or_si256;
    W: BitXor bitxor _mm256_xor_si256;
}

impl Neg for F {
    type Output = F;
    #[inline(always)]
    fn neg(self) -> F {
        F(intrinsic!(_mm256_xor_ps(self.0, _mm256_set1_ps(-0.0))))
    }
}

impl Lanes for F {
    type Bits = W;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        F(intrinsic!(_mm256_set1_ps(value)))
    }
    #[inline(always)]
    fn fma(self, factor: F, term: F) -> F {
        F(intrinsic!(_mm256_fmadd_ps(self.0, factor.0, term.0)))
    }
    #[inline(always)]
    fn max(self, other: F) -> F {
        F(intrinsic!(_mm256_max_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn min(self, other: F) -> F {
        F(intrinsic!(_mm256_min_ps(self.0, other.0)))
    }
    #[inline(always)]
    fn sqrt(self) -> F {
        F(intrinsic!(_mm256_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn bits(self) -> W {
        W(intrinsic!(_mm256_castps_si256(self.0)))
    }
    #[inline(always)]
    fn from_bits(bits: W) -> F {
        F(intrinsic!(_mm256_castsi256_ps(bits.0)))
    }
    #[inline(always)]
    fn less(self, other: F) -> W {
        F(intrinsic!(_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, other.0))).bits()
    }
    #[inline(always)]
    fn select(mask: W, yes: F, no: F) -> F {
        F(intrinsic!(_mm256_blendv_ps(no.0, yes.0, _mm256_castsi256_ps(mask.0))))
    }
}

impl Bits for W {
    #[inline(always)]
    fn splat(self, value: u32) -> W {
        W(intrinsic!(_mm256_set1_epi32(value as i32)))
    }
    #[inline(always)]
    fn add(self, other: W) -> W {
        W(intrinsic!(_mm256_add_epi32(self.0, other.0)))
    }
    #[inline(always)]
    fn sub(self, other: W) -> W {
        W(intrinsic!(_mm256_sub_epi32(self.0, other.0)))
    }
    #[inline(always)]
    fn shl<const N: i32>(self) -> W {
        W(intrinsic!(_mm256_slli_epi32::<N>(self.0)))
    }
    #[inline(always)]
    fn shr<const N: i32>(self) -> W {
        W(intrinsic!(_mm256_srli_epi32::<N>(self.0)))
    }
    #[inline(always)]
    fn sar<const N: i32>(self) -> W {
        W(intrinsic!(_mm256_srai_epi32::<N>(self.0)))
    }
    #[inline(always)]
    fn max_signed(self, other: W) -> W {
        W(intrinsic!(_mm256_max_epi32(self.0, other.0)))
    }
    #[inline(always)]
    fn min_signed(self, other: W) -> W {
        W(intrinsic!(_mm256_min_epi32(self.0, other.0)))
    }
}

/// A half of each, chosen as `_mm256_permute2f128_ps` does.
#[inline(always)]
fn halves<const WHICH: i32>(a: F, b: F) -> F {
    F(intrinsic!(_mm256_permute2f128_ps::<WHICH>(a.0, b.0)))
}

/// Rows of four as columns, in each half by itself.
#[inline(always)]
fn fours(a: F, b: F, c: F, d: F) -> [F; 4] {
    intrinsic!({
        let (ab, cd) = (_mm256_unpacklo_ps(a.0, b.0), _mm256_unpacklo_ps(c.0, d.0));
        let (ef, gh) = (_mm256_unpackhi_ps(a.0, b.0), _mm256_unpackhi_ps(c.0, d.0));
        [
            F(_mm256_shuffle_ps::<0x44>(ab, cd)),
            F(_mm256_shuffle_ps::<0xee>(ab, cd)),
            F(_mm256_shuffle_ps::<0x44>(ef, gh)),
            F(_mm256_shuffle_ps::<0xee>(ef, gh)),
        ]
    })
}

impl<const REGISTERS: usize> Simd for Avx2<REGISTERS> {
    type F = F;
    type W = W;

    const REGISTERS: usize = REGISTERS;

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        F(intrinsic!(_mm256_set1_ps(value)))
    }
    #[inline(always)]
    fn splat_bits(self, value: u32) -> W {
        W(intrinsic!(_mm256_set1_epi32(value as i32)))
    }
    #[inline(always)]
    fn splat_halves(self, pair: &[f32; 2]) -> F {
        let both =
            f64::from_bits(u64::from(pair[1].to_bits()) << 32 | u64::from(pair[0].to_bits()));
        F(intrinsic!({
            let pairs = _mm256_castpd_ps(_mm256_set1_pd(both));
            _mm256_permutevar_ps(pairs, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1))
        }))
    }
    #[inline(always)]
    unsafe fn load_at(self, from: *const f32) -> F {
        // SAFETY: the caller vouches for 32 readable bytes, `self` for the CPU.
        F(unsafe { _mm256_loadu_ps(from) })
    }
    #[inline(always)]
    unsafe fn store_at(self, value: F, to: *mut f32) {
        // SAFETY: the caller vouches for 32 writable bytes, `self` for the CPU.
        unsafe { _mm256_storeu_ps(to, value.0) }
    }
    #[inline(always)]
    unsafe fn load_bits_at(self, from: *const u8) -> W {
        // SAFETY: the caller vouches for 32 readable bytes, `self` for the CPU.
        W(unsafe { _mm256_loadu_si256(from.cast()) })
    }
    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        // A hint: no address makes it fail.
        intrinsic!(_mm_prefetch::<_MM_HINT_T1>(at.cast()));
    }
    #[inline(always)]
    fn widen(self, bytes: [u8; 8]) -> W {
        let packed = i64::from_le_bytes(bytes);
        W(intrinsic!(_mm256_cvtepu8_epi32(_mm_set_epi64x(0, packed))))
    }
    #[inline(always)]
    fn narrow(self, words: W) -> [u8; 8] {
        let packed: i64 = intrinsic!({
            let low = _mm256_castsi256_si128(words.0);
            let high = _mm256_extracti128_si256::<1>(words.0);
            let half = _mm_packus_epi32(low, high);
            _mm_cvtsi128_si64(_mm_packus_epi16(half, half))
        });
        packed.to_le_bytes()
    }
    #[inline(always)]
    fn sar16<const N: i32>(self, words: W) -> W {
        W(intrinsic!(_mm256_srai_epi16::<N>(words.0)))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: W) -> W {
        // SAFETY: the table has 16 readable bytes; `self` vouches for the CPU.
        W(unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index.0)
        })
    }
    #[inline(always)]
    fn e2m1(self, words: W) -> [F; 4] {
        if REGISTERS < 32 {
            return vector::e2m1(self, words);
        }
        /// As bf16: two of a word's codes are looked up at once.
        const VALUES: [u16; 16] = [
            0x0000, 0x0300, 0x0380, 0x03c0, 0x0400, 0x0440, 0x0480, 0x04c0, 0x8000, 0x8300, 0x8380,
            0x83c0, 0x8400, 0x8440, 0x8480, 0x84c0,
        ];
        let both = |words: W| {
            // SAFETY: the table has 32 readable bytes; 32 registers vouch for BW and VL.
            W(unsafe {
                let values = _mm256_loadu_si256(VALUES.as_ptr().cast());
                _mm256_permutexvar_epi16(words.0, values)
            })
        };
        let (even, odd, high) = (both(words), both(words.shr::<8>()), self.splat_bits(0xffff_0000));
        let value = F::from_bits;
        [value(even.shl::<16>()), value(odd.shl::<16>()), value(even & high), value(odd & high)]
    }
    #[inline(always)]
    fn transpose(self, rows: [F; 8]) -> [F; 8] {
        let [a, b, c, d, e, f, g, h] = rows;
        // Rows four apart share a register: each half is a 4 x 4 of its own.
        let (low, high) = (
            fours(
                halves::<0x20>(a, e),
                halves::<0x20>(b, f),
                halves::<0x20>(c, g),
                halves::<0x20>(d, h),
            ),
            fours(
                halves::<0x31>(a, e),
                halves::<0x31>(b, f),
                halves::<0x31>(c, g),
                halves::<0x31>(d, h),
            ),
        );
        [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]]
    }
    #[inline(always)]
    fn every_second(self, values: [F; 2]) -> [F; 2] {
        let [a, b] = values;
        intrinsic!({
            let (low, high) = (
                _mm256_permute2f128_ps::<0x20>(a.0, b.0),
                _mm256_permute2f128_ps::<0x31>(a.0, b.0),
            );
            [F(_mm256_shuffle_ps::<0x88>(low, high)), F(_mm256_shuffle_ps::<0xdd>(low, high))]
        })
    }
    #[inline(always)]
    fn every_fourth(self, values: [F; 4]) -> [F; 4] {
        let [a, b, c, d] = values;
        // Four values are a row: even ones and odd ones of both halves.
        fours(
            halves::<0x20>(a, c),
            halves::<0x31>(a, c),
            halves::<0x20>(b, d),
            halves::<0x31>(b, d),
        )
    }
    #[inline(always)]
    fn tree(self, value: F) -> f32 {
        intrinsic!({
            let four =
                _mm_add_ps(_mm256_castps256_ps128(value.0), _mm256_extractf128_ps::<1>(value.0));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        })
    }
    #[inline(always)]
    fn max_bits(self, words: W) -> u32 {
        intrinsic!({
            let four = _mm_max_epu32(
                _mm256_castsi256_si128(words.0),
                _mm256_extracti128_si256::<1>(words.0),
            );
            let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b00_00_11_10>(four));
            let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b00_00_00_01>(two));
            _mm_cvtsi128_si32(one) as u32
        })
    }
}
