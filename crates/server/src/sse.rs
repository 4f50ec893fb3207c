//! A reply as server-sent events: a chunk an event, `[DONE]` at the end, and comments in long silences.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use futures_core::Stream;
use serde_json::json;
use tokio::time::{Instant, Sleep, sleep};

use crate::run::{Run, Step};

impl Run {
    /// The events; a comment comes where nothing else has for `keepalive`, so that no proxy takes a
    /// reply that waits for its slot or its prompt for a dead one.
    pub(crate) fn into_sse(
        self,
        keepalive: Duration,
    ) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        let silence = Box::pin(sleep(keepalive));
        Sse::new(Events { run: Some(self), ready: VecDeque::new(), keepalive, silence })
    }
}

struct Events {
    /// Gone once nothing more comes of it.
    run: Option<Run>,
    /// Data of events to send.
    ready: VecDeque<String>,
    keepalive: Duration,
    /// Ends where a comment is due.
    silence: Pin<Box<Sleep>>,
}

impl Events {
    /// The next event's data; waits where there is none yet.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Poll::Ready(Some(data));
            }
            let Some(run) = &mut self.run else { return Poll::Ready(None) };
            let (last, is_end) = match run.poll_step(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Step::Chunks(chunks)) => (chunks, false),
                Poll::Ready(Step::Done(chunks)) => (chunks, true),
                Poll::Ready(Step::Failed(error)) => (vec![error.body()], true),
            };
            self.ready.extend(last.iter().map(ToString::to_string));
            if is_end {
                self.ready.push_back("[DONE]".to_owned());
                self.run = None;
            }
        }
    }

    /// The comment of a silence that has lasted: how far the reply is.
    fn poll_comment(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        self.silence.as_mut().poll(cx).map(|()| {
            let progress = self.run.as_ref().map(Run::progress);
            json!({"finback": progress}).to_string()
        })
    }
}

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let event = match self.poll_data(cx) {
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(data)) => Event::default().data(data),
            Poll::Pending => match self.poll_comment(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(text) => Event::default().comment(text),
            },
        };
        let next = Instant::now() + self.keepalive;
        self.silence.as_mut().reset(next);
        Poll::Ready(Some(Ok(event)))
    }
}
