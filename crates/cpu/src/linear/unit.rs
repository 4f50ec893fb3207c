//! One worker's share of a task: all rows, one block of outputs.
#![allow(unsafe_code)]

use std::array::from_fn;
use std::marker::PhantomData;

use finback_numerics::{bf16, order};

use super::decode::{Bf16, Decode, F16, F32, Fp4, Fp8, QUAD};
use super::scratch::{Scratch, Vector};
use super::strip::{self, Strip};
use super::{COLUMNS, Format, Prepared, Rows, Task, Weight};
use crate::simd::{Isa, Kernel, LANES, Simd};

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

    fn decode<D: Decode>(mut self, isa: Isa) {
        let (rows, registers) = (self.rows.count(), isa.registers());
        let mut r = 0;
        while r < rows {
            // As many rows as leave their sums in registers. Two columns or four where their
            // chains would otherwise wait for themselves.
            r += match rows - r {
                8.. if registers >= 32 => self.group::<D, 8, 1>(isa, r),
                6.. if registers >= 16 => self.group::<D, 6, 1>(isa, r),
                5.. if registers >= 16 => self.group::<D, 5, 1>(isa, r),
                4.. if registers >= 16 => self.group::<D, 4, 1>(isa, r),
                3.. if registers >= 32 => self.group::<D, 3, 2>(isa, r),
                2.. if registers >= 16 => self.group::<D, 2, 2>(isa, r),
                _ if registers < 16 => self.group::<D, 1, 1>(isa, r),
                _ if D::QUADS == 1 || registers >= 32 => self.group::<D, 1, 4>(isa, r),
                _ => self.group::<D, 1, 2>(isa, r),
            };
        }
    }

    /// The rows `r..r + R`; gives `R`.
    fn group<D: Decode, const R: usize, const C: usize>(&mut self, isa: Isa, r: usize) -> usize {
        let (weight, n, columns) = (self.weight, self.n, self.columns);
        let stride = weight.format().row_bytes(weight.inp());
        let bytes = &weight.data()[n * stride..(n + columns) * stride];
        let rows: [&[f32]; R] = from_fn(|i| self.x.row(self.rows.get(r + i)));
        let Scratch { sums, ends } = &mut *self.scratch;
        sums[..R * COLUMNS].fill(Vector::default());
        let mut run = |block: usize, count: usize, bytes: &[u8], stride: usize| {
            let x = rows.map(|x| &x[block * D::QUADS * QUAD..][..count * D::QUADS * QUAD]);
            let format = PhantomData::<D>;
            let sums = &mut sums[..];
            isa.run(Strip::<_, R, C> {
                weight,
                n,
                columns,
                block,
                count,
                bytes,
                stride,
                x,
                sums,
                format,
            });
        };
        let (blocks, panel) = (stride / D::BYTES, strip::panel(R) / D::QUADS);
        for block in (0..blocks).step_by(panel) {
            run(block, panel.min(blocks - block), &bytes[block * D::BYTES..], stride);
        }
        let rest = stride % D::BYTES;
        if rest > 0 {
            for (end, row) in ends.iter_mut().zip(bytes.chunks_exact(stride)) {
                end.fill(0);
                end[..rest].copy_from_slice(&row[stride - rest..]);
            }
            run(blocks, 1, ends.as_flattened(), strip::LARGEST);
        }
        self.finish(isa, r, R)
    }

    /// Adds up the lanes of the rows `r..r + count` and writes the outputs; gives `count`.
    fn finish(&self, isa: Isa, r: usize, count: usize) -> usize {
        for i in 0..count {
            let factor = self.x.factor(self.rows.get(r + i));
            let mut values = [0.0; COLUMNS];
            let sums = &self.scratch.sums[i * COLUMNS..][..COLUMNS];
            isa.run(Totals { sums, factor, round: self.out.round, values: &mut values });
            self.out.write(r + i, self.n, &values[..self.columns]);
        }
        count
    }
}

/// The trees of `COLUMNS` sums, times the row's factor.
struct Totals<'a> {
    sums: &'a [Vector],
    factor: f32,
    /// Round to bf16.
    round: bool,
    values: &'a mut [f32; COLUMNS],
}

impl Kernel for Totals<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let factor = s.splat(self.factor);
        for (to, sums) in self.values.chunks_exact_mut(LANES).zip(self.sums.chunks_exact(LANES)) {
            let mut lanes = [factor; LANES];
            for (lane, sum) in lanes.iter_mut().zip(sums) {
                *lane = s.load(&sum.0);
            }
            let total = order::tree(s.transpose(lanes)) * factor;
            s.store(to, if self.round { bf16::round(total) } else { total });
        }
    }
}

impl Out {
    /// Writes outputs of a row from `column` on.
    #[inline(always)]
    fn write(&self, row: usize, column: usize, values: &[f32]) {
        let at = row * self.stride + column;
        debug_assert!(at + values.len() <= self.len);
        // SAFETY: the task's check keeps every (row, column) in bounds, and the columns belong to
        // this unit alone (`Unit::new`).
        unsafe { self.to.add(at).copy_from_nonoverlapping(values.as_ptr(), values.len()) }
    }
}
