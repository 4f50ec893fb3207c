//! Many rows: weights are decoded into a panel in cache and multiplied tile by tile.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use finback_numerics::lanes::Lanes;

use super::decode::{Decode, PANEL, QUAD, ScaleTable};
use super::{COLUMNS, Prepared, Rows, Weight};
use crate::simd::{Isa, Kernel, LANES, Simd};

/// Rows whose sums are kept at a time.
pub(super) const ROWS: usize = 128;

/// Quads of a panel: 512 inputs.
const QUADS: usize = 16;

/// Vectors of a quad in the panel: its four, then its scale.
const QUAD_VECTORS: usize = QUAD / LANES + 1;

/// Eight f32, aligned so that none straddles a cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(align(32))]
struct Vector([f32; LANES]);

/// Decoded weights and unfinished sums: about 210 KB, for the second-level cache.
#[derive(Debug)]
pub(super) struct Panel {
    /// `[column][quad][QUAD_VECTORS]`.
    weights: Box<[Vector]>,
    /// `[row][column]`, the eight lanes of each sum.
    sums: Box<[Vector]>,
}

impl Panel {
    pub(super) fn new() -> Panel {
        let vectors = |n| vec![Vector::default(); n].into_boxed_slice();
        Panel { weights: vectors(COLUMNS * QUADS * QUAD_VECTORS), sums: vectors(ROWS * COLUMNS) }
    }

    /// Multiplies up to [`ROWS`] of `rows` from `first` on with the `columns` weight rows from `n`
    /// on.
    pub(super) fn multiply<'p, D: Decode>(
        &'p mut self,
        isa: Isa,
        weight: &Weight<'_>,
        (n, columns): (usize, usize),
        x: &Prepared,
        (rows, first): (&Rows<'_>, usize),
    ) -> Sums<'p> {
        let count = ROWS.min(rows.count() - first);
        let quads = weight.format().row_bytes(weight.inp()).div_ceil(D::BYTES) * D::QUADS;
        self.sums[..count * COLUMNS].fill(Vector::default());
        for quad in (0..quads).step_by(QUADS) {
            let width = QUADS.min(quads - quad);
            for c in 0..columns {
                let panel = &mut self.weights[c * QUADS * QUAD_VECTORS..][..width * QUAD_VECTORS];
                isa.run(DecodeRow { weight, n: n + c, quad, panel, format: PhantomData::<D> });
            }
            let mut inputs: [&[f32]; ROWS] = [&[]; ROWS];
            for (r, input) in inputs[..count].iter_mut().enumerate() {
                *input = &x.row(rows.get(first + r))[quad * QUAD..][..width * QUAD];
            }
            isa.run(Tiles {
                weights: &self.weights,
                sums: &mut self.sums,
                x: &inputs[..count],
                columns,
                quads: width,
            });
        }
        Sums(&self.sums)
    }
}

/// The lanes of finished sums.
pub(super) struct Sums<'p>(&'p [Vector]);

impl Sums<'_> {
    /// The sum of a row and a column, before the row's factor.
    pub(super) fn get(&self, row: usize, column: usize) -> f32 {
        finback_numerics::order::tree(self.0[row * COLUMNS + column].0)
    }
}

/// Decodes the quads of weight row `n` from `quad` on that fill `panel`.
struct DecodeRow<'a, D> {
    weight: &'a Weight<'a>,
    n: usize,
    quad: usize,
    panel: &'a mut [Vector],
    format: PhantomData<D>,
}

impl<D: Decode> Kernel for DecodeRow<'_, D> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let row_bytes = self.weight.format().row_bytes(self.weight.inp());
        let row = &self.weight.data()[self.n * row_bytes..][..row_bytes];
        let first = self.quad / D::QUADS;
        let mut table: ScaleTable = [0.0; 2 * PANEL];
        D::expand(self.weight, self.n, first, &mut table);
        for (i, block) in self.panel.chunks_exact_mut(QUAD_VECTORS * D::QUADS).enumerate() {
            let bytes = &row[(first + i) * D::BYTES..];
            let mut end = [0u8; 128];
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
struct Tiles<'a> {
    weights: &'a [Vector],
    sums: &'a mut [Vector],
    x: &'a [&'a [f32]],
    columns: usize,
    quads: usize,
}

impl Kernel for Tiles<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let mut r = 0;
        while r < self.x.len() {
            match self.x.len() - r {
                1 => r += self.rows::<S, 1>(s, r),
                2 => r += self.rows::<S, 2>(s, r),
                _ => r += self.rows::<S, 3>(s, r),
            }
        }
    }
}

impl Tiles<'_> {
    /// `R` rows from `r` on, all columns; gives `R`.
    #[inline(always)]
    fn rows<S: Simd, const R: usize>(&mut self, s: S, r: usize) -> usize {
        let mut c = 0;
        while c + 2 <= self.columns {
            self.tile::<S, R, 2>(s, r, c);
            c += 2;
        }
        if c < self.columns {
            self.tile::<S, R, 1>(s, r, c);
        }
        R
    }

    /// `R` rows and `C` columns.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const C: usize>(&mut self, s: S, r: usize, c: usize) {
        let mut x = [std::ptr::null(); R];
        for (to, x) in x.iter_mut().zip(&self.x[r..r + R]) {
            assert!(x.len() >= self.quads * QUAD);
            *to = x.as_ptr();
        }
        let mut w = [std::ptr::null::<f32>(); C];
        for (i, to) in w.iter_mut().enumerate() {
            let at = (c + i) * QUADS * QUAD_VECTORS;
            *to = self.weights[at..][..self.quads * QUAD_VECTORS].as_ptr().cast();
        }
        let sums = &mut self.sums[r * COLUMNS + c..][..(R - 1) * COLUMNS + C];
        let mut acc = [[s.splat(0.0); C]; R];
        for r in 0..R {
            for c in 0..C {
                acc[r][c] = s.load(&sums[r * COLUMNS + c].0);
            }
        }
        for q in 0..self.quads {
            // SAFETY: quad q is within every slice taken above.
            unsafe { quad::<S, R, C>(s, q, &x, &w, &mut acc) };
        }
        for r in 0..R {
            for c in 0..C {
                s.store(&mut sums[r * COLUMNS + c].0, acc[r][c]);
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
            for (p, w) in p.iter_mut().zip(w) {
                *p = if v == 0 { w * x } else { w.fma(x, *p) };
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
