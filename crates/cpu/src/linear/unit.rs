//! One worker's share of a task: all rows, one block of outputs.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use finback_numerics::bf16;

use super::decode::{Bf16, Decode, F16, F32, Fp4, Fp8};
use super::few::Strip;
use super::many::{self, Panel};
use super::{COLUMNS, Format, Prepared, Rows, Task, Weight};
use crate::simd::Isa;

/// From this many rows on, decoding into a panel pays.
const MANY: usize = 17;

/// A worker's memory.
#[derive(Debug)]
pub(super) struct Scratch(Panel);

impl Scratch {
    pub(super) fn new() -> Scratch {
        Scratch(Panel::new())
    }
}

/// Where a task's outputs go: a slice that several workers write, each its own outputs.
#[derive(Debug)]
pub(super) struct Out {
    to: *mut f32,
    len: usize,
    stride: usize,
    round: bool,
}

// SAFETY: `Out` only lives while its task's slice is borrowed (`Linear::run`), and workers write
// disjoint elements of it (`Unit::new`).
unsafe impl Sync for Out {}
// SAFETY: as above.
unsafe impl Send for Out {}

impl Out {
    pub(super) fn new(out: &mut [f32], stride: usize, round: bool) -> Out {
        Out { to: out.as_mut_ptr(), len: out.len(), stride, round }
    }
}

/// The outputs `n..n + columns` of a task, for all its rows.
pub(super) struct Unit<'u> {
    weight: &'u Weight<'u>,
    x: &'u Prepared,
    rows: Rows<'u>,
    out: &'u Out,
    n: usize,
    columns: usize,
    scratch: &'u mut Scratch,
}

impl<'u> Unit<'u> {
    /// The outputs from `block * COLUMNS` on of `task`, to `out`.
    ///
    /// # Safety
    /// The task's sizes are checked, `out` is its live output, and no two units at work have the
    /// same task and block.
    pub(super) unsafe fn new(
        task: &'u Task<'_>,
        out: &'u Out,
        block: usize,
        scratch: &'u mut Scratch,
    ) -> Unit<'u> {
        let n = block * COLUMNS;
        let columns = COLUMNS.min(task.weight.out() - n);
        Unit { weight: &task.weight, x: task.x, rows: task.rows, out, n, columns, scratch }
    }
}

impl Unit<'_> {
    /// Computes the outputs.
    pub(super) fn run(self, isa: Isa) {
        match self.weight.format() {
            Format::Fp8 { .. } => self.decode::<Fp8>(isa),
            Format::Fp4 => self.decode::<Fp4>(isa),
            Format::Bf16 => self.decode::<Bf16>(isa),
            Format::F16 => self.decode::<F16>(isa),
            Format::F32 => self.decode::<F32>(isa),
        }
    }

    fn decode<D: Decode>(self, isa: Isa) {
        let rows = self.rows.count();
        if isa == Isa::PORTABLE {
            // Tiles only pay where a vector is a register; the bits are the same.
            for r in 0..rows {
                self.strips::<D, 1, 1>(isa, r, 0);
            }
            return;
        }
        if rows >= MANY {
            return self.many::<D>(isa);
        }
        let mut r = 0;
        while r < rows {
            r += match rows - r {
                1 => self.few::<D, 1, 4>(isa, r),
                2 | 3 => self.few::<D, 2, 2>(isa, r),
                4 | 5 => self.few::<D, 4, 2>(isa, r),
                6 | 7 => self.few::<D, 6, 1>(isa, r),
                _ => self.few::<D, 8, 1>(isa, r),
            };
        }
    }

    /// All outputs of the rows `r..r + R`, `C` at a time; gives `R`.
    fn few<D: Decode, const R: usize, const C: usize>(&self, isa: Isa, r: usize) -> usize {
        let done = self.strips::<D, R, C>(isa, r, 0);
        if done < self.columns {
            for r in r..r + R {
                self.strips::<D, 1, 1>(isa, r, done);
            }
        }
        R
    }

    /// The outputs of the rows `r..r + R` from column `c` on, `C` at a time; gives the first
    /// column that is left.
    fn strips<D: Decode, const R: usize, const C: usize>(
        &self,
        isa: Isa,
        r: usize,
        mut c: usize,
    ) -> usize {
        let x = std::array::from_fn(|i| self.x.row(self.rows.get(r + i)));
        while c + C <= self.columns {
            let format = PhantomData::<D>;
            let sums = isa.run(Strip::<_, R, C> { weight: self.weight, n: self.n + c, x, format });
            for (j, column) in sums.iter().enumerate() {
                for (i, sum) in column.iter().enumerate() {
                    let factor = self.x.factor(self.rows.get(r + i));
                    self.out.set(r + i, self.n + c + j, sum * factor);
                }
            }
            c += C;
        }
        c
    }

    fn many<D: Decode>(self, isa: Isa) {
        let Unit { weight, x, rows, out, n, columns, scratch } = self;
        for first in (0..rows.count()).step_by(many::ROWS) {
            let sums = scratch.0.multiply::<D>(isa, weight, (n, columns), x, (&rows, first));
            for r in first..rows.count().min(first + many::ROWS) {
                let factor = x.factor(rows.get(r));
                for c in 0..columns {
                    out.set(r, n + c, sums.get(r - first, c) * factor);
                }
            }
        }
    }
}

impl Out {
    #[inline(always)]
    fn set(&self, row: usize, column: usize, value: f32) {
        let at = row * self.stride + column;
        debug_assert!(at < self.len);
        let value = if self.round { bf16::round(value) } else { value };
        // SAFETY: the task's check keeps every (row, column) in bounds, and the column belongs to
        // this unit alone (`Unit::new`).
        unsafe { self.to.add(at).write(value) }
    }
}
