//! A request that the engine has taken, up to its last byte.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Json;
use finback_engine::{Handle, Reply};
use finback_protocol::{Output, Progress};
use serde_json::Value;

use crate::app::App;
use crate::errors::ApiError;
use crate::metrics::Outcomes;

/// A running reply and where it is written. Dropping it ends the engine's work.
pub(crate) struct Run {
    /// Dropped as soon as nothing more is wanted of it.
    reply: Option<Reply>,
    output: Output,
    engine: Handle,
    outcomes: Arc<Outcomes>,
    end: End,
}

/// How a reply ended, for the log.
enum End {
    /// The client went away.
    Dropped,
    Done,
    /// With the reason.
    Failed(String),
}

/// What an event made of a reply.
pub(crate) enum Step {
    /// Chunks to send; more come.
    Chunks(Vec<Value>),
    /// The last chunks.
    Done(Vec<Value>),
    Failed(ApiError),
}

impl Run {
    pub(crate) fn new(reply: Reply, output: Output, app: &App) -> Self {
        Self {
            reply: Some(reply),
            output,
            engine: app.engine.clone(),
            outcomes: Arc::clone(&app.outcomes),
            end: End::Dropped,
        }
    }

    /// Waits for the next event.
    pub(crate) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        let event = match &mut self.reply {
            Some(reply) => ready!(reply.poll_next(cx)),
            None => None,
        };
        let (chunks, progress) = match event {
            Some(event) => self.output.push(event),
            None => (Vec::new(), Progress::Failed("the reply broke off".to_owned())),
        };
        Poll::Ready(match progress {
            Progress::Running => Step::Chunks(chunks),
            Progress::Done => {
                self.reply = None;
                self.end = End::Done;
                Step::Done(chunks)
            }
            Progress::Failed(message) => {
                self.reply = None;
                self.end = End::Failed(message.clone());
                Step::Failed(if self.engine.stopped().is_some() {
                    ApiError::stopped(message)
                } else {
                    ApiError::failed(message)
                })
            }
        })
    }

    /// How far the reply is.
    pub(crate) fn progress(&self) -> Value {
        self.output.report().progress()
    }

    /// The whole reply as one body.
    pub(crate) async fn whole(mut self) -> Result<Json<Value>, ApiError> {
        loop {
            match poll_fn(|cx| self.poll_step(cx)).await {
                Step::Chunks(_) => {}
                Step::Done(_) => return Ok(Json(self.output.body())),
                Step::Failed(error) => return Err(error),
            }
        }
    }
}

/// The request's log line, and its place in the counts.
impl Drop for Run {
    fn drop(&mut self) {
        let report = self.output.report();
        let (finish, error) = match &self.end {
            End::Dropped => ("client_gone", None),
            End::Failed(message) => ("failed", Some(message.as_str())),
            End::Done => (report.finish.unwrap_or("unknown"), None),
        };
        self.outcomes.count(finish);
        tracing::info!(
            id = self.output.id(),
            prompt_tokens = report.prompt_tokens,
            cached_tokens = report.cached_tokens,
            completion_tokens = report.completion_tokens,
            token_sha = report.token_sha,
            finish,
            queue_s = report.timings.queue_s,
            prompt_s = report.timings.prompt_s,
            decode_s = report.timings.decode_s,
            error,
            "request"
        );
    }
}
