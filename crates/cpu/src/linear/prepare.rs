//! Activation rows in the form a stored format multiplies.

use std::sync::Mutex;

use finback_numerics::lanes::{Bits, Lanes};
use finback_numerics::{fp8, quant};

use super::decode::{Layout, QUAD};
use super::{Format, Weight};
use crate::simd::{Isa, Kernel, LANES, Simd, max_of};
use crate::team::{Team, TeamError};

/// f32 of a cache line.
const LINE: usize = 16;

/// The distance of rows of `width` f32: an odd number of half pages where they are that long, so
/// that the same part of several rows does not fall on the same lines of a cache.
fn spread(width: usize) -> usize {
    if width < 512 { width } else { width.next_multiple_of(512) | 512 }
}

/// Rows to prepare.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// The rows: row `r` is the `inp` values at `r * stride`.
    pub x: &'a [f32],
    /// Distance of rows, in f32.
    pub stride: usize,
    /// Number of rows.
    pub rows: usize,
    /// Values of a row.
    pub inp: usize,
    /// Round to e4m3 with one power-of-two scale for 32 channels. Only for quantised weights:
    /// others never take rounded inputs.
    pub round: bool,
}

/// Activation rows rounded, scaled and permuted for one stored format.
///
/// For quantised weights a row is multiplied by the power of two that brings its largest magnitude
/// into [2^120, 2^121) (by 2^126 at most), and the product by the inverse: exact, except that
/// values about 2^-230 below the row's largest vanish. A row that holds a NaN or an infinity gives
/// NaN outputs, and no other row does. For other weights values are taken as they are.
#[derive(Debug, Default)]
pub struct Prepared {
    layout: Layout,
    inp: usize,
    /// f32 of a row: `inp` rounded up to whole blocks.
    width: usize,
    /// Distance of rows, in f32.
    stride: usize,
    rows: usize,
    /// Row 0 starts at `start`, on a cache line.
    data: Vec<f32>,
    start: usize,
    /// What the products of each row are multiplied by.
    factor: Vec<f32>,
}

impl Prepared {
    /// Room for `rows` rows of `inp` values, so that filling does not allocate.
    pub fn with_capacity(rows: usize, inp: usize) -> Prepared {
        let data = Vec::with_capacity(Prepared::values(rows, inp));
        Prepared { data, factor: Vec::with_capacity(rows), ..Prepared::default() }
    }

    /// The f32 values that `rows` rows of `inp` values take, their factors apart.
    pub(crate) fn values(rows: usize, inp: usize) -> usize {
        rows * spread(inp.next_multiple_of(2 * QUAD)) + LINE
    }

