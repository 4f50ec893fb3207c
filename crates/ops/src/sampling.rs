//! How the token of a logit row is chosen: the parameters that cross the device boundary.

/// Parameters of one row's choice.
///
/// Filters apply in this order: temperature, `top_k`, `top_p`, `min_p`. A token's draw is keyed by
/// (`seed`, position, token id), so the choice depends on nothing that ran beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy (the largest logit, ties to the lowest id).
    pub temperature: f32,
    /// Keeps the `top_k` largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of largest probabilities whose sum reaches `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens whose probability is at least `min_p` times the largest; 0 keeps all.
    pub min_p: f32,
    /// Keys the draw.
    pub seed: u64,
}

impl Sampling {
    /// The largest logit, ties to the lowest id.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };
}
