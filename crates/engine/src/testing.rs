//! A runner without a model: its tokens are a function of what its slot has run.
//!
//! [`FakeRunner`] holds callers to the order of calls that [`finback_model::Runner`] asks for, and
//! its choices depend on every row a slot has kept: one wrong row shows as a wrong token.
//! [`serial_reply`] says what a request must be answered, without an engine. [`reread_prefix`] reads any
//! bytes as a file of the disk tier.

mod fake;

use std::sync::Arc;

use finback_ops::Sampling;

pub use fake::{Call, FakeRunner};

pub use crate::cache::reread_prefix;
use crate::request::{FinishReason, Request};

/// The token after `history`, or `None` for a row of NaN. It may block or panic to stage a fault.
pub type NextToken = Arc<dyn Fn(&[u32], &Sampling) -> Option<u32> + Send + Sync>;

/// A token below `vocab` that depends on the whole history, and on the seed where one is used.
#[must_use]
pub fn hashed(vocab: usize) -> NextToken {
    Arc::new(move |history, sampling| {
        let seed = if sampling.temperature == 0.0 { 0 } else { sampling.seed };
        Some((mix(history, seed) % vocab as u64) as u32)
    })
}

/// The tokens of `script` in turn, whatever the prompt of `prompt_tokens` was; `last` after them.
#[must_use]
pub fn scripted(prompt_tokens: usize, script: Vec<u32>, last: u32) -> NextToken {
    Arc::new(move |history, _| {
        Some(script.get(history.len() - prompt_tokens).copied().unwrap_or(last))
    })
}

/// The reply that `request` must get from a runner with `next` and `context` positions: its tokens
/// and why it ends, or `None` instead of the reason where a row of NaN ends it.
#[must_use]
pub fn serial_reply(
    next: &NextToken,
    context: usize,
    request: &Request,
) -> (Vec<u32>, Option<FinishReason>) {
    let limit = request.max_tokens.min(context - request.prompt.len());
    let mut history = request.prompt.clone();
    let said = |history: &[u32]| history[request.prompt.len()..].to_vec();
    for _ in 0..limit {
        let Some(token) = next(&history, &request.sampling) else { return (said(&history), None) };
        let reply = said(&history);
        let count = |id| reply.iter().filter(|&&said| said == id).count() as f32;
        let mut adds = request.bias.clone();
        for id in 0..=reply.iter().copied().max().unwrap_or(0) {
            let penalties = request.penalties;
            if count(id) > 0.0 && !penalties.is_none() {
                adds.push((id, -penalties.presence - penalties.frequency * count(id)));
            }
        }
        let token = adjusted(token, &adds);
        history.push(token);
        if request.end_tokens.contains(&token) {
            return (said(&history), Some(FinishReason::Stop));
        }
    }
    (said(&history), Some(FinishReason::Length))
}

/// The choice among `token`, whose logit is 1, and what `adds` names, whose logits are 0 but for what
/// is added: the largest, ties to the lowest id.
fn adjusted(token: u32, adds: &[(u32, f32)]) -> u32 {
    let value = |id: u32| {
        let own = if id == token { 1.0 } else { 0.0 };
        own + adds.iter().filter(|add| add.0 == id).map(|add| add.1).sum::<f32>()
    };
    let mut ids: Vec<u32> = adds.iter().map(|add| add.0).chain([token]).collect();
    ids.sort_unstable();
    let larger = |best, id| if value(id) > value(best) { id } else { best };
    ids.into_iter().reduce(larger).unwrap_or(token)
}

/// FNV-1a over the ids, then a finalizer so that low bits depend on all of them.
fn mix(ids: &[u32], seed: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for &id in ids {
        hash = (hash ^ u64::from(id)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}
