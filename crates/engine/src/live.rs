//! One request in its slot: what it has said, and when it ends.

use std::time::Instant;

use finback_model::{Choice, RunnerInfo};
use finback_numerics::sample::{Scratch, log_probs};
use tokio::sync::mpsc::UnboundedSender;

use crate::adjust::{self, Counts};
use crate::cache::{Prefix, Reading};
use crate::request::{Event, FinishReason, Logprobs, Request, Timings};

/// A request on its way to a slot.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Request,
    pub(crate) events: UnboundedSender<Event>,
    pub(crate) submitted: Instant,
    /// What the disk has of its prompt.
    pub(crate) disk: FromDisk,
}

/// A prefix from the disk, which a job is asked for once.
#[derive(Debug, Default)]
pub(crate) enum FromDisk {
    #[default]
    NotAsked,
    Reading(Box<Reading>),
    Asked,
}

impl Job {
    /// Whether nobody reads the reply any more.
    pub(crate) fn cancelled(&self) -> bool {
        self.events.is_closed()
    }

    /// Whether the prefix cache serves it: one that wants several rows of its prompt's end needs
    /// them run.
    pub(crate) fn caches(&self) -> bool {
        self.request.cache && Live::head_rows(&self.request) == 1
    }

    /// Ends the request without a reply.
    pub(crate) fn fail(&self, message: String) {
        tracing::debug!(prompt_tokens = self.request.prompt.len(), message, "request failed");
        // A reader that has gone needs no answer.
        let _ = self.events.send(Event::Failed { message });
    }
}

/// How a request ends.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished(FinishReason),
    Failed(String),
    Cancelled,
}

/// What a slot does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Prompt rows are left to run.
    Prompt { left: usize },
    /// Every prompt row has run and the first token is chosen.
    Decode,
}

/// A request that has a slot.
#[derive(Debug)]
pub(crate) struct Live {
    job: Job,
    pub(crate) phase: Phase,
    /// The last token said; the model has not run it yet.
    pub(crate) newest: u32,
    /// Tokens of the rows that the model has run and kept after the prompt.
    ran: Vec<u32>,
    /// Tokens said.
    said: usize,
    /// Which, where penalties need to know.
    counts: Counts,
    /// Tokens it may say.
    limit: usize,
    /// Rises with each request that gets a slot.
    pub(crate) arrival: u64,
    /// Pieces of other prompts since its last.
    pub(crate) passed_over: usize,
    /// The last place its state was kept or restored at.
    pub(crate) kept_at: usize,
    scratch: Scratch,
    began: Instant,
    first: Option<Instant>,
    pub(crate) timings: Timings,
}

impl Live {
    /// Tokens `request` may say: its own limit, cut to the context.
    pub(crate) fn limit(request: &Request, info: &RunnerInfo) -> usize {
        request.max_tokens.min(info.context - request.prompt.len())
    }

    /// Prompt rows whose logits the runner computes: the one of the first token at least.
    pub(crate) fn head_rows(request: &Request) -> usize {
        request.prompt_logits.clamp(1, request.prompt.len())
    }

    /// `prefix` is what the cache was found to have, where it was asked.
    pub(crate) fn new(job: Job, limit: usize, arrival: u64, prefix: Option<Prefix>) -> Self {
        let began = Instant::now();
        let restored = prefix.as_ref().map_or(0, |prefix| prefix.restored);
        let left = job.request.prompt.len() - restored;
        let timings = Timings {
            queue_s: (began - job.submitted).as_secs_f64(),
            prompt_tokens: left,
            ..Timings::default()
        };
        // A reader that has gone is seen before the first piece runs.
        let _ = job.events.send(Event::Started { cached_tokens: restored, prefix });
        let phase = Phase::Prompt { left };
        Self {
            job,
            phase,
            newest: 0,
            ran: Vec::new(),
            said: 0,
            counts: Counts::default(),
            limit,
            arrival,
            passed_over: 0,
            kept_at: restored,
            scratch: Scratch::default(),
            began,
            first: None,
            timings,
        }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.job.request
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.job.cancelled()
    }

    /// Whether the prefix cache serves it.
    pub(crate) fn caches(&self) -> bool {
        self.job.caches()
    }

    /// Tokens it may still say.
    pub(crate) fn left(&self) -> usize {
        self.limit - self.said
    }