    /// The widths of what weights of these formats and widths take over one input: one form each,
    /// in order of their first weight.
    pub(crate) fn kinds(
        weights: impl Iterator<Item = (Format, usize)>,
    ) -> impl Iterator<Item = usize> {
        let mut kinds: Vec<(Layout, usize)> = Vec::new();
        for (format, inp) in weights {
            let kind = (Layout::of(format), inp);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds.into_iter().map(|(_, inp)| inp)
    }

    /// Prepares `input` for weights of `format`, the rows spread over the team.
    ///
    /// Panics when the input's sizes do not fit together: they are the caller's arithmetic.
    ///
    /// # Errors
    /// [`TeamError::Panicked`], as [`Team::each`].
    pub fn fill(
        &mut self,
        isa: Isa,
        team: &mut Team,
        input: &Input<'_>,
        format: Format,
    ) -> Result<(), TeamError> {
        let Input { x, stride, rows, inp, round } = *input;
        if let Some(last) = rows.checked_sub(1) {
            assert!(x.len() >= last * stride + inp, "{rows} rows of {inp} every {stride}");
        }
        self.layout = Layout::of(format);
        (self.inp, self.rows) = (inp, rows);
        self.width = self.layout.padded(inp);
        self.stride = spread(self.width);
        self.data.resize(rows * self.stride + LINE, 0.0);
        self.factor.resize(rows, 0.0);
        self.start = self.data.as_ptr().align_offset(LINE * size_of::<f32>()) % LINE;
        let data = &mut self.data[self.start..][..rows * self.stride];
        let (factor, pitch) = (&mut self.factor[..], self.stride);
        let job = Job { x, stride, inp, round, layout: self.layout, pitch };
        // Below this much work a fork costs more than it saves.
        let parts = if rows * inp < 4096 { 1 } else { team.threads().min(rows) };
        if parts <= 1 {
            isa.run(Fill { job, first: 0, data, factor });
            return Ok(());
        }
        let each = rows.div_ceil(parts);
        let chunks = data.chunks_mut(each * pitch).zip(factor.chunks_mut(each));
        // Each lock is taken once.
        let chunks: Vec<_> = chunks.map(Mutex::new).collect();
        team.each(chunks.len(), |_, index| {
            if let Ok(mut chunk) = chunks[index].lock() {
                let (data, factor) = &mut *chunk;
                isa.run(Fill { job, first: index * each, data, factor });
            }
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the rows are prepared for this weight's format and width.
    pub(crate) fn fits(&self, weight: &Weight<'_>) -> bool {
        self.layout == Layout::of(weight.format()) && self.inp == weight.inp()
    }

    /// The values of a row, whole blocks.
    #[inline]
    pub(super) fn row(&self, r: usize) -> &[f32] {
        &self.data[self.start + r * self.stride..][..self.width]
    }

    /// What the products of a row are multiplied by.
    #[inline]
    pub(super) fn factor(&self, r: usize) -> f32 {
        self.factor[r]
    }
}

/// What to prepare, and how.
#[derive(Clone, Copy)]
struct Job<'a> {
    x: &'a [f32],
    stride: usize,
    inp: usize,
    round: bool,
    layout: Layout,
    /// Distance of prepared rows, in f32.
    pitch: usize,
}

/// Prepares consecutive rows from `first` on.
struct Fill<'a> {
    job: Job<'a>,
    first: usize,
    data: &'a mut [f32],
    factor: &'a mut [f32],
}

impl Kernel for Fill<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Job { x, stride, inp, round, layout, pitch } = self.job;
        let width = layout.padded(inp);
        for (r, factor) in self.factor.iter_mut().enumerate() {
            let x = &x[(self.first + r) * stride..][..inp];
            let to = &mut self.data[r * pitch..][..width];
            if layout.is_quantised() {
                *factor = quantised_row(s, x, round, layout, to);
            } else {
                *factor = 1.0;
                for (from, to) in x.chunks(QUAD).zip(to.chunks_exact_mut(QUAD)) {
                    let part = |i: usize| &from[(i * LANES).min(from.len())..];
                    let (a, b) = (s.load_head(part(0)), s.load_head(part(1)));
                    let (c, d) = (s.load_head(part(2)), s.load_head(part(3)));
                    layout.place(s, &[a, b, c, d, a, b, c, d], to);
                }
            }
        }
    }
}

/// Prepares a row for quantised weights; gives the factor of its products.
#[inline(always)]
fn quantised_row<S: Simd>(s: S, x: &[f32], round: bool, layout: Layout, to: &mut [f32]) -> f32 {
    let top = max_of(s, x);
    if top.is_nan() || top.is_infinite() {
        to.fill(0.0);
        return f32::NAN;
    }
    let exponent = ((top.to_bits() >> 23) as i32 - 127).max(-6);
    let up = s.splat(power_of_two(120 - exponent));
    let block = layout.block();
    for (from, to) in x.chunks(block).zip(to.chunks_exact_mut(block)) {
        let (first, second) = from.split_at(QUAD);
        let [a, b, c, d] = scaled(s, first, round, up);
        let [e, f, g, h] = match second.is_empty() {
            true => [s.splat(0.0); 4],
            false => scaled(s, second, round, up),
        };
        let values = [a, b, c, d, e, f, g, h];
        layout.place(s, &values, to);
    }
    power_of_two(exponent)
}

/// A quad, rounded to e4m3 by its own scale where `round`, times `up`.
#[inline(always)]
fn scaled<S: Simd>(s: S, from: &[f32], round: bool, up: S::F) -> [S::F; 4] {
    let (a, b) = (s.load(from), s.load(&from[LANES..]));
    let (c, d) = (s.load(&from[2 * LANES..]), s.load(&from[3 * LANES..]));
    if !round {
        return [a * up, b * up, c * up, d * up];
    }
    let top = (a.abs().bits().max_signed(b.abs().bits()))
        .max_signed(c.abs().bits().max_signed(d.abs().bits()));
    let scale = quant::fp8_scale(f32::from_bits(s.max_bits(top)));
    let (down, scale) = (quant::e8m0_reciprocal(scale), fp8::e8m0(scale));
    let (down, scale) = (s.splat(down), s.splat(scale));
    [
        fp8::round(a * down) * scale * up,
        fp8::round(b * down) * scale * up,
        fp8::round(c * down) * scale * up,
        fp8::round(d * down) * scale * up,
    ]
}

/// 2^n for `n` in -126..=127.
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}
