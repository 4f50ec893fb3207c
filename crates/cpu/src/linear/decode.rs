//! From stored bytes to vectors: which input sits in which lane, and how its value comes out.
//!
//! A *block* is what one step reads of a weight row; it holds one or two *quads* of 32 inputs.
//!
//! | format | bytes | quads | input in quad `q`, vector `j`, lane `l` |
//! |---|---|---|---|
//! | FP8 | 32 | 1 | `4l + j` |
//! | FP4 | 32 | 2 | `2(4l + j) + q`, and 32 more from lane 4 on with `l - 4` |
//! | BF16, F16 | 64 | 1 | `16(j / 2) + 2l + j % 2` |
//! | F32 | 128 | 1 | `8j + l` |
#![allow(unsafe_code)]

use finback_numerics::bf16;
use finback_numerics::lanes::{Bits, Lanes};

use super::{Format, Weight};
use crate::simd::{LANES, Simd};

/// Inputs of a quad: four vectors.
pub(super) const QUAD: usize = 4 * LANES;

/// Most quads that a kernel takes of a row at a time.
pub(super) const PANEL: usize = 128;

/// The scales of a panel of one weight row, one for each quad.
pub(super) type ScaleTable = [f32; PANEL];

/// The order of a row's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Layout {
    /// FP8.
    Bytes,
    /// FP4.
    Nibbles,
    /// BF16 and F16.
    Halves,
    /// F32.
    #[default]
    Words,
}

impl Layout {
    pub(super) fn of(format: Format) -> Layout {
        match format {
            Format::Fp8 { .. } => Layout::Bytes,
            Format::Fp4 => Layout::Nibbles,
            Format::Bf16 | Format::F16 => Layout::Halves,
            Format::F32 => Layout::Words,
        }
    }

    pub(super) fn is_quantised(self) -> bool {
        matches!(self, Layout::Bytes | Layout::Nibbles)
    }

    /// Inputs of a block.
    pub(super) fn block(self) -> usize {
        if self == Layout::Nibbles { 2 * QUAD } else { QUAD }
    }

    /// `inp` rounded up to whole blocks.
    pub(super) fn padded(self, inp: usize) -> usize {
        inp.next_multiple_of(self.block())
    }

    /// Puts the inputs of a block, eight vectors for two quads and four for one, into their places.
    #[inline(always)]
    pub(super) fn place<S: Simd>(self, s: S, from: &[S::F; 8], block: &mut [f32]) {
        let [a, b, c, d, ..] = *from;
        match self {
            Layout::Bytes => {
                for (to, part) in block.chunks_exact_mut(LANES).zip(s.every_fourth([a, b, c, d])) {
                    s.store(to, part);
                }
            }
            Layout::Nibbles => {
                for (n, part) in s.transpose(*from).into_iter().enumerate() {
                    s.store(&mut block[QUAD * (n % 2) + LANES * (n / 2)..], part);
                }
            }
            Layout::Halves => {
                let ([a, b], [c, d]) = (s.every_second([a, b]), s.every_second([c, d]));
                for (to, part) in block.chunks_exact_mut(LANES).zip([a, b, c, d]) {
                    s.store(to, part);
                }
            }
            Layout::Words => {
                for (to, part) in block.chunks_exact_mut(LANES).zip([a, b, c, d]) {
                    s.store(to, part);
                }
            }
        }
    }
}

/// A stored format as code.
pub(super) trait Decode {
    /// Bytes of a block in a weight row.
    const BYTES: usize;
    /// Quads of a block.
    const QUADS: usize;
    /// Whether blocks have scales.
    const SCALED: bool;
    /// Whether the scales of a row hold for its whole `COLUMNS` block.
    const SHARED: bool;

    /// The values of a quad: the stored ones, times 2^-120 where the format has scales.
    ///
    /// # Safety
    /// `BYTES` bytes at `from` are readable.
    unsafe fn quad<S: Simd>(s: S, from: *const u8, quad: usize) -> [S::F; 4];

    /// Expands the scales of `count` blocks of weight row `n` from `block` on.
    fn expand(weight: &Weight<'_>, n: usize, block: usize, count: usize, table: &mut ScaleTable);

    /// The scale of block `block` of the panel, for each lane.
    fn scale<S: Simd>(s: S, table: &ScaleTable, block: usize) -> S::F;
}

/// 2^(byte - 127) without the NaN: 255 is infinite.
#[inline(always)]
fn power(byte: u8) -> f32 {
    // Byte 0 is the subnormal 2^-127.
    f32::from_bits(((byte as u32) << 23).max(0x0040_0000))
}

/// E4M3 with a scale for each `BLOCK` inputs and outputs, `BLOCK` read from the weight.
#[derive(Clone, Copy)]
pub(super) struct Fp8;

impl Decode for Fp8 {
    const BYTES: usize = 32;
    const QUADS: usize = 1;
    const SCALED: bool = true;
    const SHARED: bool = true;

