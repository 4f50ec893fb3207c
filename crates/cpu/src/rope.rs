//! Rotary angles of a batch's rows (model-spec section 5), made on the host before a pass.

use finback_numerics::bf16;
use finback_ops::Frequencies;

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
