//! Few rows: weights are decoded in registers and multiplied at once.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use finback_numerics::lanes::Lanes;

use super::decode::{Decode, PANEL, QUAD, ScaleTable};
use super::scratch::Vector;
use super::{COLUMNS, Weight};
use crate::simd::{Kernel, LANES, Simd};

/// Bytes of the largest block.
pub(super) const LARGEST: usize = 128;

/// Quads to take at a time of `rows` rows: their activations stay in half the first-level cache
/// while all columns pass. Even, for blocks of two quads.
pub(super) const fn panel(rows: usize) -> usize {
    PANEL / rows / 2 * 2
}

/// Adds to the sums of `R` rows the products of a panel of blocks, `C` columns at a time.
pub(super) struct Strip<'a, D, const R: usize, const C: usize> {
    /// The weight, for its scales.
    pub weight: &'a Weight<'a>,
    /// The weight row of column 0.
    pub n: usize,
    /// Number of columns.
    pub columns: usize,
    /// The first block of the panel.
    pub block: usize,
    /// Number of blocks.
    pub count: usize,
    /// The panel's weight bytes: those of column `c` start at `c * stride`.
    pub bytes: &'a [u8],
    /// Distance of columns, in bytes.
    pub stride: usize,
    /// The panel's activations of each row.
    pub x: [&'a [f32]; R],
    /// `[row][COLUMNS]`.
    pub sums: &'a mut [Vector],
    /// The weight's format.
    pub format: PhantomData<D>,
}

impl<D: Decode, const R: usize, const C: usize> Kernel for Strip<'_, D, R, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        assert!(self.count * D::QUADS <= PANEL && self.columns <= COLUMNS);
        assert!(self.columns > 0 && self.sums.len() >= R * COLUMNS);
        let last = (self.columns - 1) * self.stride;
        assert!(self.bytes.len() >= last + self.count * D::BYTES);
        assert!(self.x.iter().all(|x| x.len() >= self.count * D::QUADS * QUAD));
        let mut tables: [ScaleTable; C] = [[0.0; PANEL]; C];
        if D::SCALED && D::SHARED {
            D::expand(self.weight, self.n, self.block, self.count, &mut tables[0]);
        }
        let mut c = 0;
        while c + C <= self.columns {
            self.group::<S, C>(s, c, &mut tables);
            c += C;
        }
        while c < self.columns {
            self.group::<S, 1>(s, c, &mut tables);
            c += 1;
        }
    }
}

impl<D: Decode, const R: usize, const C: usize> Strip<'_, D, R, C> {
    /// `G` columns from `c` on.
    #[inline(always)]
    fn group<S: Simd, const G: usize>(&mut self, s: S, c: usize, tables: &mut [ScaleTable; C]) {
        if D::SCALED && !D::SHARED {
            for (i, table) in tables.iter_mut().enumerate().take(G) {
                D::expand(self.weight, self.n + c + i, self.block, self.count, table);
            }
        }
        let mut at = [std::ptr::null(); G];
        for (i, at) in at.iter_mut().enumerate() {
            *at = self.bytes[(c + i) * self.stride..].as_ptr();
        }
        let mut x = [std::ptr::null(); R];
        for (to, x) in x.iter_mut().zip(self.x) {
            *to = x.as_ptr();
        }
        let mut acc = [[s.splat(0.0); R]; G];
        for (i, acc) in acc.iter_mut().enumerate() {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(&self.sums[r * COLUMNS + c + i].0);
            }
        }
        for b in 0..self.count {
            for (i, acc) in acc.iter_mut().enumerate() {
                let scale = D::scale(s, &tables[if D::SHARED { 0 } else { i }], b);
                // SAFETY: block b is within every column's bytes and every row's activations, as
                // `run` checks.
                unsafe { step::<S, D, R>(s, at[i], &x, b, scale, acc) };
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            for (r, acc) in acc.iter().enumerate() {
                s.store(&mut self.sums[r * COLUMNS + c + i].0, *acc);
            }
        }
    }
}

/// Block `b` of one column and every row.
///
/// # Safety
/// Block `b` from `at` is readable, and so are its quads from each of `x`.
#[inline(always)]
unsafe fn step<S: Simd, D: Decode, const R: usize>(
    s: S,
    at: *const u8,
    x: &[*const f32; R],
    b: usize,
    scale: S::F,
    acc: &mut [S::F; R],
) {
    for q in 0..D::QUADS {
        // SAFETY: the caller vouches for the block.
        let w = unsafe { D::quad(s, at.add(b * D::BYTES), q) };
        for (x, acc) in x.iter().zip(acc.iter_mut()) {
            let x = |v: usize| {
                // SAFETY: the caller vouches for the quads.
                unsafe { s.load_at(x.add((b * D::QUADS + q) * QUAD + v * LANES)) }
            };
            let p = w[3].fma(x(3), w[2].fma(x(2), w[1].fma(x(1), w[0] * x(0))));
            // A scale of one makes the fused form a sum, bit for bit.
            *acc = if D::SCALED { p.fma(scale, *acc) } else { *acc + p };
        }
    }
}
