//! Many rows: weights are decoded into a panel in cache and multiplied tile by tile.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use finback_numerics::lanes::Lanes;

use super::decode::{Decode, PANEL, QUAD, ScaleTable};
use super::few::LARGEST;
use super::scratch::{QUAD_VECTORS, Vector};
use super::{COLUMNS, Weight};
use crate::simd::{Kernel, LANES, Simd};

/// Most rows whose sums are kept at a time.
pub(super) const ROWS: usize = 128;

/// Quads of a panel: 256 inputs.
pub(super) const QUADS: usize = 8;

/// Columns whose part of a panel stays in the first-level cache while all rows pass.
const GROUP: usize = 16;

/// Decodes the quads of weight row `n` from `quad` on that fill `panel`.
pub(super) struct DecodeRow<'a, D> {
    /// The weight.
    pub weight: &'a Weight<'a>,
    /// The weight row.
    pub n: usize,
    /// The first quad.
    pub quad: usize,
    /// `[quad][QUAD_VECTORS]`.
    pub panel: &'a mut [Vector],
    /// The weight's format.
    pub format: PhantomData<D>,
}

impl<D: Decode> Kernel for DecodeRow<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row_bytes = self.weight.format().row_bytes(self.weight.inp());
        let row = &self.weight.data()[self.n * row_bytes..][..row_bytes];
        let first = self.quad / D::QUADS;
        let mut table: ScaleTable = [1.0; PANEL];
        let blocks = self.panel.chunks_exact_mut(QUAD_VECTORS * D::QUADS);
        D::expand(self.weight, self.n, first, blocks.len(), &mut table);
        for (i, block) in blocks.enumerate() {
            let bytes = &row[(first + i) * D::BYTES..];
            let mut end = [0u8; LARGEST];
            let from = if bytes.len() >= D::BYTES {
                bytes.as_ptr()
            } else {
                end[..bytes.len()].copy_from_slice(bytes);
                end.as_ptr()
            };
            let scale = D::scale(s, &table, i);
            for (q, quad) in block.chunks_exact_mut(QUAD_VECTORS).enumerate() {
                // SAFETY: a whole block of bytes is at `from`.
                let w = unsafe { D::quad(s, from, q) };
                for (to, w) in quad.iter_mut().zip(w) {
                    s.store(&mut to.0, w);
                }
                s.store(&mut quad[QUAD_VECTORS - 1].0, scale);
            }
        }
    }
}

/// Adds the products of a panel to the sums.
pub(super) struct Tiles<'a> {
    /// `[column][QUADS][QUAD_VECTORS]`.
    pub weights: &'a [Vector],
    /// `[row][COLUMNS]`.
    pub sums: &'a mut [Vector],
    /// The panel's activations of each row.
    pub x: &'a [&'a [f32]],
    /// Number of columns.
    pub columns: usize,
    /// Quads in the panel.
    pub quads: usize,
}

impl Kernel for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        assert!(self.quads <= QUADS && self.x.iter().all(|x| x.len() >= self.quads * QUAD));
        for first in (0..self.columns).step_by(GROUP) {
            let last = self.columns.min(first + GROUP);
            let mut r = 0;
            while r < self.x.len() {
                r += match self.x.len() - r {
                    1 => self.rows::<S, 1>(s, r, first, last),
                    2 => self.rows::<S, 2>(s, r, first, last),
                    _ => self.rows::<S, 3>(s, r, first, last),
                };
            }
        }
    }
}

impl Tiles<'_> {
    /// `R` rows from `r` on, the columns `c..last`; gives `R`.
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(
        &mut self,
        s: S,
        r: usize,
        mut c: usize,
        last: usize,
    ) -> usize {
        // A tile of R x C keeps twice as many sums, and C weights, in registers.
        while S::REGISTERS >= 32 && c + 4 <= last {
            self.tile::<S, R, 4>(s, r, c);
            c += 4;
        }
        while c + 2 <= last {
            self.tile::<S, R, 2>(s, r, c);
            c += 2;
        }
        if c < last {
            self.tile::<S, R, 1>(s, r, c);
        }
        R
    }

    /// `R` rows and `C` columns.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(&mut self, s: S, r: usize, c: usize) {
        let mut x = [std::ptr::null(); R];
        for (to, x) in x.iter_mut().zip(&self.x[r..r + R]) {
            *to = x.as_ptr();
        }
        let mut w = [std::ptr::null::<f32>(); C];
        for (i, to) in w.iter_mut().enumerate() {
            let at = (c + i) * QUADS * QUAD_VECTORS;
            *to = self.weights[at..][..self.quads * QUAD_VECTORS].as_ptr().cast();
        }
        let sums = &mut self.sums[r * COLUMNS + c..][..(R - 1) * COLUMNS + C];
        let mut acc = [[s.splat(0.0); C]; R];
        for (r, acc) in acc.iter_mut().enumerate() {
            for (c, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(&sums[r * COLUMNS + c].0);
            }
        }
        for q in 0..self.quads {
            // SAFETY: quad q is within every column taken above and, as `run` checks, every row.
            unsafe { quad::<S, R, C>(s, q, &x, &w, &mut acc) };
        }
        for (r, acc) in acc.iter().enumerate() {
            for (c, acc) in acc.iter().enumerate() {
                s.store(&mut sums[r * COLUMNS + c].0, *acc);
            }
        }
    }
}

/// Quad `q` of every row and column.
///
/// # Safety
/// Quad `q` from each of `x`, and with its scale from each of `w`, is readable.
#[inline(always)]
unsafe fn quad<S: Simd, const R: usize, const C: usize>(
    s: S,
    q: usize,
    x: &[*const f32; R],
    w: &[*const f32; C],
    acc: &mut [[S::F; C]; R],
) {
    let weight = |c: usize, v: usize| {
        // SAFETY: the caller vouches for the quad.
        unsafe { s.load_at(w[c].add((q * QUAD_VECTORS + v) * LANES)) }
    };
    let mut p = [[s.splat(0.0); C]; R];
    for v in 0..QUAD_VECTORS - 1 {
        let mut w = [s.splat(0.0); C];
        for (c, w) in w.iter_mut().enumerate() {
            *w = weight(c, v);
        }
        for (p, x) in p.iter_mut().zip(x) {
            // SAFETY: the caller vouches for the quad.
            let x = unsafe { s.load_at(x.add(q * QUAD + v * LANES)) };
            for (p, w) in p.iter_mut().zip(&w) {
                *p = if v == 0 { *w * x } else { w.fma(x, *p) };
            }
        }
    }
    for c in 0..C {
        let scale = weight(c, QUAD_VECTORS - 1);
        for (acc, p) in acc.iter_mut().zip(&p) {
            acc[c] = p[c].fma(scale, acc[c]);
        }
    }
}
