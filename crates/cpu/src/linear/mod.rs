//! Linear layers straight from the stored bytes: `y[r][n] = sum over k of W[n][k] * x[r][k]`.
//!
//! **Order of a sum.** A weight row is read in quads of 32 inputs, four vectors of eight lanes
//! each (`decode` says which input sits where). A quad's partial is a chain over its four
//! vectors, `p = w0*x0; p = fma(w1, x1, p); ...`; it enters the row's eight lanes by
//! `acc = fma(p, scale, acc)`, quads ascending; `numerics::order::tree` adds the lanes, and the
//! power of two of the activation row multiplies the total. Every kernel here does exactly this
//! for each (row, output), so the result depends on neither the number of rows, nor their places,
//! nor the split over workers, nor the instruction set.
//!
//! **Exactness.** FP8 and FP4 weights are taken as their value times 2^-120, which is a few bit
//! operations; activation rows for them are scaled by a power of two into the range where that
//! cancels ([`Prepared`]). All of it is exact, so only the sums round. Block scales are powers of
//! two and multiply partial sums.

use std::sync::Mutex;

use crate::simd::Isa;
use crate::team::{Team, TeamError};

mod decode;
mod prepare;
mod scratch;
mod strip;
mod unit;
mod weight;

pub use finback_ops::Format;
pub use prepare::{Input, Prepared};
pub use weight::{Weight, WeightError};

use scratch::Scratch;
use unit::{Out, Unit};

/// Outputs of a weight that one worker computes at a time. Divides every scale block.
const COLUMNS: usize = 32;

/// Which prepared rows a task multiplies, in the order of its output rows.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// `first`, `first + 1`, ... `first + count - 1`.
    Range {
        /// Index of the first prepared row.
        first: usize,
        /// Number of rows.
        count: usize,
    },
    /// These prepared rows: an expert's, gathered.
    List(&'a [u32]),
}

impl Rows<'_> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        match self {
            Rows::Range { count, .. } => *count,
            Rows::List(list) => list.len(),
        }
    }

    /// The prepared row of output row `i`.
    #[inline]
    fn get(&self, i: usize) -> usize {
        match self {
            Rows::Range { first, .. } => first + i,
            Rows::List(list) => list[i] as usize,
        }
    }
}

/// One product: a weight, the rows it takes and where the outputs go.
#[derive(Debug)]
pub struct Task<'a> {
    /// The weight.
    pub weight: Weight<'a>,
    /// Activations prepared for this weight's format and width.
    pub x: &'a Prepared,
    /// The prepared rows to multiply.
    pub rows: Rows<'a>,
    /// Output row `i` starts at `i * stride` and has one value for each weight row.
    pub out: &'a mut [f32],
    /// Distance of output rows, in f32.
    pub stride: usize,
    /// Round outputs to bf16.
    pub round: bool,
}

/// Runs products on a team; owns the workers' scratch memory.
#[derive(Debug)]
pub struct Linear {
    isa: Isa,
    scratch: Vec<Mutex<Box<Scratch>>>,
    /// First unit and output of each task of the call at hand.
    placed: Vec<(usize, Out)>,
}

impl Linear {
    /// For a team of `threads` workers.
    pub fn new(isa: Isa, threads: usize) -> Linear {
        let scratch = (0..threads).map(|_| Mutex::new(Scratch::new())).collect();
        Linear { isa, scratch, placed: Vec::new() }
    }

    /// Computes all `tasks` in one fork of `team`.
    ///
    /// Panics when a task's sizes do not fit together: they are the caller's arithmetic.
    ///
    /// # Errors
    /// [`TeamError::Panicked`], as [`Team::each`].
    #[allow(unsafe_code)]
    pub fn run(&mut self, team: &mut Team, tasks: &mut [Task<'_>]) -> Result<(), TeamError> {
        assert!(team.threads() <= self.scratch.len(), "a team of {} workers", team.threads());
        self.placed.clear();
        let mut units = 0;
        for task in &mut *tasks {
            task.check();
            self.placed.push((units, Out::new(task.out, task.stride, task.round)));
            if task.rows.count() > 0 {
                units += task.weight.out().div_ceil(COLUMNS);
            }
        }
        let (isa, placed, scratch, tasks) = (self.isa, &self.placed, &self.scratch, &*tasks);
        let result = team.each(units, |worker, index| {
            // The last task that starts at or before the unit: empty ones start where the next does.
            let task = placed.partition_point(|(start, _)| *start <= index) - 1;
            let (start, out) = &placed[task];
            // Each worker has its own: the lock is never contended, nor poisoned while it matters.
            let mut scratch = scratch[worker].lock().unwrap_or_else(|e| e.into_inner());
            // SAFETY: the task is checked, its output borrowed until this call ends, and each index
            // comes once.
            let unit = unsafe { Unit::new(&tasks[task], out, index - start, &mut scratch) };
            unit.run(isa);
        });
        self.placed.clear();
        result
    }
}

impl Task<'_> {
    fn check(&self) {
        let (rows, out) = (self.rows.count(), self.weight.out());
        assert!(self.x.fits(&self.weight), "activations are not prepared for {:?}", self.weight);
        assert!((0..rows).all(|i| self.rows.get(i) < self.x.rows()), "a row is not prepared");
        if let Some(last) = rows.checked_sub(1) {
            assert!(self.stride >= out && self.out.len() >= last * self.stride + out);
        }
    }
}

#[cfg(test)]
mod tests;
