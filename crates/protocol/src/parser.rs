//! deepseek-recipe's output parser, fed by hand.
//!
//! Its stream waits for nothing but its input, so a poll after each input gives all there is to
//! give: no runtime, no task, and the same parser for the server and a terminal.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use deepseek_recipe::stream::{
    ChunkGenerator, CompletionUsage, FinishReason, InferenceChunk, OutputChunk, ParsingOptions,
    StreamError, StreamProcessor, StreamTokenizer, TokenLogprob,
};
use finback_tokenizer::Tokenizer;
use futures_core::Stream;

/// Inference chunks in, protocol chunks out.
pub(crate) struct Parser<C> {
    inbox: Arc<Mutex<VecDeque<InferenceChunk>>>,
    output: Pin<Box<dyn Stream<Item = Result<C, StreamError>> + Send>>,
    ended: bool,
}

impl<C: Send + 'static> Parser<C> {
    pub(crate) fn new(
        generator: impl ChunkGenerator<Chunk = C>,
        options: ParsingOptions,
        vocabulary: Vocabulary,
        tally: Arc<Mutex<Tally>>,
        only: Option<String>,
    ) -> Self {
        let inbox = Arc::new(Mutex::new(VecDeque::new()));
        let input = Inbox(Arc::clone(&inbox));
        let output = StreamProcessor::new(Tap { generator, tally, only, seen: None }, options)
            .with_tokenizer(vocabulary)
            .into_protocol_stream(input);
        Self { inbox, output: Box::pin(output), ended: false }
    }

    /// Feeds one chunk and returns what comes of it. Nothing after the end.
    pub(crate) fn feed(&mut self, chunk: InferenceChunk) -> Result<Vec<C>, StreamError> {
        let mut chunks = Vec::new();
        if self.ended {
            return Ok(chunks);
        }
        lock(&self.inbox).push_back(chunk);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match self.output.as_mut().poll_next(&mut context) {
                Poll::Ready(Some(chunk)) => chunks.push(chunk?),
                Poll::Ready(None) => {
                    self.ended = true;
                    return Ok(chunks);
                }
                Poll::Pending => return Ok(chunks),
            }
        }
    }

    /// Whether the reply is whole: a finish was fed or a stop string found.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
}

/// The stream over what was fed; it waits where there is nothing.
struct Inbox(Arc<Mutex<VecDeque<InferenceChunk>>>);

impl Stream for Inbox {
    type Item = InferenceChunk;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<InferenceChunk>> {
        lock(&self.0).pop_front().map_or(Poll::Pending, |chunk| Poll::Ready(Some(chunk)))
    }
}

/// What is counted outside the parser, and what it decides.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Reply tokens, the end token among them.
    pub(crate) tokens: usize,
    /// Those that reasoning is made of.
    pub(crate) reasoning_tokens: usize,
    /// Whether the next token belongs to reasoning.
    pub(crate) in_reasoning: bool,
    /// Whether a call of another tool than the one that was asked for began: nothing of it is handed on.
    pub(crate) strayed: bool,
    /// Why the reply ended, once it has.
    pub(crate) finish: Option<FinishReason>,
}

/// A generator that hears the true counts: the parser counts only tokens that became text, and
/// reasoning by encoding it again.
struct Tap<G> {
    generator: G,
    tally: Arc<Mutex<Tally>>,
    /// The tool that calls are of, where that is one.
    only: Option<String>,
    /// The log-probabilities that were handed on last.
    seen: Option<Arc<[TokenLogprob]>>,
}

impl<G: ChunkGenerator> ChunkGenerator for Tap<G> {
    type Chunk = G::Chunk;

    fn generate(&mut self, mut chunk: OutputChunk) -> impl Future<Output = Vec<G::Chunk>> + Send {
        let mut tally = lock(&self.tally);
        match &mut chunk {
            // A tool call may begin inside reasoning, without its end token.
            OutputChunk::ToolCallBegin => tally.in_reasoning = false,
            OutputChunk::ToolCallNamed { tool_name } => {
                tally.strayed |= self.only.as_ref().is_some_and(|only| only != tool_name);
            }
            // The parser gives both parts of a text it splits the tokens of the whole.
            OutputChunk::Content { logprobs, .. } | OutputChunk::Reasoning { logprobs, .. } => {
                let again = |new: &Arc<[TokenLogprob]>| {
                    self.seen.as_ref().is_some_and(|seen| Arc::ptr_eq(seen, new))
                };
                match logprobs.take_if(|new| again(new)) {
                    Some(_) => {}
                    None => self.seen.clone_from(logprobs),
                }
            }
            OutputChunk::Finish { finish_reason, completion_usage, .. } => {
                tally.finish = Some(*finish_reason);
                *completion_usage = CompletionUsage {
                    completion_tokens: tally.tokens,
                    reasoning_tokens: Some(tally.reasoning_tokens),
                };
            }
            _ => {}
        }
        let dropped = tally.strayed && !matches!(chunk, OutputChunk::Finish { .. });
        drop(tally);
        let generated = (!dropped).then(|| self.generator.generate(chunk));
        async move {
            match generated {
                Some(generated) => generated.await,
                None => Vec::new(),
            }
        }
    }
}

/// The tokenizer as the parser sees it.
pub(crate) struct Vocabulary {
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// Whether special tokens may be markup; otherwise they are text.
    pub(crate) markup: bool,
}

impl StreamTokenizer for Vocabulary {
    fn decode_ids(&self, ids: &[u32], _: bool) -> Result<String, String> {
        Ok(self.tokenizer.decode(ids))
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.tokenizer.raw(id)
    }

    fn is_special_token(&self, id: u32) -> bool {
        self.markup && self.tokenizer.is_special(id)
    }
}

/// Nothing that is done under these locks can panic half way, so a poisoned one is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
