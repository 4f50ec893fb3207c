//! Rotary angles, made on the host before a pass (model-spec section 5).

use crate::spec::{Dims, Numerics, Yarn};

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
