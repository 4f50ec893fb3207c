//! The team, the instruction set, and the model's linear layers on them.

use std::ops::Range;

use finback_numerics::bf16;
use finback_ops::{Format, Linear, ModelSpec, OpsError, OpsResult, Rows};

use crate::linear::{self, Prepared, Task, Weight};
use crate::ops::{CpuOptions, NAME};
use crate::simd::Isa;
use crate::size::inputs;
use crate::team::Team;

/// What runs the kernels.
pub struct Device {
    /// The threads.
    pub team: Team,
    /// The instruction set.
    pub isa: Isa,
    linear: linear::Linear,
    /// Activations of the call at hand, one for each kind of weight in it.
    prepared: Vec<Prepared>,
    round_inputs: bool,
}

/// The rows a linear reads.
pub struct Input<'a> {
    /// Row-major values.
    pub x: &'a [f32],
    /// Values from one row to the next.
    pub stride: usize,
    /// The rows.
    pub rows: Rows,
    /// Whether an FP8 or FP4 weight takes them rounded to e4m3 in release numerics.
    pub round: bool,
}

/// One linear over an input: output row i, of the input's i-th row, starts at `i * stride`.
pub struct Job<'a> {
    weight: &'a Linear,
    part: Range<usize>,
    rows: Option<&'a [u32]>,
    out: &'a mut [f32],
    stride: usize,
}

impl<'a> Job<'a> {
    /// All output channels.
    pub fn new(weight: &'a Linear, out: &'a mut [f32], stride: usize) -> Self {
        Self::part(weight, 0..weight.out, out, stride)
    }

    /// Some output channels; the first goes to the start of `out`.
    pub fn part(weight: &'a Linear, part: Range<usize>, out: &'a mut [f32], stride: usize) -> Self {
        Self { weight, part, rows: None, out, stride }
    }

    /// All output channels of some rows of the input, gathered.
    pub fn gathered(weight: &'a Linear, rows: &'a [u32], out: &'a mut [f32]) -> Self {
        Self { weight, part: 0..weight.out, rows: Some(rows), out, stride: weight.out }
    }
}

impl Device {
    /// Starts the team, with room for passes of `rows` rows.
    ///
    /// # Errors
    /// A thread that cannot start.
    pub fn new(spec: &ModelSpec, rows: usize, options: CpuOptions) -> Result<Self, OpsError> {
        let inputs = inputs(spec, rows).into_iter();
        Ok(Self {
            team: Team::new(options.threads)?,
            isa: options.isa,
            linear: linear::Linear::new(options.isa, options.threads),
            prepared: inputs.map(|(rows, inp)| Prepared::with_capacity(rows, inp)).collect(),
            round_inputs: spec.numerics.round_inputs,
        })
    }

    /// Runs linears over one input in one fork; outputs rounded to bf16 where `store`.
    pub fn linear(&mut self, input: Input<'_>, jobs: &mut [Job<'_>], store: bool) -> OpsResult {
        self.linears(&mut [(input, jobs)], store)
    }

    /// Runs linears over several inputs in one fork.
    pub fn linears(
        &mut self,
        inputs: &mut [(Input<'_>, &mut [Job<'_>])],
        store: bool,
    ) -> OpsResult {
        let mut which = Vec::new();
        let mut used = 0;
        for (input, jobs) in inputs.iter() {
            let first = used;
            for job in jobs.iter() {
                let weight = view(job.weight)?;
                let known = (first..used).find(|&i| self.prepared[i].fits(&weight));
                if known.is_none() {
                    if used == self.prepared.len() {
                        self.prepared.push(Prepared::default());
                    }
                    let rows = input.rows.len();
                    let source = linear::Input {
                        x: &input.x[input.rows.start * input.stride..],
                        stride: input.stride,
                        rows,
                        inp: weight.inp(),
                        round: input.round && self.round_inputs,
                    };
                    let prepared = &mut self.prepared[used];
                    prepared.fill(self.isa, &mut self.team, &source, weight.format())?;
                    used += 1;
                }
                which.push(known.unwrap_or(used - 1));
            }
        }
        let mut which = which.into_iter();
        let mut tasks = Vec::with_capacity(which.len());
        for (input, jobs) in inputs.iter_mut() {
            for job in jobs.iter_mut() {
                tasks.push(Task {
                    weight: view(job.weight)?.part(job.part.clone()),
                    x: &self.prepared[which.next().unwrap_or_default()],
                    rows: match job.rows {
                        Some(list) => linear::Rows::List(list),
                        None => linear::Rows::Range { first: 0, count: input.rows.len() },
                    },
                    out: job.out,
                    stride: job.stride,
                    round: store,
                });
            }
        }
        Ok(self.linear.run(&mut self.team, &mut tasks)?)
    }
}

/// Lifts one row of an unscaled matrix.
///
/// # Errors
/// A scaled matrix.
pub fn lift_row(linear: &Linear, index: usize, out: &mut [f32]) -> OpsResult {
    let (bytes, n) = (linear.weight.bytes(), linear.inp);
    let halves = |lift: fn(u16) -> f32, out: &mut [f32]| {
        let row = &bytes[2 * n * index..2 * n * (index + 1)];
        for (b, out) in row.as_chunks().0.iter().zip(out) {
            *out = lift(u16::from_le_bytes(*b));
        }
    };
    match linear.format {
        Format::Bf16 => halves(bf16::lift, out),
        Format::F16 => halves(bf16::lift_f16, out),
        Format::F32 => {
            let row = &bytes[4 * n * index..4 * n * (index + 1)];
            for (b, out) in row.as_chunks().0.iter().zip(out) {
                *out = f32::from_le_bytes(*b);
            }
        }
        other => {
            return Err(OpsError::Unsupported {
                backend: NAME,
                step: "a row read",
                reason: format!("{}: stored as {other:?}", linear.weight.name()),
            });
        }
    }
    Ok(())
}

/// A linear's stored bytes as the kernels take them.
fn view(linear: &Linear) -> Result<Weight<'_>, OpsError> {
    let scale = linear.scale.as_ref().map_or(&[][..], |s| s.bytes());
    let data = linear.weight.bytes();
    Weight::new(linear.format, data, scale, linear.out, linear.inp).map_err(|e| {
        OpsError::Unsupported {
            backend: NAME,
            step: "a linear",
            reason: format!("{}: {e}", linear.weight.name()),
        }
    })
}
