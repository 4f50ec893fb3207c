//! Eight f32 lanes on every instruction set, with the same bits.
//!
//! A [`Kernel`] is written once over [`Simd`]; [`Isa::run`] compiles and runs it for the
//! instruction set found at start. All operations are exact or correctly rounded lane by lane
//! (`numerics::lanes`), and [`Simd::tree`] fixes the order across lanes, so the instruction set
//! never shows in a result.
//!
//! ```
//! use finback_cpu::simd::{Isa, Kernel, LANES, Simd};
//! use finback_numerics::lanes::Lanes;
//!
//! struct Double<'a>(&'a mut [f32]);
//! impl Kernel for Double<'_> {
//!     type Output = ();
//!     #[inline(always)]
//!     fn run<S: Simd>(self, s: S) {
//!         for x in self.0.chunks_mut(LANES) {
//!             let value = s.load_head(x);
//!             s.store_head(x, value + value);
//!         }
//!     }
//! }
//! let mut row = [1.0, 2.0, 3.0];
//! Isa::detect().run(Double(&mut row));
//! assert_eq!(row, [2.0, 4.0, 6.0]);
//! ```
#![allow(unsafe_code)]

use finback_numerics::lanes::{Bits, Lanes};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod rows;
mod vector;

pub use rows::{load_compressed, load_index_key, load_window};
pub use vector::max_of;

/// Lanes of a vector.
pub const LANES: usize = 8;

/// An instruction set as a value: holding one proves that the CPU has it.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Eight f32.
    type F: Lanes<Bits = Self::W> + Send + Sync;
    /// Eight 32-bit words.
    type W: Bits + Send + Sync;

    /// Vectors that fit in registers.
    const REGISTERS: usize;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::F;
    /// `value` in every lane.
    fn splat_bits(self, value: u32) -> Self::W;
    /// The first of the pair in lanes 0 to 3, the second in lanes 4 to 7.
    fn splat_halves(self, pair: &[f32; 2]) -> Self::F;
    /// Reads eight f32.
    ///
    /// # Safety
    /// 32 bytes at `from` are readable; no alignment is needed.
    unsafe fn load_at(self, from: *const f32) -> Self::F;
    /// Writes eight f32.
    ///
    /// # Safety
    /// 32 bytes at `to` are writable; no alignment is needed.
    unsafe fn store_at(self, value: Self::F, to: *mut f32);
    /// Reads 32 bytes as little-endian words.
    ///
    /// # Safety
    /// 32 bytes at `from` are readable; no alignment is needed.
    unsafe fn load_bits_at(self, from: *const u8) -> Self::W;
    /// Asks for the cache line at `at`, which need not be readable, into the second-level cache.
    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        let _ = at;
    }
    /// The bytes as words.
    fn widen(self, bytes: [u8; 8]) -> Self::W;
    /// The low byte of each word; the other bits of the words must be zero.
    fn narrow(self, words: Self::W) -> [u8; 8];
    /// Shifts each 16-bit half right by `N` bits, its sign bit coming in.
    fn sar16<const N: i32>(self, words: Self::W) -> Self::W;
    /// Looks up each byte of `index`, which must be below 16, in `table`.
    fn lookup(self, table: &[u8; 16], index: Self::W) -> Self::W;
    /// The bytes of each word, lowest first, as f32 patterns that have a byte's sign bit at bit 31
    /// and its other seven at bits 20 to 26.
    #[inline(always)]
    fn spread_bytes(self, words: Self::W) -> [Self::F; 4] {
        let mask = self.splat_bits(0x87f0_0000);
        let odd = self.sar16::<4>(words);
        let even = self.sar16::<4>(words.shl::<8>());
        [
            Self::F::from_bits(even.shl::<16>() & mask),
            Self::F::from_bits(odd.shl::<16>() & mask),
            Self::F::from_bits(even & mask),
            Self::F::from_bits(odd & mask),
        ]
    }
    /// The E2M1 values, times 2^-120, of the codes in the low halves of each word's bytes, lowest
    /// first. The other halves are not looked at.
    #[inline(always)]
    fn e2m1(self, words: Self::W) -> [Self::F; 4] {
        vector::e2m1(self, words)
    }
    /// Rows as columns: vector `l` of the result holds lane `l` of every row.
    #[inline(always)]
    fn transpose(self, rows: [Self::F; 8]) -> [Self::F; 8] {
        vector::transpose(self, rows)
    }
    /// The even ones of 16 values, then the odd ones.
    #[inline(always)]
    fn every_second(self, values: [Self::F; 2]) -> [Self::F; 2] {
        vector::every_second(self, values)
    }
    /// Every fourth of 32 values, the first from value `j` on in vector `j` of the result.
    #[inline(always)]
    fn every_fourth(self, values: [Self::F; 4]) -> [Self::F; 4] {
        vector::every_fourth(self, values)
    }
    /// The sum of the lanes in the house order (`numerics::order::tree`).
    fn tree(self, value: Self::F) -> f32;
    /// The largest word, read as unsigned with the top bit clear.
    fn max_bits(self, words: Self::W) -> u32;

    /// The first eight of `from`. Panics when there are fewer: sizes are the caller's arithmetic.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::F {
        vector::load(self, from)
    }
    /// Up to eight of `from`, the missing lanes zero.
    #[inline(always)]
    fn load_head(self, from: &[f32]) -> Self::F {
        vector::load_head(self, from)
    }
    /// Writes the first eight of `to`. Panics when there are fewer.
    #[inline(always)]
    fn store(self, to: &mut [f32], value: Self::F) {
        vector::store(self, to, value);
    }
    /// Writes up to eight of `to`.
    #[inline(always)]
    fn store_head(self, to: &mut [f32], value: Self::F) {
        vector::store_head(self, to, value);
    }
}

