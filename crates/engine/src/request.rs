//! What the engine takes and gives: a typed request, and the events of its reply.

use finback_model::WINDOW_ROWS;
use finback_ops::{Penalties, Sampling};

use crate::cache::Prefix;

/// A request whose prompt is already token ids.
#[derive(Debug, Clone)]
pub struct Request {
    /// Prompt ids, not empty.
    pub prompt: Vec<u32>,
    /// Reply tokens at most, at least 1.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// What reply tokens that were said lose; the prompt's tokens lose nothing.
    pub penalties: Penalties,
    /// What is added to logits: ids below the vocabulary, each once, and finite numbers.
    pub bias: Vec<(u32, f32)>,
    /// Ids that end the reply when chosen (they count as reply tokens); empty under `ignore_eos`.
    pub end_tokens: Vec<u32>,
    /// Whether each token's logit row is sent with it.
    pub logits: bool,
    /// With each token its log-probability and, this many, the likeliest tokens'.
    pub logprobs: Option<usize>,
    /// Whether its rounds may carry drafts. The reply is the same.
    pub drafts: bool,
    /// Whether it may start from kept prefixes and be kept itself. The reply is the same.
    pub cache: bool,
    /// Places in the prompt, ascending, at which a later prompt is likely to part from it; states
    /// there are kept.
    pub marks: Vec<usize>,
    /// Logit rows of the prompt's end to send before the first token, at most the runner's
    /// `window_rows`; 0, the usual, sends none.
    pub prompt_logits: usize,
}

impl Request {
    /// A greedy request that nothing but its length ends.
    #[must_use]
    pub fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Self {
        Self {
            prompt,
            max_tokens,
            sampling: Sampling::GREEDY,
            penalties: Penalties::default(),
            bias: Vec::new(),
            end_tokens: Vec::new(),
            logits: false,
            logprobs: None,
            drafts: true,
            cache: true,
            marks: Vec::new(),
            prompt_logits: 0,
        }
    }
}

/// What happens to a request, in order: `Started`, a `Prompt` for each piece, `PromptLogits` where asked
/// for, `Token`s, then one `Finished` or `Failed`.
#[derive(Debug, Clone)]
pub enum Event {
    /// The request has a slot and its prompt begins to run.
    Started {
        /// Prompt tokens that were restored instead of run.
        cached_tokens: usize,
        /// What the prefix cache knew of the prompt; `None` where it was not asked.
        prefix: Option<Prefix>,
    },
    /// A piece of the prompt has run.
    Prompt {
        /// Prompt tokens run or restored so far.
        done: usize,
    },
    /// The logit rows of the prompt's end, where the request asked for them.
    PromptLogits {
        /// Rows `[vocab]` of the last positions, in order; as many as asked for or as the prompt
        /// has. The first token is chosen from the last of them.
        rows: Vec<Vec<f32>>,
    },
    /// One reply token.
    Token {
        /// Its id.
        id: u32,
        /// The logit row it was chosen from, where the request asked for it.
        logits: Option<Vec<f32>>,
        /// Its log-probability, where the request asked for it.
        logprobs: Option<Logprobs>,
        /// What the request took up to this token.
        timings: Timings,
    },
    /// The reply is whole.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// What it took.
        timings: Timings,
    },
    /// The request ended without a whole reply; the text says why.
    Failed {
        /// One line for the user.
        message: String,
    },
}

/// Log-probabilities of the model's own distribution: temperature 1, no filter, nothing added.
#[derive(Debug, Clone, PartialEq)]
pub struct Logprobs {
    /// The chosen token's.
    pub own: f32,
    /// The likeliest tokens, likeliest first, ties by rising id; as many as asked for.
    pub top: Vec<(u32, f32)>,
}

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token was chosen.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
}

/// Drafts one window can have.
pub const DRAFT_POSITIONS: usize = WINDOW_ROWS - 1;

/// Drafts at one place of the windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DraftCount {
    /// Offered to verification.
    pub offered: u64,
    /// Accepted.
    pub accepted: u64,
}

/// Wall time of a request's phases, in seconds, and its counts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Timings {
    /// Waiting for a slot.
    pub queue_s: f64,
    /// Running the prompt, to the first choice.
    pub prompt_s: f64,
    /// From the first token to the last.
    pub decode_s: f64,
    /// Prompt tokens that were run.
    pub prompt_tokens: usize,
    /// Rounds after the prompt.
    pub rounds: usize,
    /// Drafts offered to verification.
    pub drafted: usize,
    /// Drafts accepted.
    pub accepted: usize,
    /// Both by the draft's place in its window.
    pub drafts: [DraftCount; DRAFT_POSITIONS],
}

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The prompt has no token.
    #[error("the prompt is empty; at least 1 token is needed")]
    EmptyPrompt,
    /// A prompt id outside the vocabulary.
    #[error("prompt token id {id} at index {index} is outside the vocabulary of {vocab}")]
    NoSuchToken {
        /// The id.
        id: u32,
        /// Its index in the prompt.
        index: usize,
        /// Ids there are.
        vocab: usize,
    },
    /// A bias for an id outside the vocabulary.
    #[error("logit_bias names token {id}, which is outside the vocabulary of {vocab}")]
    NoSuchBias {
        /// The id.
        id: u32,
        /// Ids there are.
        vocab: usize,
    },
    /// As many requests wait as may.
    #[error(
        "the queue is full: {running} requests run and {waiting} wait, accepted are {parallel} \
         (--parallel) and {queue} more (--queue)"
    )]
    Full {
        /// Requests that have a slot.
        running: usize,
        /// Requests that wait for a slot, or for blocks of the pool.
        waiting: usize,
        /// Slots.
        parallel: usize,
        /// How many more than that may be inside.
        queue: usize,
    },
    /// `max_tokens` of 0.
    #[error("max_tokens is 0; at least 1 is needed")]
    NoTokens,
    /// Prompt and reply exceed what a stream can hold.
    #[error(
        "this server's maximum context length is {context} tokens; the prompt has {prompt} and \
         leaves no room for a reply"
    )]
    Context {
        /// Positions a stream can hold.
        context: usize,
        /// Prompt tokens.
        prompt: usize,
    },
    /// More logit rows of the prompt than a window has.
    #[error("{found} logit rows of the prompt were asked for, accepted are 0 to {limit}")]
    PromptLogits {
        /// Rows asked for.
        found: usize,
        /// The most there can be.
        limit: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
}
