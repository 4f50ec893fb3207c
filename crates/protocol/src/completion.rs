//! Plain completions: a prompt as text or token ids, and the reply's legacy form.

use std::time::{SystemTime, UNIX_EPOCH};

use deepseek_recipe::response::{Accumulate, ProtocolResponse};
use deepseek_recipe::stream::{
    ChunkGenerator, CompletionUsage, FinishReason, OutputChunk, ParsingOptions, PromptUsage,
    ThinkingInitialStage, TokenLogprob,
};
use finback_tokenizer::Tokenizer;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Error;
use crate::body::{Body, Neutral, is_zero};
use crate::error::check_length;
use crate::params::{MOST_LOGPROBS, Params};

const UNSUPPORTED: &[Neutral] = &[
    // Chat's field: here `logprobs` is the count itself.
    ("top_logprobs", "0, with the count in logprobs", is_zero),
];

/// A completion request with its prompt.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) prompt: Vec<u32>,
    pub(crate) params: Params,
}

impl Completion {
    pub(crate) fn convert(
        mut body: Body,
        context: usize,
        tokenizer: &Tokenizer,
    ) -> Result<Self, Error> {
        let mut params = Params::take(&mut body)?;
        params.logprobs = match body.take("logprobs") {
            // Some clients send what chat has.
            None | Some(Value::Bool(false)) => None,
            Some(value) => {
                Some(value.as_u64().filter(|count| (0..=MOST_LOGPROBS).contains(count)).ok_or_else(
                    || Error::value("logprobs", &value, "a whole number from 0 to 20"),
                )? as usize)
            }
        };
        body.refuse(UNSUPPORTED)?;
        let prompt = prompt(body.take("prompt"), context, tokenizer)?;
        Ok(Self { prompt, params })
    }

    /// Every token is text; only stop strings mean something.
    pub(crate) fn parsing(stop: &[String]) -> ParsingOptions {
        ParsingOptions {
            parse_tool_calls: false,
            // The stage that keeps leading newlines.
            thinking_initial_stage: Some(ThinkingInitialStage::ContentContinuation),
            stop_sequences: stop.to_vec(),
            ..ParsingOptions::default()
        }
    }
}

/// The prompt's ids. Its author writes it whole, so spellings of special tokens are meant.
fn prompt(value: Option<Value>, context: usize, tokenizer: &Tokenizer) -> Result<Vec<u32>, Error> {
    const ACCEPTED: &str = "a text, a list of token ids, or a list of one of these";
    let Some(value) = value else {
        return Err(Error::Missing { field: "prompt", accepted: ACCEPTED });
    };
    let (field, one) = match &value {
        Value::Array(items) if items.len() == 1 && !items[0].is_number() => {
            ("prompt[0]", &items[0])
        }
        other => ("prompt", other),
    };
    match one {
        Value::String(text) => {
            check_length(text, context, tokenizer)?;
            Ok(tokenizer.encode(text, &tokenizer.special_ranges(text))?)
        }
        Value::Array(ids) => ids
            .iter()
            .enumerate()
            .map(|(index, id)| {
                id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
                    Error::value(
                        format!("{field}[{index}]"),
                        id,
                        if ids.len() > 1 && !id.is_number() {
                            "a token id; a request has one prompt"
                        } else {
                            "a token id, a whole number from 0 to 4294967295"
                        },
                    )
                })
            })
            .collect(),
        other => Err(Error::value(field, other, ACCEPTED)),
    }
}

/// A whole `text_completion`.
#[derive(Debug, Serialize)]
pub(crate) struct CompletionResponse {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    choices: [Choice; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Value>>,
    system_fingerprint: Option<String>,
}

#[derive(Debug, Serialize)]
struct Choice {
    index: u32,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
}

/// Log-probabilities in the legacy form: lists side by side, one entry a token.
#[derive(Debug, Default, Serialize)]
struct CompletionLogprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<f32>,
    /// The likeliest tokens and the chosen one.
    top_logprobs: Vec<Map<String, Value>>,
    /// Characters of the reply before each token.
    text_offset: Vec<usize>,
}

impl CompletionLogprobs {
    fn new(tokens: &[TokenLogprob], mut offset: usize) -> Self {
        let mut lists = Self::default();
        for TokenLogprob { token, logprob, bytes, top_logprobs } in tokens {
            let top = top_logprobs.iter().map(|top| (&top.token, top.logprob));
            let top = top.chain([(token, *logprob)]);
            lists.top_logprobs.push(top.map(|(token, p)| (token.clone(), p.into())).collect());
            lists.tokens.push(token.clone());
            lists.token_logprobs.push(*logprob);
            lists.text_offset.push(offset);
            // A character counts at its first byte: a token may hold only a part of it.
            offset += bytes.iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
        }
        lists
    }

