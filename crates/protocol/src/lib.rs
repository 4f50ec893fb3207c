//! OpenAI-compatible requests to typed ones, and replies to protocol events.
//!
//! [`Api::chat`] and [`Api::completion`] check a body and turn it into a
//! [`finback_engine::Request`]; the [`Output`] beside it turns the engine's events into the
//! protocol's JSON, whole or in chunks. The conversion of chats and the parsing of replies are
//! deepseek-recipe's; no type of it appears in this crate's interface.

mod api;
mod body;
mod chat;
mod completion;
mod error;
mod output;
mod params;
mod parser;
mod reply;
mod sha;
mod talk;

pub use api::{Api, ApiOptions, Prepared};
pub use error::Error;
pub use output::Output;
pub use params::{Defaults, prompt_seed};
pub use reply::{Progress, Report};
pub use sha::TokenSha;
pub use talk::{Piece, Talk};
