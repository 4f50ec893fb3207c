//! Rotary position encoding (section 5).

use std::f64::consts::PI;

use super::Reference;

impl Reference {
    /// Rotates adjacent pairs of the last channels of `x` by `position`'s angles.
    pub(super) fn rope(&self, x: &[f64], position: usize, ratio: usize) -> Vec<f64> {
        self.rotate(x, position, ratio, 1.0)
    }

    /// Rotates back.
    pub(super) fn unrope(&self, x: &[f64], position: usize, ratio: usize) -> Vec<f64> {
        self.rotate(x, position, ratio, -1.0)
    }

    fn rotate(&self, x: &[f64], position: usize, ratio: usize, direction: f64) -> Vec<f64> {
        let mut out = x.to_vec();
        let first = x.len() - self.config.qk_rope_head_dim;
        for (pair, frequency) in self.frequencies(ratio).into_iter().enumerate() {
            let (mut sin, mut cos) = (direction * self.angle(position, frequency)).sin_cos();
            if self.numerics.rope_f32 {
                (sin, cos) = (f64::from(sin as f32), f64::from(cos as f32));
            }
            let even = first + 2 * pair;
            out[even] = x[even] * cos - x[even + 1] * sin;
            out[even + 1] = x[even] * sin + x[even + 1] * cos;
        }
        self.store(out)
    }

    /// The release multiplies in f32.
    fn angle(&self, position: usize, frequency: f64) -> f64 {
        if self.numerics.rope_f32 {
            f64::from(position as f32 * frequency as f32)
        } else {
            position as f64 * frequency
        }
    }

    /// Radians a position, by pair. With a ratio above 0: another base, and YaRN.
    fn frequencies(&self, ratio: usize) -> Vec<f64> {
        let c = &self.config;
        let base = if ratio > 0 { c.compress_rope_theta } else { c.rope_theta };
        let plain = (0..c.qk_rope_head_dim / 2).map(|pair| self.frequency(base, pair));
        let Some(yarn) = c.rope_scaling.filter(|_| ratio > 0) else { return plain.collect() };
        let dim = c.qk_rope_head_dim as f64;
        // The pair that turns this often over the original context.
        let pair_of =
            |turns: f64| dim * (yarn.original / (turns * 2.0 * PI)).ln() / (2.0 * base.ln());
        let low = pair_of(yarn.beta_fast).floor().max(0.0);
        let high = pair_of(yarn.beta_slow).ceil().min(dim - 1.0);
        plain
            .enumerate()
            .map(|(pair, f)| {
                let ramp = ((pair as f64 - low) / (high - low).max(1e-3)).clamp(0.0, 1.0);
                if self.numerics.rope_f32 {
                    let (f, ramp) = (f as f32, ramp as f32);
                    f64::from(f / yarn.factor as f32 * ramp + f * (1.0 - ramp))
                } else {
                    f / yarn.factor * ramp + f * (1.0 - ramp)
                }
            })
            .collect()
    }

    /// `base^(-2 pair / rope_dim)`.
    fn frequency(&self, base: f64, pair: usize) -> f64 {
        let exponent = 2.0 * pair as f64 / self.config.qk_rope_head_dim as f64;
        if self.numerics.rope_f32 {
            let power = base.powf(f64::from(exponent as f32)) as f32;
            f64::from(1.0 / power)
        } else {
            1.0 / base.powf(exponent)
        }
    }
}
