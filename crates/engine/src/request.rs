//! What the engine takes and gives: a typed request, and the events of its reply.

use finback_ops::Sampling;

/// A request whose prompt is already token ids.
#[derive(Debug, Clone)]
pub struct Request {
    /// Prompt ids, not empty.
    pub prompt: Vec<u32>,
    /// Reply tokens at most, at least 1.
    pub max_tokens: usize,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Ids that end the reply when chosen (they count as reply tokens); empty under `ignore_eos`.
    pub end_tokens: Vec<u32>,
    /// Whether each token's logit row is sent with it.
    pub logits: bool,
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
            end_tokens: Vec::new(),
            logits: false,
            prompt_logits: 0,
        }
    }
}

/// What happens to a request, in order: `Started`, `PromptLogits` where asked for, `Token`s, then
/// one `Finished` or `Failed`.
#[derive(Debug, Clone)]
pub enum Event {
    /// The request has a slot and its prompt begins to run.
    Started {
        /// Prompt tokens that were restored instead of run.
        cached_tokens: usize,
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

/// Why a reply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// An end token was chosen.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
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
