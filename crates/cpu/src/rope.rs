//! Rotary angles of a batch's rows (model-spec section 5), made on the host before a pass.

use finback_numerics::bf16;
use finback_ops::{Dims, Numerics, Yarn};

/// Frequencies of the rotated pairs, for one base.
pub struct Frequencies {
    pairs: Vec<f64>,
    /// Angles are the f32 product of position and frequency, as the release computes them.
    single: bool,
}

impl Frequencies {
    /// Of layers whose ratio is 0, and of the drafter.
    pub fn window(dims: &Dims, numerics: Numerics) -> Self {
        Self::new(dims.theta, dims.rope_dim, None, numerics)
    }

    /// Of layers whose ratio is above 0.
    pub fn compressed(dims: &Dims, numerics: Numerics) -> Self {
        Self::new(dims.compress_theta, dims.rope_dim, dims.yarn, numerics)
    }

    fn new(base: f64, rope_dim: usize, yarn: Option<Yarn>, numerics: Numerics) -> Self {
        let single = numerics.rope_f32;
        let to = |x: f64| if single { f64::from(x as f32) } else { x };
        let stretch = yarn.map(|y| (y, ramp(base, rope_dim, &y)));
        let pairs = (0..rope_dim / 2)
            .map(|i| {
                let exponent = to((2 * i) as f64 / rope_dim as f64);
                let frequency = to(1.0 / to(base.powf(exponent)));
                let Some((yarn, (low, high))) = stretch else { return frequency };
                let share = to(((i as f64 - low) / (high - low).max(1e-3)).clamp(0.0, 1.0));
                let slow = to(to(frequency / yarn.factor) * share);
                to(slow + to(frequency * to(1.0 - share)))
            })
            .collect();
        Self { pairs, single }
    }

    /// Writes cos and sin of every pair at a position.
    pub fn write(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((frequency, c), s) in self.pairs.iter().zip(cos).zip(sin) {
            let angle = if self.single {
                f64::from(position as f32 * *frequency as f32)
            } else {
                position as f64 * frequency
            };
            *c = angle.cos() as f32;
            *s = angle.sin() as f32;
        }
    }
}

/// The pairs between which YaRN's share of the stretch rises from 0 to 1.
fn ramp(base: f64, rope_dim: usize, yarn: &Yarn) -> (f64, f64) {
    let turn = |n: f64| {
        rope_dim as f64 * (yarn.original / (n * 2.0 * std::f64::consts::PI)).ln()
            / (2.0 * base.ln())
    };
    let low = turn(yarn.beta_fast).floor().max(0.0);
    let high = turn(yarn.beta_slow).ceil().min(rope_dim as f64 - 1.0);
    (low, high)
}

/// Cos and sin for the rows of a batch, `[rows, rope_dim / 2]` each.
pub struct Angles {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Angles {
    /// Room for `rows` rows.
    pub fn new(rows: usize, rope_dim: usize) -> Self {
        let half = rope_dim / 2;
        Self { half, cos: vec![0.0; rows * half], sin: vec![0.0; rows * half] }
    }

    /// Sets a row's position.
    pub fn set(&mut self, row: usize, position: usize, frequencies: &Frequencies) {
        let at = row * self.half..(row + 1) * self.half;
        frequencies.write(position, &mut self.cos[at.clone()], &mut self.sin[at]);
    }

    /// Rotates the last channels of each of a row's vectors of `dim` channels.
    pub fn rotate(&self, row: usize, vectors: &mut [f32], dim: usize, turn: Turn) {
        let at = row * self.half..(row + 1) * self.half;
        for vector in vectors.chunks_exact_mut(dim) {
            rotate(vector, &self.cos[at.clone()], &self.sin[at.clone()], turn);
        }
    }
}

/// How a rotation goes.
#[derive(Debug, Clone, Copy)]
pub struct Turn {
    /// Back instead of forth.
    pub inverse: bool,
    /// Rounds what it changes to bf16.
    pub round: bool,
}

/// Rotates the adjacent pairs of the last `2 * cos.len()` channels.
pub fn rotate(vector: &mut [f32], cos: &[f32], sin: &[f32], turn: Turn) {
    let start = vector.len() - 2 * cos.len();
    let stored = |x: f32| if turn.round { bf16::round(x) } else { x };
    for ((pair, &c), &s) in vector[start..].as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
        let s = if turn.inverse { -s } else { s };
        let [even, odd] = *pair;
        *pair = [stored(even * c - odd * s), stored(even * s + odd * c)];
    }
}
