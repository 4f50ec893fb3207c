//! A reply as it grows: engine events in, protocol chunks out, and what it took.

use std::sync::{Arc, Mutex};

use deepseek_recipe::stream::{
    ChunkGenerator, FinishReason, InferenceChunk, InferenceFinishReason, InferenceTokenLogprob,
    ParsingOptions, PromptUsage, StreamError,
};
use finback_engine::{DraftCount, Event, Logprobs, Prefix, Timings};
use finback_tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::chat::Call;
use crate::parser::{Parser, Tally, Vocabulary, lock};
use crate::sha::TokenSha;

/// The release's token that ends reasoning.
const THINK_END: &str = "</think>";

/// How a reply stands after an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// More events come.
    Running,
    /// It is whole; the engine's reply can be dropped, even if it has not ended.
    Done,
    /// It cannot be finished; the text says why.
    Failed(String),
}

/// What is the same for every reply of a server.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) numerics: &'static str,
    pub(crate) fingerprint: String,
}

/// One reply of chunks `C`.
pub(crate) struct Reply<C> {
    setting: Setting,
    parser: Parser<C>,
    tally: Arc<Mutex<Tally>>,
    end_tokens: Vec<u32>,
    prompt_tokens: usize,
    think_end: Option<u32>,
    markup: bool,
    /// What the prompt said of the reply's first call, until the parser has heard it.
    opening: Option<String>,
    /// Bytes that the parser waits with, as they may be the start of a character.
    held: Vec<u8>,
    sha: TokenSha,
    /// What the prefix cache had of the prompt, once it has a slot.
    prefix: Option<Prefix>,
    cached_tokens: usize,
    /// Prompt tokens run or restored so far; `None` before it has a slot.
    prompt_done: Option<usize>,
    /// The engine's figures as of the last event that had some.
    timings: Timings,
}

impl<C: Send + 'static> Reply<C> {
    pub(crate) fn new(
        setting: &Setting,
        generator: impl ChunkGenerator<Chunk = C>,
        parsing: ParsingOptions,
        markup: bool,
        request: &finback_engine::Request,
        call: Option<Call>,
    ) -> Self {
        let in_reasoning = markup
            && parsing.thinking_initial_stage.is_some_and(|stage| stage.starts_in_reasoning());
        let tally = Arc::new(Mutex::new(Tally { in_reasoning, ..Tally::default() }));
        let (only, opening) = call.map(|Call { name, opening }| (name, opening)).unzip();
        let vocabulary = Vocabulary { tokenizer: Arc::clone(&setting.tokenizer), markup };
        Self {
            parser: Parser::new(generator, parsing, vocabulary, Arc::clone(&tally), only),
            opening,
            tally,
            end_tokens: request.end_tokens.clone(),
            prompt_tokens: request.prompt.len(),
            think_end: setting.tokenizer.special_id(THINK_END),
            markup,
            held: Vec::new(),
            sha: TokenSha::default(),
            prefix: None,
            cached_tokens: 0,
            prompt_done: None,
            timings: Timings::default(),
            setting: setting.clone(),
        }
    }

    /// Takes the next event; the chunks are what it adds to the reply.
    pub(crate) fn push(&mut self, event: Event) -> (Vec<C>, Progress) {
        let fed = match event {
            Event::Started { cached_tokens, prefix } => {
                self.prefix = prefix;
                self.start(cached_tokens)
            }
            Event::Prompt { done } => {
                self.prompt_done = Some(done);
                Ok(Vec::new())
            }
            Event::Token { id, logprobs, timings, .. } => {
                self.timings = timings;
                self.token(id, logprobs)
            }
            Event::Finished { reason, timings } => {
                self.timings = timings;
                self.finish(match reason {
                    finback_engine::FinishReason::Stop => InferenceFinishReason::Stop,
                    finback_engine::FinishReason::Length => InferenceFinishReason::Length,
                })
            }
            Event::Failed { message } => return (Vec::new(), Progress::Failed(message)),
            Event::PromptLogits { .. } => Ok(Vec::new()),
        };
        match fed {
            Ok(chunks) if self.parser.has_ended() => (chunks, Progress::Done),
            Ok(chunks) => (chunks, Progress::Running),
            Err(error) => (Vec::new(), Progress::Failed(error.to_string())),
        }
    }

    fn start(&mut self, cached_tokens: usize) -> Result<Vec<C>, StreamError> {
        self.cached_tokens = cached_tokens;
        self.prompt_done = Some(cached_tokens);
        self.parser.feed(InferenceChunk::Ready {
            system_fingerprint: Some(self.setting.fingerprint.clone()),
            prompt_usage: PromptUsage {
                prompt_tokens: self.prompt_tokens,
                prompt_cache_hit_tokens: cached_tokens,
            },
        })
    }

    fn token(&mut self, id: u32, logprobs: Option<Logprobs>) -> Result<Vec<C>, StreamError> {
        self.sha.push(id);
        let is_end = self.end_tokens.contains(&id);
        let mut tally = lock(&self.tally);
        tally.tokens += 1;
        tally.in_reasoning &= !is_end && Some(id) != self.think_end;
        tally.reasoning_tokens += usize::from(tally.in_reasoning);
        drop(tally);
        if is_end {
            // It says that the reply ends and is no part of its text.
            return Ok(Vec::new());
        }
        let mut chunks = match self.opening.take() {
            Some(content) => self.parser.feed(InferenceChunk::Text { content, token_count: 0 })?,
            None => Vec::new(),
        };
        self.hold(id);
        let logprobs = logprobs.map(|logprobs| {
            let Logprobs { own, top } = logprobs;
            vec![InferenceTokenLogprob { logprob: own, top_logprobs: top }]
        });
        chunks.extend(self.parser.feed(InferenceChunk::Tokens { token_ids: vec![id], logprobs })?);
        if lock(&self.tally).strayed {
            chunks.extend(self.finish(InferenceFinishReason::Stop)?);
        }
        Ok(chunks)
    }

    /// Follows the parser's rule for what it holds back, which it would drop at the end: plain
    /// tokens until their text is not empty and does not end in U+FFFD.
    fn hold(&mut self, id: u32) {
        let bytes = self.setting.tokenizer.bytes(id);
        if self.markup && self.setting.tokenizer.is_special(id) {
            self.held.clear();
            return;
        }
        self.held.extend_from_slice(bytes);
        let text = String::from_utf8_lossy(&self.held);
        if !text.ends_with(char::REPLACEMENT_CHARACTER) {
            self.held.clear();
        }
    }

    fn finish(&mut self, reason: InferenceFinishReason) -> Result<Vec<C>, StreamError> {
        let mut chunks = Vec::new();
        if !self.held.is_empty() {
            let content = String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned();
            chunks = self.parser.feed(InferenceChunk::Text { content, token_count: 0 })?;
        }
        chunks.extend(self.parser.feed(InferenceChunk::Finish { finish_reason: reason })?);
        Ok(chunks)
    }

    /// What the reply took so far.
    pub(crate) fn report(&self) -> Report {
        let tally = lock(&self.tally);
        Report {
            prompt_tokens: self.prompt_tokens,
            prompt_done: self.prompt_done,
            cached_tokens: self.cached_tokens,
            prefix: self.prefix.clone(),
            completion_tokens: tally.tokens,
            token_sha: self.sha.hex(),
            finish: tally.finish.map(finish_name),
            timings: self.timings,
            numerics: self.setting.numerics,
        }
    }
}

fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::StopSequence => "stop_string",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::EndOfStream => "end_of_stream",
    }
}

/// What a reply took.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Tokens of the prompt, restored ones among them.
    pub prompt_tokens: usize,
    /// Prompt tokens that were restored instead of run.
    pub cached_tokens: usize,
    /// What the prefix cache had of the prompt; `None` where it was not asked.
    pub prefix: Option<Prefix>,
    /// Prompt tokens run or restored so far; `None` before the request has a slot.
    pub prompt_done: Option<usize>,
    /// Reply tokens, the end token among them.
    pub completion_tokens: usize,
    /// SHA-256 over the reply's ids as little-endian `u32`, in hex.
    pub token_sha: String,
    /// `stop`, `length`, `tool_calls` or `stop_string`; `None` where it did not end by itself.
    pub finish: Option<&'static str>,
    /// Wall time by phase, and counts.
    pub timings: Timings,
    /// The numerics mode that ran.
    pub numerics: &'static str,
}

impl Report {
    /// Prompt tokens run a second; `None` where none ran or no time passed.
    #[must_use]
    pub fn prompt_rate(&self) -> Option<f64> {
        rate(self.timings.prompt_tokens, self.timings.prompt_s)
    }

    /// Tokens after the first, a second; `None` where there is no second one.
    #[must_use]
    pub fn decode_rate(&self) -> Option<f64> {
        rate(self.completion_tokens.saturating_sub(1), self.timings.decode_s)
    }

    /// The `finback` object of a reply that is on its way.
    #[must_use]
    pub fn progress(&self) -> Value {
        let phase = match (self.prompt_done, self.completion_tokens) {
            (None, _) => "queue",
            (_, 0) => "prompt",
            _ => "reply",
        };
        json!({
            "phase": phase,
            "prompt_tokens": self.prompt_tokens,
            "prompt_done": self.prompt_done.unwrap_or(0),
            "completion_tokens": self.completion_tokens,
        })
    }

    /// The `finback` object of a reply.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Timings { queue_s, prompt_s, decode_s, rounds, drafted, accepted, drafts, .. } =
            self.timings;
        let places: Vec<Value> = drafts
            .iter()
            .take_while(|place| place.offered > 0)
            .map(|&DraftCount { offered, accepted }| {
                json!({"offered": offered, "accepted": accepted})
            })
            .collect();
        json!({
            "token_sha": self.token_sha,
            "cached_tokens": self.cached_tokens,
            "cache": self.prefix.as_ref().map(|Prefix { restored, matched, kept }| {
                json!({"restored": restored, "matched": matched, "kept": kept})
            }),
            "rounds": rounds,
            "drafts": {"offered": drafted, "accepted": accepted, "by_position": places},
            "numerics": self.numerics,
            "timings": {
                "queue_s": queue_s,
                "prompt_s": prompt_s,
                "decode_s": decode_s,
                "prompt_tokens_per_s": self.prompt_rate(),
                "decode_tokens_per_s": self.decode_rate(),
            },
        })
    }
}

fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}
