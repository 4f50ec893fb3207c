/// What can be wrong with a tokenizer's files or with what it is asked to encode. Only the end tokens'
/// errors name their file: the others come of bytes, whose file the caller knows.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that are not JSON.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
    /// A `tokenizer.json` of a kind other than a byte-level BPE.
    #[error("{field} is {found}; accepted: {accepted}")]
    Kind {
        /// The field in the file.
        field: &'static str,
        /// What the file has.
        found: String,
        /// What can be loaded.
        accepted: &'static str,
    },
    /// A `tokenizer.json` that the tokenizer library refuses.
    #[error("{0}")]
    Load(String),
    /// A token without which prompts cannot be made.
    #[error("the tokenizer has no token spelled {0:?}, which a prompt needs")]
    MissingToken(String),
    /// An end-token field that holds something else than ids.
    #[error("{file}: {field} is {found}; accepted: a token id below {vocab} or a list of them")]
    EndToken {
        /// The file.
        file: &'static str,
        /// The field in it.
        field: &'static str,
        /// What it holds.
        found: String,
        /// Ids there are.
        vocab: usize,
    },
    /// No source names an end token.
    #[error(
        "no end token: config.json and generation_config.json have no eos_token_id and \
         tokenizer.json has no token {0:?}"
    )]
    NoEndToken(&'static str),
    /// Text that the tokenizer library cannot encode.
    #[error("the text cannot be encoded: {0}")]
    Encode(String),
}
