//! An engine in this process with one user: what `run` and `chat` share.

use std::io::{IsTerminal, Write};

use anyhow::{Context, bail};
use finback_engine::{Engine, Request};
use finback_model::WINDOW_ROWS;
use finback_ops::Sampling;
use finback_protocol::{Api, ApiOptions, Piece, prompt_seed};
use serde_json::{Value, json};

use crate::interrupt::Interrupt;
use crate::load::{self, Prepared};
use crate::open::TOKENIZER_FILE;
use crate::profile::Recording;
use crate::reply::{Ask, Outcome};
use crate::settings::Values;
use crate::settings::table::{
    IGNORE_EOS, MAX_TOKENS, MIN_P, SEED, STOP, TEMPERATURE, TOP_K, TOP_P,
};

/// A running engine and the settings of its requests.
#[derive(Debug)]
pub struct Session<'a> {
    /// What is loaded.
    pub prepared: Prepared,
    values: &'a Values,
    api: Option<Api>,
    engine: Engine,
    /// The times of its rounds, where they are recorded.
    recording: Option<Recording>,
    interrupt: Interrupt,
}

impl<'a> Session<'a> {
    /// Loads the checkpoint and starts the engine; `interrupt` ends its replies.
    pub fn start(values: &'a Values, interrupt: Interrupt) -> anyhow::Result<Self> {
        let prepared = load::prepare(values)?;
        let (engine, recording) = prepared.start()?;
        let api = api(&prepared);
        Ok(Self { prepared, values, api, engine, recording, interrupt })
    }

    /// Stops the engine, and writes the times of its rounds where they were recorded.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn end(self) -> anyhow::Result<()> {
        // A round is recorded after its last token is said: only a thread that has ended has told all.
        drop(self.engine);
        self.recording.as_ref().map_or(Ok(()), Recording::finish)
    }

    /// The next reply of a chat.
    ///
    /// # Errors
    /// The checkpoint has no tokenizer, or the request is refused.
    pub fn chat(&self, messages: &[Value]) -> anyhow::Result<Ask> {
        let Some(api) = &self.api else {
            bail!(
                "{}: no {TOKENIZER_FILE}, which text needs; give the prompt by --prompt-ids",
                self.prepared.opened.directory.display()
            );
        };
        let mut body = json!({ "messages": messages });
        let values = self.values;
        let mut put = |field: &str, value: Option<Value>| {
            if let Some(value) = value {
                body[field] = value;
            }
        };
        put("max_tokens", values.get(&MAX_TOKENS).map(Value::from));
        put("temperature", values.get(&TEMPERATURE).map(Value::from));
        put("top_k", values.get(&TOP_K).map(Value::from));
        put("top_p", values.get(&TOP_P).map(Value::from));
        put("min_p", values.get(&MIN_P).map(Value::from));
        put("seed", values.get(&SEED).map(Value::from));
        put("ignore_eos", Some(values.get(&IGNORE_EOS).into()));
        put("stop", Some(values.get(&STOP).into()));
        Ok(Ask::chat(api.talk(body)?))
    }

    /// A prompt of token ids, run as they are.
    pub fn ids(&self, prompt: Vec<u32>) -> Ask {
        let (values, defaults) = (self.values, self.prepared.defaults);
        let float = |value: Option<f64>, default: f32| value.map_or(default, |value| value as f32);
        let sampling = Sampling {
            temperature: float(values.get(&TEMPERATURE), defaults.temperature),
            top_k: values.get(&TOP_K).map_or(defaults.top_k, |k| k as u32),
            top_p: float(values.get(&TOP_P), defaults.top_p),
            min_p: float(values.get(&MIN_P), defaults.min_p),
            seed: values.get(&SEED).unwrap_or_else(|| prompt_seed(&prompt)),
        };
        let end_tokens = match values.get(&IGNORE_EOS) {
            true => Vec::new(),
            false => self.prepared.opened.end_tokens.clone(),
        };
        let left = self.prepared.context().saturating_sub(prompt.len()).max(1);
        let max_tokens = values.get(&MAX_TOKENS).unwrap_or(left);
        let request = Request { sampling, end_tokens, ..Request::greedy(prompt, max_tokens) };
        Ask::plain(request, self.prepared.opened.tokenizer.clone())
    }

    /// Runs one reply, streamed to standard output where `shown`; Ctrl-C ends it early.
    pub async fn reply(&self, mut ask: Ask, logits: bool, shown: bool) -> anyhow::Result<Outcome> {
        ask.request.logits = logits;
        ask.request.prompt_logits = if logits { WINDOW_ROWS } else { 0 };
        let (mut outcome, mut screen) = (Outcome::default(), Screen::default());
        let handle = self.engine.handle();
        let run = outcome.run(&handle, ask, |piece| match shown {
            true => screen.show(piece),
            false => Ok(()),
        });
        // `None` is Ctrl-C: what came before it stays.
        let ended = self.interrupt.guard(run).await;
        if shown {
            screen.end()?;
        }
        ended.transpose()?;
        Ok(outcome)
    }
}

/// The protocol over a checkpoint's tokenizer, where it has one.
pub fn api(prepared: &Prepared) -> Option<Api> {
    let options = ApiOptions {
        model: prepared.opened.model_id.clone(),
        aliases: Vec::new(),
        context: prepared.context(),
        end_tokens: prepared.opened.end_tokens.clone(),
        defaults: prepared.defaults,
        numerics: prepared.numerics,
    };
    Some(Api::new(prepared.opened.tokenizer.clone()?, options))
}

/// Standard output while a reply comes: thinking dimmed on a terminal, then the answer.
#[derive(Debug, Default)]
struct Screen {
    thinking: bool,
    dirty: bool,
}

impl Screen {
    fn show(&mut self, piece: &Piece) -> anyhow::Result<()> {
        let (text, thinking) = match piece {
            Piece::Reasoning(text) => (text, true),
            Piece::Content(text) => (text, false),
            _ => return Ok(()),
        };
        let mut out = std::io::stdout().lock();
        let dims = std::io::stdout().is_terminal();
        let write = |out: &mut dyn Write, text: &str| {
            out.write_all(text.as_bytes()).context("standard output")
        };
        if thinking != self.thinking {
            match (thinking, dims) {
                (true, true) => write(&mut out, "\x1b[2m")?,
                (false, true) => write(&mut out, "\x1b[0m\n\n")?,
                (false, false) => write(&mut out, "\n\n")?,
                (true, false) => {}
            }
            self.thinking = thinking;
        }
        self.dirty = true;
        write(&mut out, text)?;
        out.flush().context("standard output")
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.thinking && std::io::stdout().is_terminal() {
            out.write_all(b"\x1b[0m").context("standard output")?;
        }
        if std::mem::take(&mut self.dirty) {
            out.write_all(b"\n").context("standard output")?;
        }
        out.flush().context("standard output")
    }
}
