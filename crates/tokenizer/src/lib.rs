//! Text to token ids and back, and the map from token ids to Engram ids.
//!
//! A [`Tokenizer`] is a checkpoint's `tokenizer.json`, a byte-level BPE. Text that spells a special
//! token stays text unless the caller marks its bytes as special, so a user's message cannot forge
//! a turn. [`Decoder`] turns ids into text as they come; [`end_tokens`] collects the ids that end a
//! reply from every file that names some.

mod cover;
mod cut;
mod decode;
mod end;
mod engram;
mod error;
mod tokenizer;

pub use decode::Decoder;
pub use end::{EndToken, end_tokens};
pub use error::Error;
pub use tokenizer::Tokenizer;

/// A small `tokenizer.json` for synthetic checkpoints: 1,024 ids, all 256 bytes among them, and the
/// named special tokens of DeepSeek-V4.1. Begin, end and pad are ids 0, 1 and 2 as in the release.
///
/// `cargo run -p finback-tokenizer --example synthetic` writes it.
pub const SYNTHETIC: &[u8] = include_bytes!("../assets/synthetic.json");
