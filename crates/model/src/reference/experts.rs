//! The mixture of experts (section 6).

use finback_ops::Scoring;

use super::linear::Linear;
use super::trace::LayerTrace;
use super::{Reference, dot, largest, sigmoid, softmax};

/// A router and its experts.
#[derive(Debug)]
pub(super) struct Ffn {
    /// `[experts][hidden]`.
    pub(super) gate: Vec<Vec<f64>>,
    /// `[experts]`.
    pub(super) bias: Vec<f64>,
    pub(super) experts: Vec<Expert>,
    /// Experts a row uses.
    pub(super) topk: usize,
    pub(super) shared: Expert,
}

#[derive(Debug)]
pub(super) struct Expert {
    pub(super) w1: Linear,
    pub(super) w2: Linear,
    pub(super) w3: Linear,
}

impl Reference {
    pub(super) fn moe(&self, ffn: &Ffn, x: &[f64], seen: &mut LayerTrace) -> Vec<f64> {
        let mut routed = self.route(ffn, x);
        routed.sort_by_key(|&(expert, _)| expert);
        let mut sum = vec![0.0; x.len()];
        for &(expert, weight) in &routed {
            add(&mut sum, &self.expert(&ffn.experts[expert], x, weight));
        }
        add(&mut sum, &self.expert(&ffn.shared, x, 1.0));
        seen.experts = routed.into_iter().map(|(expert, _)| expert).collect();
        self.store(sum)
    }

    /// The chosen experts and their weights.
    fn route(&self, ffn: &Ffn, x: &[f64]) -> Vec<(usize, f64)> {
        let c = &self.config;
        let logits: Vec<f64> = ffn.gate.iter().map(|row| dot(row, x) / c.gate_temp).collect();
        let scores: Vec<f64> = match c.scoring_func {
            Scoring::SqrtSoftplus => logits.iter().map(|&v| softplus(v).sqrt()).collect(),
            Scoring::Sigmoid => logits.iter().map(|&v| sigmoid(v)).collect(),
            Scoring::Softmax => softmax(&logits),
        };
        let biased: Vec<f64> = scores.iter().zip(&ffn.bias).map(|(s, b)| s + b).collect();
        let picked = largest(&biased, ffn.topk);
        // The weights are the scores without the bias.
        let sum: f64 = picked.iter().map(|&e| scores[e]).sum();
        let divisor = if c.norm_topk_prob && ffn.topk > 1 { sum + 1e-20 } else { 1.0 };
        picked.into_iter().map(|e| (e, scores[e] / divisor * c.routed_scaling_factor)).collect()
    }

    /// `w2(weight * silu(min(w1 x, limit)) * clamp(w3 x, limit))`.
    fn expert(&self, expert: &Expert, x: &[f64], weight: f64) -> Vec<f64> {
        let limit = match self.config.swiglu_limit {
            0.0 => f64::INFINITY,
            limit => limit,
        };
        let gate = self.linear(&expert.w1, x);
        let up = self.linear(&expert.w3, x);
        let hidden = gate.iter().zip(&up).map(|(&gate, &up)| {
            let gate = gate.min(limit);
            weight * (gate * sigmoid(gate) * up.clamp(-limit, limit))
        });
        self.linear(&expert.w2, &self.store(hidden.collect()))
    }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn add(sum: &mut [f64], x: &[f64]) {
    sum.iter_mut().zip(x).for_each(|(s, v)| *s += v);
}
