//! One reply in the terminal: engine events in, pieces of text out, and what it took.

use std::sync::Arc;

use anyhow::bail;
use finback_engine::{Event, FinishReason, Handle, Request, Timings};
use finback_protocol::{Piece, Prepared, Progress, Talk, TokenSha};
use finback_tokenizer::{Decoder, Tokenizer};
use serde_json::{Value, json};

/// A request and the way its reply becomes text.
#[derive(Debug)]
pub struct Ask {
    /// What the engine runs.
    pub request: Request,
    voice: Voice,
}

#[derive(Debug)]
enum Voice {
    /// A chat reply: thinking and answer, stop texts.
    Chat(Box<Talk>),
    /// Every token as it is; ids where there is no tokenizer.
    Plain(Option<Arc<Tokenizer>>, Decoder),
}

impl Ask {
    /// A chat request.
    pub fn chat(prepared: Prepared<Talk>) -> Self {
        Self { request: prepared.request, voice: Voice::Chat(Box::new(prepared.output)) }
    }

    /// A request of token ids.
    pub fn plain(request: Request, tokenizer: Option<Arc<Tokenizer>>) -> Self {
        Self { request, voice: Voice::Plain(tokenizer, Decoder::default()) }
    }
}

/// A reply as far as it has come.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Reply tokens.
    pub token_ids: Vec<u32>,
    /// Text of the thinking part.
    pub reasoning: String,
    /// Text of the answer; ids where there is no tokenizer.
    pub text: String,
    /// Whether `text` is text.
    spelled: bool,
    /// Logit rows of the prompt's end, where they were asked for.
    pub prompt_logits: Vec<Vec<f32>>,
    /// The row each token was chosen from, where they were asked for.
    pub logits: Vec<Vec<f32>>,
    /// Why it ended; `None` where Ctrl-C ended it.
    pub finish: Option<&'static str>,
    /// Prompt tokens.
    pub prompt_tokens: usize,
    /// What it took.
    pub timings: Timings,
}

impl Outcome {
    /// Runs `ask` to its end, handing each piece to `show` as it comes. What came before an error or
    /// before this is dropped stays in `self`.
    ///
    /// # Errors
    /// The engine refuses or fails the request, or `show` fails.
    pub async fn run(
        &mut self,
        engine: &Handle,
        ask: Ask,
        mut show: impl FnMut(&Piece) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Ask { request, mut voice } = ask;
        self.prompt_tokens = request.prompt.len();
        self.spelled = !matches!(voice, Voice::Plain(None, _));
        let mut reply = engine.submit(request)?;
        while let Some(mut event) = reply.next().await {
            self.take(&mut event);
            let (pieces, progress) = self.speak(&mut voice, event);
            for piece in &pieces {
                self.keep(piece);
                show(piece)?;
            }
            match progress {
                Progress::Running => {}
                Progress::Done => break,
                Progress::Failed(message) => bail!(message),
            }
        }
        Ok(())
    }

    /// Keeps what is no text: ids and logit rows.
    fn take(&mut self, event: &mut Event) {
        match event {
            Event::Token { id, logits, .. } => {
                self.token_ids.push(*id);
                self.logits.extend(logits.take());
            }
            Event::PromptLogits { rows } => self.prompt_logits = std::mem::take(rows),
            _ => {}
        }
    }

    fn speak(&mut self, voice: &mut Voice, event: Event) -> (Vec<Piece>, Progress) {
        match voice {
            Voice::Chat(talk) => {
                let spoken = talk.push(event);
                let report = talk.report();
                (self.finish, self.timings) = (report.finish, report.timings);
                spoken
            }
            Voice::Plain(tokenizer, decoder) => self.spell(tokenizer.as_deref(), decoder, event),
        }
    }

    fn spell(
        &mut self,
        tokenizer: Option<&Tokenizer>,
        decoder: &mut Decoder,
        event: Event,
    ) -> (Vec<Piece>, Progress) {
        let text = match (&event, tokenizer) {
            (Event::Token { id, .. }, Some(tokenizer)) => decoder.push(tokenizer.bytes(*id)),
            (Event::Token { id, .. }, None) => format!("{id} "),
            (Event::Finished { .. }, _) => decoder.finish(),
            _ => String::new(),
        };
        let progress = match event {
            Event::Finished { reason, timings } => {
                let reason = if reason == FinishReason::Stop { "stop" } else { "length" };
                (self.finish, self.timings) = (Some(reason), timings);
                Progress::Done
            }
            Event::Failed { message } => Progress::Failed(message),
            _ => Progress::Running,
        };
        let pieces = if text.is_empty() { Vec::new() } else { vec![Piece::Content(text)] };
        (pieces, progress)
    }

    fn keep(&mut self, piece: &Piece) {
        match piece {
            Piece::Reasoning(text) => self.reasoning.push_str(text),
            Piece::Content(text) => self.text.push_str(text),
            // A tool call cannot happen: the terminal offers no tools.
            _ => {}
        }
    }

    /// The one line of JSON of `finback run --json`.
    pub fn to_json(&self, model: &str, numerics: &str) -> Value {
        let mut sha = TokenSha::default();
        self.token_ids.iter().for_each(|id| sha.push(*id));
        let timings = &self.timings;
        json!({
            "model": model,
            "numerics": numerics,
            "token_ids": self.token_ids,
            "token_sha": sha.hex(),
            "text": self.spelled.then_some(&self.text),
            "reasoning": self.reasoning,
            "finish_reason": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.token_ids.len(),
            "rounds": timings.rounds,
            "drafts": {"offered": timings.drafted, "accepted": timings.accepted},
            "timings": {
                "queue_s": timings.queue_s,
                "prompt_s": timings.prompt_s,
                "decode_s": timings.decode_s,
                "prompt_tokens_per_s": self.prompt_rate(),
                "decode_tokens_per_s": self.decode_rate(),
            },
        })
    }

    /// Tokens and rates in one line.
    pub fn rate_line(&self) -> String {
        let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), |rate| format!("{rate:.1}"));
        let mut line = format!(
            "prompt {} tokens, {} tok/s; decode {} tokens, {} tok/s",
            self.prompt_tokens,
            rate(self.prompt_rate()),
            self.token_ids.len(),
            rate(self.decode_rate()),
        );
        if self.timings.drafted > 0 {
            let Timings { accepted, drafted, .. } = self.timings;
            line.push_str(&format!("; {accepted} of {drafted} drafts accepted"));
        }
        line
    }

    fn prompt_rate(&self) -> Option<f64> {
        rate(self.timings.prompt_tokens, self.timings.prompt_s)
    }

    /// Of the tokens after the first, which the prompt's time covers.
    fn decode_rate(&self) -> Option<f64> {
        rate(self.token_ids.len().saturating_sub(1), self.timings.decode_s)
    }
}

fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}