    fn extend(&mut self, next: Self) {
        self.tokens.extend(next.tokens);
        self.token_logprobs.extend(next.token_logprobs);
        self.top_logprobs.extend(next.top_logprobs);
        self.text_offset.extend(next.text_offset);
    }
}

impl ProtocolResponse for CompletionResponse {
    type ChunkGenerator = CompletionChunks;

    fn new(id: String, model: String, created: u64, _: usize, _: usize) -> Self {
        Self {
            id,
            object: "text_completion",
            created,
            model,
            choices: [Choice {
                index: 0,
                text: String::new(),
                logprobs: None,
                finish_reason: None,
            }],
            usage: None,
            system_fingerprint: None,
        }
    }
}

/// A chunk of a streamed completion has the form of a whole one.
impl Accumulate<Self> for CompletionResponse {
    fn accumulate(&mut self, chunk: Self) {
        let ([choice], [delta]) = (&mut self.choices, chunk.choices);
        choice.text.push_str(&delta.text);
        if let Some(next) = delta.logprobs {
            choice.logprobs.get_or_insert_default().extend(next);
        }
        choice.finish_reason = delta.finish_reason.or(choice.finish_reason);
        self.usage = chunk.usage.or(self.usage.take());
        self.system_fingerprint = chunk.system_fingerprint.or(self.system_fingerprint.take());
    }
}

/// Makes the chunks of a completion.
#[derive(Debug)]
pub(crate) struct CompletionChunks {
    id: String,
    model: String,
    created: u64,
    /// Whether chunks before the last say that they have no usage.
    null_usage: bool,
    prompt: PromptUsage,
    fingerprint: Option<String>,
    /// Characters of the reply so far.
    chars: usize,
}

impl CompletionChunks {
    pub(crate) fn new(id: String, model: String, null_usage: bool) -> Self {
        Self {
            id,
            model,
            created: unix_time(),
            null_usage,
            prompt: PromptUsage::default(),
            fingerprint: None,
            chars: 0,
        }
    }

    fn chunk(&self, text: String, finish: Option<(&'static str, Value)>) -> CompletionResponse {
        let (finish_reason, usage) = finish.unzip();
        let mut chunk =
            CompletionResponse::new(self.id.clone(), self.model.clone(), self.created, 0, 0);
        let [choice] = &mut chunk.choices;
        choice.text = text;
        choice.finish_reason = finish_reason;
        chunk.usage = if usage.is_some() || self.null_usage { Some(usage) } else { None };
        chunk.system_fingerprint.clone_from(&self.fingerprint);
        chunk
    }
}

impl ChunkGenerator for CompletionChunks {
    type Chunk = CompletionResponse;

    async fn generate(&mut self, chunk: OutputChunk) -> Vec<CompletionResponse> {
        match chunk {
            OutputChunk::Start { system_fingerprint, prompt_usage } => {
                self.prompt = prompt_usage;
                self.fingerprint = system_fingerprint;
                Vec::new()
            }
            OutputChunk::Content { content, logprobs }
            | OutputChunk::Reasoning { content, logprobs } => {
                let chars = content.chars().count();
                let mut chunk = self.chunk(content, None);
                let [choice] = &mut chunk.choices;
                choice.logprobs =
                    logprobs.map(|tokens| CompletionLogprobs::new(&tokens, self.chars));
                self.chars += chars;
                vec![chunk]
            }
            OutputChunk::Finish { finish_reason, completion_usage, .. } => {
                let reason = match finish_reason {
                    FinishReason::Length => "length",
                    _ => "stop",
                };
                let usage = usage(self.prompt, completion_usage);
                vec![self.chunk(String::new(), Some((reason, usage)))]
            }
            // Tool calls are not parsed here.
            OutputChunk::ToolCallBegin
            | OutputChunk::ToolCallNamed { .. }
            | OutputChunk::ToolCallArgumentsDelta { .. } => Vec::new(),
        }
    }
}

fn usage(prompt: PromptUsage, completion: CompletionUsage) -> Value {
    json!({
        "prompt_tokens": prompt.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "total_tokens": prompt.prompt_tokens + completion.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": prompt.prompt_cache_hit_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    })
}

/// Seconds since 1970; 0 where the clock stands before it.
pub(crate) fn unix_time() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