/// A computation to be compiled for each instruction set.
pub trait Kernel {
    /// What it gives.
    type Output;
    /// The body. Must be `#[inline(always)]`, as must be what it calls with `s`, or the compiler
    /// cannot use the instruction set in it. `array::map` and `array::from_fn` are not: their
    /// closures must not touch vectors.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// The instruction set that kernels run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// The best instruction set of this CPU.
    pub fn detect() -> Isa {
        // The list is never empty: portable code runs everywhere.
        Self::available().last().unwrap_or(Isa::PORTABLE)
    }

    /// Plain Rust; slow where the compiler's target has no fused multiply-add.
    pub const PORTABLE: Isa = Isa(Kind::Portable);

    /// Every instruction set of this CPU, the best last.
    pub fn available() -> impl DoubleEndedIterator<Item = Isa> {
        let mut found = [Some(Isa::PORTABLE), None, None];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq");
            found[1] = avx2.then_some(Isa(Kind::Avx2));
            found[2] = (avx2 && avx512).then_some(Isa(Kind::Avx512));
        }
        #[cfg(target_arch = "aarch64")]
        {
            found[1] = Some(Isa(Kind::Neon));
        }
        found.into_iter().flatten()
    }

    /// The instruction set of this name among the available ones.
    pub fn named(name: &str) -> Option<Isa> {
        Self::available().find(|isa| isa.name() == name)
    }

    /// `portable`, `avx2`, `avx512` or `neon`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => "neon",
        }
    }

    /// Vectors that fit in registers.
    pub(crate) fn registers(self) -> usize {
        /// Asks the instruction set.
        struct Registers;
        impl Kernel for Registers {
            type Output = usize;
            #[inline(always)]
            fn run<S: Simd>(self, _: S) -> usize {
                S::REGISTERS
            }
        }
        self.run(Registers)
    }

    /// Runs `kernel` on this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::Portable => kernel.run(portable::Portable),
            // SAFETY: these kinds are only made where detection found the features.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2::run(kernel) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx2::run512(kernel) },
            // SAFETY: aarch64 always has NEON.
            #[cfg(target_arch = "aarch64")]
            Kind::Neon => unsafe { neon::run(kernel) },
        }
    }
}

#[cfg(test)]
mod tests;