    /// Whether the reply ends with the `nth` next token, from 1, if that is `token`.
    pub(crate) fn ends_with(&self, nth: usize, token: Option<u32>) -> bool {
        let ends = |id| self.request().end_tokens.contains(&id);
        nth >= self.left() || token.is_none_or(ends)
    }

    /// Rows the model has run and kept: of the prompt, and of what was said all but the newest.
    pub(crate) fn rows(&self) -> usize {
        self.prompt_rows() + self.ran.len()
    }

    fn prompt_rows(&self) -> usize {
        let left = match self.phase {
            Phase::Prompt { left } => left,
            Phase::Decode => 0,
        };
        self.request().prompt.len() - left
    }

    /// The tokens of those rows.
    pub(crate) fn ids(&self) -> Vec<u32> {
        [&self.request().prompt[..self.prompt_rows()], &self.ran].concat()
    }

    /// Takes note of rows after the prompt that were kept.
    pub(crate) fn keep(&mut self, tokens: &[u32]) {
        self.ran.extend_from_slice(tokens);
    }

    /// Tells the reader how far its prompt is.
    pub(crate) fn show_progress(&self) {
        // A reader that has gone is seen by the scheduler's sweep.
        let _ = self.job.events.send(Event::Prompt { done: self.rows() });
    }

    /// What is added to the logits of the row after the said tokens and then `drafts`.
    pub(crate) fn adds(&self, drafts: &[u32]) -> Vec<(u32, f32)> {
        adjust::adds(self.request(), &self.counts, drafts)
    }

    /// Whether anything is ever added.
    pub(crate) fn adjusts(&self) -> bool {
        !(self.request().penalties.is_none() && self.request().bias.is_empty())
    }

    /// Whether its rows' logits are read back.
    pub(crate) fn wants_logits(&self) -> bool {
        self.request().logits || self.request().logprobs.is_some()
    }

    /// Sends the logit rows of the prompt's end.
    pub(crate) fn show_prompt(&self, rows: Vec<Vec<f32>>) {
        // A reader that has gone is seen at the next token.
        let _ = self.job.events.send(Event::PromptLogits { rows });
    }

    /// Says the chosen token; `Some` where the reply ends with it.
    pub(crate) fn say(&mut self, choice: Choice) -> Option<End> {
        let Some(id) = choice.token else {
            let position = self.job.request.prompt.len() + self.said;
            return Some(End::Failed(format!(
                "the logits for position {position} hold a NaN or an infinity"
            )));
        };
        let logprobs = self.logprobs(id, choice.logits.as_deref());
        let logits = choice.logits.filter(|_| self.request().logits);
        let now = Instant::now();
        let first = *self.first.get_or_insert(now);
        self.timings.prompt_s = (first - self.began).as_secs_f64();
        self.timings.decode_s = (now - first).as_secs_f64();
        let event = Event::Token { id, logits, logprobs, timings: self.timings };
        if self.job.events.send(event).is_err() {
            return Some(End::Cancelled);
        }
        self.newest = id;
        self.said += 1;
        if !self.request().penalties.is_none() {
            self.counts.add(id);
        }
        if self.job.request.end_tokens.contains(&id) {
            return Some(End::Finished(FinishReason::Stop));
        }
        (self.said == self.limit).then_some(End::Finished(FinishReason::Length))
    }

    fn logprobs(&mut self, id: u32, row: Option<&[f32]>) -> Option<Logprobs> {
        let (count, mut top) = (self.request().logprobs?, Vec::new());
        let own = log_probs(row?, id, count, &mut top, &mut self.scratch)?;
        Some(Logprobs { own, top })
    }

    /// Sends the last event. The line a request has in the log is the server's.
    pub(crate) fn end(self, end: End) {
        let Timings { prompt_tokens, queue_s, prompt_s, decode_s, .. } = self.timings;
        let reply_tokens = self.said;
        match end {
            End::Finished(reason) => {
                // The server writes the one line a request that a user reads.
                tracing::debug!(
                    prompt_tokens,
                    reply_tokens,
                    queue_s,
                    prompt_s,
                    decode_s,
                    ?reason,
                    "request finished"
                );
                let _ = self.job.events.send(Event::Finished { reason, timings: self.timings });
            }
            End::Failed(message) => self.job.fail(message),
            End::Cancelled => tracing::debug!(prompt_tokens, reply_tokens, "request cancelled"),
        }
    }
}