    #[inline(always)]
    unsafe fn quad<S: Simd>(s: S, from: *const u8, _: usize) -> [S::F; 4] {
        // SAFETY: the caller vouches for 32 bytes.
        s.spread_bytes(unsafe { s.load_bits_at(from) })
    }

    #[inline(always)]
    fn expand(weight: &Weight<'_>, n: usize, block: usize, count: usize, table: &mut ScaleTable) {
        let Format::Fp8 { block: side } = weight.format() else { return };
        let width = weight.inp().div_ceil(side);
        let row = &weight.scale()[n / side * width..][..width];
        if side == QUAD {
            for (to, byte) in table.iter_mut().zip(&row[block..block + count]) {
                *to = power(*byte);
            }
        } else {
            for (i, to) in table[..count].iter_mut().enumerate() {
                *to = power(row[(block + i) * QUAD / side]);
            }
        }
    }

    #[inline(always)]
    fn scale<S: Simd>(s: S, table: &ScaleTable, block: usize) -> S::F {
        s.splat(table[block])
    }
}

/// E2M1 with a scale for each 32 inputs of a row.
#[derive(Clone, Copy)]
pub(super) struct Fp4;

impl Decode for Fp4 {
    const BYTES: usize = 32;
    const QUADS: usize = 2;
    const SCALED: bool = true;
    const SHARED: bool = false;

    #[inline(always)]
    unsafe fn quad<S: Simd>(s: S, from: *const u8, quad: usize) -> [S::F; 4] {
        // SAFETY: the caller vouches for 32 bytes.
        let words = unsafe { s.load_bits_at(from) };
        s.e2m1(if quad == 0 { words } else { words.shr::<4>() })
    }

    #[inline(always)]
    fn expand(weight: &Weight<'_>, n: usize, block: usize, count: usize, table: &mut ScaleTable) {
        let width = weight.inp() / QUAD;
        let row = &weight.scale()[n * width..][..width];
        let row = &row[2 * block..width.min(2 * (block + count))];
        for (to, byte) in table.iter_mut().zip(row) {
            *to = power(*byte);
        }
        // The last block may have no second half.
        if row.len() < 2 * count {
            table[row.len()] = 0.0;
        }
    }

    #[inline(always)]
    fn scale<S: Simd>(s: S, table: &ScaleTable, block: usize) -> S::F {
        s.splat_halves(&[table[2 * block], table[2 * block + 1]])
    }
}

/// BF16.
#[derive(Clone, Copy)]
pub(super) struct Bf16;

/// Formats without scales.
macro_rules! unscaled {
    ($bytes:expr) => {
        const BYTES: usize = $bytes;
        const QUADS: usize = 1;
        const SCALED: bool = false;
        const SHARED: bool = true;

        #[inline(always)]
        fn expand(_: &Weight<'_>, _: usize, _: usize, _: usize, _: &mut ScaleTable) {}

        #[inline(always)]
        fn scale<S: Simd>(s: S, _: &ScaleTable, _: usize) -> S::F {
            s.splat(1.0)
        }
    };
}

impl Decode for Bf16 {
    unscaled!(64);

    #[inline(always)]
    unsafe fn quad<S: Simd>(s: S, from: *const u8, _: usize) -> [S::F; 4] {
        // SAFETY: the caller vouches for 64 bytes.
        let (a, b) = unsafe { (s.load_bits_at(from), s.load_bits_at(from.add(32))) };
        let high = s.splat_bits(0xffff_0000);
        let value = S::F::from_bits;
        [value(a.shl::<16>()), value(a & high), value(b.shl::<16>()), value(b & high)]
    }
}

/// Binary16.
#[derive(Clone, Copy)]
pub(super) struct F16;

impl Decode for F16 {
    unscaled!(64);

    #[inline(always)]
    unsafe fn quad<S: Simd>(s: S, from: *const u8, _: usize) -> [S::F; 4] {
        // SAFETY: the caller vouches for 64 bytes.
        let (a, b) = unsafe { (s.load_bits_at(from), s.load_bits_at(from.add(32))) };
        let low = s.splat_bits(0xffff);
        let lift = |word| bf16::lift_f16_word(word, s.splat(0.0));
        [lift(a & low), lift(a.shr::<16>()), lift(b & low), lift(b.shr::<16>())]
    }
}

/// Binary32.
#[derive(Clone, Copy)]
pub(super) struct F32;

impl Decode for F32 {
    unscaled!(128);

    #[inline(always)]
    unsafe fn quad<S: Simd>(s: S, from: *const u8, _: usize) -> [S::F; 4] {
        // SAFETY: the caller vouches for 128 bytes.
        let load = |v: usize| S::F::from_bits(unsafe { s.load_bits_at(from.add(32 * v)) });
        [load(0), load(1), load(2), load(3)]
    }
}
