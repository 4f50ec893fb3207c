//! A chat reply for a terminal: its pieces as they come.

use deepseek_recipe::stream::{ChunkGenerator, OutputChunk};
use finback_engine::Event;

use crate::reply::{Progress, Reply, Report};

/// A piece of a chat reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece {
    /// Text of the reasoning before the answer.
    Reasoning(String),
    /// Text of the answer.
    Content(String),
    /// A tool call begins.
    ToolCall {
        /// The tool.
        name: String,
    },
    /// More of the JSON arguments of the tool call that began last.
    ToolArguments(String),
}

/// A chat reply in pieces: engine events in, text out.
pub struct Talk(pub(crate) Reply<Piece>);

impl Talk {
    /// Takes the next event and returns the pieces it adds.
    pub fn push(&mut self, event: Event) -> (Vec<Piece>, Progress) {
        self.0.push(event)
    }

    /// What the reply took so far.
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.report()
    }
}

impl std::fmt::Debug for Talk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Talk")
    }
}

/// Hands the parsed output on.
pub(crate) struct Pieces;

impl ChunkGenerator for Pieces {
    type Chunk = Piece;

    async fn generate(&mut self, chunk: OutputChunk) -> Vec<Piece> {
        match chunk {
            OutputChunk::Reasoning { content, .. } => vec![Piece::Reasoning(content)],
            OutputChunk::Content { content, .. } => vec![Piece::Content(content)],
            OutputChunk::ToolCallNamed { tool_name } => vec![Piece::ToolCall { name: tool_name }],
            OutputChunk::ToolCallArgumentsDelta { arguments } => {
                vec![Piece::ToolArguments(arguments)]
            }
            OutputChunk::Start { .. } | OutputChunk::ToolCallBegin | OutputChunk::Finish { .. } => {
                Vec::new()
            }
        }
    }
}
