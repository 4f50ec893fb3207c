//! The kernel: weights are decoded in registers and multiplied with a few rows at once.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use finback_numerics::lanes::Lanes;

use super::decode::{Decode, PANEL, QUAD, ScaleTable};
use super::scratch::Vector;
use super::{COLUMNS, Weight};
use crate::simd::{Kernel, LANES, Simd};

/// Bytes of the largest block.
pub(super) const LARGEST: usize = 128;

/// Most rows of a strip.
pub(super) const ROWS: usize = 8;

/// Columns between the one at work and the one whose bytes are asked for.
const AHEAD: usize = 4;

/// f32 of a cache line.
const LINE: usize = 16;

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
        assert!(self.columns > 0 && self.count > 0 && self.sums.len() >= R * COLUMNS);
        let last = (self.columns - 1) * self.stride;
        assert!(self.bytes.len() >= last + self.count * D::BYTES);
        assert!(self.x.iter().all(|x| x.len() >= self.count * D::QUADS * QUAD));
        let mut tables: [ScaleTable; C] = [[0.0; PANEL]; C];
        if D::SCALED && D::SHARED {
            D::expand(self.weight, self.n, self.block, self.count, &mut tables[0]);
        }
        let lines = (self.count * D::QUADS * QUAD / LINE).div_ceil(self.columns);
        let mut c = 0;
        while c + C <= self.columns {
            self.group::<S, C>(s, c, lines, &mut tables);
            c += C;
        }
        while c < self.columns {
            self.group::<S, 1>(s, c, lines, &mut tables);
            c += 1;
        }
    }
}

impl<D: Decode, const R: usize, const C: usize> Strip<'_, D, R, C> {
    /// `G` columns from `c` on, each asking for `lines` lines of the activations ahead.
    #[inline(always)]
    fn group<S: Simd, const G: usize>(
        &mut self,
        s: S,
        c: usize,
        lines: usize,
        tables: &mut [ScaleTable; C],
    ) {
        if D::SCALED && !D::SHARED {
            for (i, table) in tables.iter_mut().enumerate().take(G) {
                D::expand(self.weight, self.n + c + i, self.block, self.count, table);
            }
        }
        let mut at = [std::ptr::null(); G];
        let mut ahead = at;
        for (i, (at, ahead)) in at.iter_mut().zip(&mut ahead).enumerate() {
            *at = self.bytes[(c + i) * self.stride..].as_ptr();
            *ahead = self.ahead(c + i);
        }
        let mut x = [std::ptr::null(); R];
        for (to, x) in x.iter_mut().zip(self.x) {
            *to = x.as_ptr();
        }
        // A share of the next panel's activations, which the columns together cover.
        let next = self.count * D::QUADS * QUAD / LINE;
        for line in (lines * c..lines * (c + G)).map(|line| next + line) {
            for x in &x {
                s.prefetch(x.wrapping_add(line * LINE));
            }
        }
        let mut acc = [[s.splat(0.0); R]; G];
        for (i, acc) in acc.iter_mut().enumerate() {
            for (r, acc) in acc.iter_mut().enumerate() {
                *acc = s.load(&self.sums[r * COLUMNS + c + i].0);
            }
        }
        // The way of two quads into one sum is long: with one row and few columns at work,
        // a quad is decoded while the one before it is multiplied.
        let early = D::QUADS > 1 && R == 1 && C < 4;
        // SAFETY: there is a first block.
        let mut held = unsafe { decode::<S, D, G>(s, &at, 0, 0) };
        for b in 0..self.count {
            if D::BYTES >= 64 || b % 2 == 0 {
                for ahead in &ahead {
                    for line in (0..D::BYTES).step_by(64) {
                        s.prefetch(ahead.wrapping_add(b * D::BYTES + line));
                    }
                }
            }
            let mut scale = [s.splat(1.0); G];
            for (i, scale) in scale.iter_mut().enumerate() {
                *scale = D::scale(s, &tables[if D::SHARED { 0 } else { i }], b);
            }
            for q in 0..D::QUADS {
                let place = b * D::QUADS + q;
                if early {
                    let last = q + 1 == D::QUADS;
                    let (b, q) = if last { ((b + 1).min(self.count - 1), 0) } else { (b, q + 1) };
                    // SAFETY: the block is within every column's bytes, the quad within every
                    // row's activations, as `run` checks.
                    let next = unsafe { decode::<S, D, G>(s, &at, b, q) };
                    // SAFETY: as above.
                    unsafe { multiply::<S, D, R, G>(s, &held, &x, place, &scale, &mut acc) };
                    held = next;
                } else {
                    // SAFETY: as above.
                    let w = unsafe { decode::<S, D, G>(s, &at, b, q) };
                    // SAFETY: as above.
                    unsafe { multiply::<S, D, R, G>(s, &w, &x, place, &scale, &mut acc) };
                }
            }
        }
        for (i, acc) in acc.iter().enumerate() {
            for (r, acc) in acc.iter().enumerate() {
                s.store(&mut self.sums[r * COLUMNS + c + i].0, *acc);
            }
        }
    }
}

impl<D: Decode, const R: usize, const C: usize> Strip<'_, D, R, C> {
    /// The bytes to ask for while column `c` is at work: a few columns on in this panel, or at its
    /// end in the next.
    #[inline(always)]
    fn ahead(&self, c: usize) -> *const u8 {
        let (column, panel) = match (c + AHEAD).checked_sub(self.columns) {
            Some(column) => (column, self.count * D::BYTES),
            None => (c + AHEAD, 0),
        };
        self.bytes.as_ptr().wrapping_add(column * self.stride + panel)
    }
}

/// Quad `q` of block `b` of every column.
///
/// # Safety
/// Block `b` from each of `at` is readable.
#[inline(always)]
unsafe fn decode<S: Simd, D: Decode, const G: usize>(
    s: S,
    at: &[*const u8; G],
    b: usize,
    q: usize,
) -> [[S::F; 4]; G] {
    let mut w = [[s.splat(0.0); 4]; G];
    for (w, at) in w.iter_mut().zip(at) {
        // SAFETY: the caller vouches for the block.
        *w = unsafe { D::quad(s, at.add(b * D::BYTES), q) };
    }
    w
}

/// Adds the products of a quad of every column with quad `q` of every row.
///
/// # Safety
/// Quad `q` from each of `x` is readable.
#[inline(always)]
unsafe fn multiply<S: Simd, D: Decode, const R: usize, const G: usize>(
    s: S,
    w: &[[S::F; 4]; G],
    x: &[*const f32; R],
    q: usize,
    scale: &[S::F; G],
    acc: &mut [[S::F; R]; G],
) {
    // All chains of a vector side by side: each waits for its own last step only.
    let mut p = [[s.splat(0.0); R]; G];
    for v in 0..4 {
        for (r, x) in x.iter().enumerate() {
            // SAFETY: the caller vouches for the quad.
            let x = unsafe { s.load_at(x.add(q * QUAD + v * LANES)) };
            for (p, w) in p.iter_mut().zip(w) {
                p[r] = if v == 0 { w[0] * x } else { w[v].fma(x, p[r]) };
            }
        }
    }
    for ((acc, p), scale) in acc.iter_mut().zip(&p).zip(scale) {
        for (acc, p) in acc.iter_mut().zip(p) {
            // A scale of one makes the fused form a sum, bit for bit.
            *acc = if D::SCALED { p.fma(*scale, *acc) } else { *acc + *p };
        }
    }
}
