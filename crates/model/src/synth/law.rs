//! How each weight is distributed.
//!
//! Outputs of a layer are small beside the stream, as in a trained model: with larger ones the
//! roundings and top-k choices would amplify any difference into large logit changes.

use crate::config::Config;
use crate::names::Weight;

/// A normal distribution for each value of a weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Law {
    /// Mean of every value.
    pub mean: f32,
    /// Standard deviation, where [`Law::spread`] does not say otherwise.
    pub std: f32,
    /// How the deviation goes over the values.
    pub spread: Spread,
}

/// Where a weight's values differ in deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Spread {
    /// Nowhere.
    Even,
    /// Rows of so many values; one in 64 is nearly silent, so that the size of rms_norm_eps shows.
    QuietRows(usize),
    /// The first so many values, then the rest at five times the deviation: wide mixing logits let
    /// Sinkhorn converge slowly, so that its iteration count shows.
    WideAfter(usize),
}

impl Law {
    /// The deviation of value `at`.
    pub(super) fn std_at(&self, at: usize) -> f32 {
        match self.spread {
            Spread::QuietRows(width) if at / width % 64 == 7 => self.std / 4096.0,
            Spread::WideAfter(first) if at >= first => 5.0 * self.std,
            _ => self.std,
        }
    }
}

/// The law of a weight.
pub(super) fn of(weight: &Weight, config: &Config) -> Law {
    let inputs = weight.shape.last().copied().unwrap_or(1) as f32;
    let normal = |mean, std| Law { mean, std, spread: Spread::Even };
    // A gain of 1 keeps the size of what goes through.
    let gain = |gain: f32| normal(0.0, gain / inputs.sqrt());
    match tail(&weight.name) {
        "embed.weight" => Law { spread: Spread::QuietRows(config.hidden_size), ..normal(0.0, 1.0) },
        "head.weight" => gain(3.0),
        "attn.wq_b.weight" => gain(1.5),
        "attn.wo_b.weight" => gain(0.3),
        "attn.attn_sink" | "engram.embed.weight" | "markov_head.embed.weight" => normal(0.0, 1.0),
        "engram.wkv.weight" => gain(0.5),
        "engram.q_weight" | "engram.k_weight" => normal(1.0, 0.5),
        "markov_head.head.weight" => gain(1.5),
        "hc_attn_base" | "hc_ffn_base" => {
            Law { spread: Spread::WideAfter(2 * config.hc_mult), ..normal(0.0, 0.5) }
        }
        "hc_attn_scale" | "hc_ffn_scale" => normal(1.0, 0.2),
        "ffn.gate.weight" => gain(2.0),
        "ffn.gate.bias" | "ffn.gate.bias_vl" => normal(0.0, 0.3),
        "ffn.shared_experts.w2.weight" => gain(0.03),
        "ffn.shared_experts.w1.weight" | "ffn.shared_experts.w3.weight" => gain(4.0),
        name if name.ends_with("norm.weight") => normal(1.0, 0.1),
        name => match name.strip_prefix("ffn.experts.").and_then(|rest| rest.split_once('.')) {
            Some((expert, matrix)) => gain(expert_gain(expert, matrix)),
            None => gain(1.0),
        },
    }
}

/// Every third expert is large enough to reach the SwiGLU clamp.
fn expert_gain(expert: &str, matrix: &str) -> f32 {
    let hot = if expert.parse::<usize>().is_ok_and(|e| e % 3 == 0) { 4.0 } else { 1.0 };
    if matrix == "w2.weight" { 0.2 / (hot * hot) } else { hot }
}

/// A name without its layer.
fn tail(name: &str) -> &str {
    let layer = name.strip_prefix("layers.").or_else(|| name.strip_prefix("mtp."));
    layer.and_then(|rest| rest.split_once('.')).map_or(name, |(_, tail)| tail)
}
