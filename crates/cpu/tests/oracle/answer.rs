//! What the oracle makes of a text.

use finback_model::reference::{Reference, State};

use crate::Where;

pub struct Answer {
    /// Logits by position.
    rows: Vec<Vec<f64>>,
    /// Logits of each draft, with its confidence behind them.
    pub draft: Vec<Vec<f64>>,
}

impl Answer {
    pub fn of(oracle: &Reference, ids: &[u32], anchor: u32) -> Self {
        let mut state = State::default();
        let rows = oracle.forward(&mut state, ids);
        let mut draft = Vec::new();
        if let Some(round) = oracle.draft(&state, anchor) {
            for (mut row, confidence) in round.logits.into_iter().zip(round.confidence) {
                row.push(confidence);
                draft.push(row);
            }
        }
        Self { rows, draft }
    }

    pub fn at(&self, at: Where) -> &[f64] {
        match at {
            Where::Row(position) => &self.rows[position],
            Where::Draft(i) => &self.draft[i],
        }
    }
}

/// The largest difference.
pub fn far(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}
