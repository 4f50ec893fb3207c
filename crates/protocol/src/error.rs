use finback_engine::Refusal;
use finback_tokenizer::Tokenizer;
use serde_json::Value;

/// Why a request is not taken. Every message names the field, what was found and what is accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The body is not JSON.
    #[error("the request body is not JSON: {0}")]
    Json(#[source] serde_json::Error),
    /// The body is JSON of another kind than an object.
    #[error("the request body is {found}; accepted: a JSON object")]
    NotAnObject {
        /// What it is.
        found: String,
    },
    /// A field that must be there is not, or is null.
    #[error("{field} is missing; accepted: {accepted}")]
    Missing {
        /// The field.
        field: &'static str,
        /// What it may be.
        accepted: &'static str,
    },
    /// A field holds what it may not.
    #[error("{field} is {found}; accepted: {accepted}")]
    Value {
        /// The field, with its place in a list.
        field: String,
        /// What it holds, shortened.
        found: String,
        /// What it may be.
        accepted: String,
    },
    /// A field asks for what this server does not do.
    #[error("{field} is {found}, which this server does not support; accepted: {accepted}")]
    Unsupported {
        /// The field, with its place in a list.
        field: String,
        /// What it holds, shortened.
        found: String,
        /// The values that ask for nothing.
        accepted: String,
    },
    /// A model that is not served here.
    #[error("the model {found} does not exist; this server serves \"{served}\"")]
    Model {
        /// The `model` field.
        found: String,
        /// The served id.
        served: String,
    },
    /// Messages, or the tools beside them, that make no conversation.
    #[error("{field} cannot be converted: {detail}")]
    Conversation {
        /// `messages`, `tools` or `tool_choice`.
        field: &'static str,
        /// What the conversion says.
        detail: String,
    },
    /// Text that cannot be encoded, or a tokenizer without a token that prompts need.
    #[error(transparent)]
    Tokenizer(#[from] finback_tokenizer::Error),
    /// A prompt so long that it is not encoded.
    #[error(
        "this server's maximum context length is {context} tokens; the prompt has {bytes} bytes, \
         which are at least {least} tokens, and leaves no room for a reply"
    )]
    TooLong {
        /// Positions a stream can hold.
        context: usize,
        /// Bytes of the prompt's text.
        bytes: usize,
        /// Tokens that it has at least.
        least: usize,
    },
    /// The engine does not take the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Error {
    /// The field at fault, where there is one.
    #[must_use]
    pub fn param(&self) -> Option<&str> {
        match self {
            Self::Missing { field, .. } | Self::Conversation { field, .. } => Some(field),
            Self::Value { field, .. } | Self::Unsupported { field, .. } => Some(field),
            Self::Model { .. } => Some("model"),
            Self::Refused(Refusal::NoTokens) => Some("max_tokens"),
            Self::Refused(Refusal::NoSuchBias { .. }) => Some("logit_bias"),
            Self::Refused(Refusal::EmptyPrompt | Refusal::NoSuchToken { .. }) => Some("prompt"),
            _ => None,
        }
    }

    /// A short name of the fault that programs can test.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Json(_) | Self::NotAnObject { .. } => "invalid_json",
            Self::Missing { .. } => "missing_field",
            Self::Value { .. } => "invalid_value",
            Self::Unsupported { .. } => "unsupported_value",
            Self::Model { .. } => "model_not_found",
            Self::Conversation { field: "messages", .. } => "invalid_messages",
            Self::Conversation { .. } => "invalid_value",
            Self::Tokenizer(_) => "tokenizer_error",
            Self::TooLong { .. } | Self::Refused(Refusal::Context { .. }) => {
                "context_length_exceeded"
            }
            Self::Refused(Refusal::Stopped { .. }) => "engine_stopped",
            Self::Refused(Refusal::Full { .. }) => "queue_full",
            Self::Refused(_) => "invalid_value",
        }
    }

    /// A field that makes no conversation. The detail may quote it, line ends and all.
    pub(crate) fn conversation(field: &'static str, detail: &str) -> Self {
        let detail = detail.split_whitespace().collect::<Vec<_>>().join(" ");
        Self::Conversation { field, detail }
    }

    /// `field` holds `found`, which is none of `accepted`.
    pub(crate) fn value(
        field: impl Into<String>,
        found: &Value,
        accepted: impl Into<String>,
    ) -> Self {
        Self::Value { field: field.into(), found: shown(found), accepted: accepted.into() }
    }

    /// `field` asks for what only `accepted` would leave undone.
    pub(crate) fn unsupported(field: impl Into<String>, found: &Value, accepted: &str) -> Self {
        Self::Unsupported {
            field: field.into(),
            found: shown(found),
            accepted: accepted.to_owned(),
        }
    }
}

/// Refuses a text that fills `context` by its length alone: encoding it would take long for nothing.
pub(crate) fn check_length(text: &str, context: usize, tokenizer: &Tokenizer) -> Result<(), Error> {
    let (bytes, least) = (text.len(), tokenizer.fewest_ids(text.len()));
    // As the engine's own rule, which counts the tokens.
    if least < context { Ok(()) } else { Err(Error::TooLong { context, bytes, least }) }
}

/// A value as JSON, shortened to what fits into a line.
pub(crate) fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
