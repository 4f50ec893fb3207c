//! Linear maps in float64.

use super::{Reference, dot, number};

/// `[out][in]`, lifted from its stored codes.
#[derive(Debug)]
pub(super) struct Linear {
    pub(super) rows: Vec<Vec<f64>>,
    /// Whether its weight is stored as FP8 or FP4, so that release numerics round its input.
    pub(super) quantised: bool,
}

impl Linear {
    /// `W x` with nothing rounded.
    pub(super) fn exact(&self, x: &[f64]) -> Vec<f64> {
        self.rows.iter().map(|row| dot(row, x)).collect()
    }
}

impl Reference {
    /// `W x` as the model's numerics have it: input and output rounded where they say so.
    pub(super) fn linear(&self, w: &Linear, x: &[f64]) -> Vec<f64> {
        self.store(self.linear_f32(w, x))
    }

    /// [`Reference::linear`] with the output as the release keeps it in f32: not rounded.
    pub(super) fn linear_f32(&self, w: &Linear, x: &[f64]) -> Vec<f64> {
        if w.quantised && self.numerics.round_inputs {
            w.exact(&number::fp8_block32(x))
        } else {
            w.exact(x)
        }
    }
}
