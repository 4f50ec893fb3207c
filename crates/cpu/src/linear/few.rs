//! Few rows: weights are decoded in registers and multiplied at once.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use finback_numerics::lanes::Lanes;

use super::Weight;
use super::decode::{Decode, PANEL, QUAD, ScaleTable};
use crate::simd::{Kernel, LANES, Simd};

/// Bytes of the largest block.
const LARGEST: usize = 128;

/// The products of `R` prepared rows with the `C` weight rows from `n` on: `[column][row]`, before
/// the rows' factors.
pub(super) struct Strip<'a, D, const R: usize, const C: usize> {
    /// The weight; `n + C` is at most its outputs.
    pub weight: &'a Weight<'a>,
    /// The first weight row.
    pub n: usize,
    /// Rows prepared for the weight.
    pub x: [&'a [f32]; R],
    /// The weight's format.
    pub format: PhantomData<D>,
}

impl<D: Decode, const R: usize, const C: usize> Kernel for Strip<'_, D, R, C> {
    type Output = [[f32; R]; C];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [[f32; R]; C] {
        let row_bytes = self.weight.format().row_bytes(self.weight.inp());
        let (blocks, rest) = (row_bytes / D::BYTES, row_bytes % D::BYTES);
        let whole = blocks * D::BYTES;
        let mut at = [std::ptr::null(); C];
        // The end of each row, filled up with zeros, which x has there too.
        let mut ends = [[0u8; LARGEST]; C];
        for c in 0..C {
            let row = &self.weight.data()[(self.n + c) * row_bytes..][..row_bytes];
            at[c] = row.as_ptr();
            ends[c][..rest].copy_from_slice(&row[whole..]);
        }
        let total = row_bytes.div_ceil(D::BYTES);
        let mut x = [std::ptr::null(); R];
        for (to, x) in x.iter_mut().zip(self.x) {
            assert!(x.len() >= total * D::QUADS * QUAD);
            *to = x.as_ptr();
        }
        let mut acc = [[s.splat(0.0); R]; C];
        let mut table: [ScaleTable; C] = [[0.0; 2 * PANEL]; C];
        let mut block = 0;
        while block < total {
            let count = if block < blocks { PANEL.min(blocks - block) } else { 1 };
            if block >= blocks {
                for c in 0..C {
                    at[c] = ends[c].as_ptr();
                }
            }
            if D::SCALED {
                // All columns share the first table where the format's scales allow it.
                let distinct = if D::SHARED { 1 } else { C };
                for (c, table) in table.iter_mut().enumerate().take(distinct) {
                    D::expand(self.weight, self.n + c, block, table);
                }
            }
            for b in 0..count {
                // SAFETY: block b of this panel is whole at every column, in the row or its padded
                // end, and its quads are within every x.
                unsafe { step::<S, D, R, C>(s, &at, &x, &table, b, &mut acc) };
            }
            // SAFETY: these are the ends of the blocks just read.
            unsafe {
                for at in &mut at {
                    *at = at.add(count * D::BYTES);
                }
                for x in &mut x {
                    *x = x.add(count * D::QUADS * QUAD);
                }
            }
            block += count;
        }
        let mut sums = [[0.0; R]; C];
        for c in 0..C {
            for r in 0..R {
                sums[c][r] = s.tree(acc[c][r]);
            }
        }
        sums
    }
}

/// Block `b` of every column and row.
///
/// # Safety
/// Block `b` from each of `at` is readable, and so are its quads from each of `x`.
#[inline(always)]
unsafe fn step<S: Simd, D: Decode, const R: usize, const C: usize>(
    s: S,
    at: &[*const u8; C],
    x: &[*const f32; R],
    table: &[ScaleTable; C],
    b: usize,
    acc: &mut [[S::F; R]; C],
) {
    for c in 0..C {
        let scale = D::scale(s, &table[if D::SHARED { 0 } else { c }], b);
        for q in 0..D::QUADS {
            // SAFETY: the caller vouches for the block.
            let w = unsafe { D::quad(s, at[c].add(b * D::BYTES), q) };
            for r in 0..R {
                // SAFETY: the caller vouches for the quads.
                let x = |v: usize| unsafe {
                    s.load_at(x[r].add((b * D::QUADS + q) * QUAD + v * LANES))
                };
                let p = w[3].fma(x(3), w[2].fma(x(2), w[1].fma(x(1), w[0] * x(0))));
                // A scale of one makes the fused form a sum, bit for bit.
                acc[c][r] = if D::SCALED { p.fma(scale, acc[c][r]) } else { acc[c][r] + p };
            }
        }
    }
}
