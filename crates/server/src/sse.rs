//! A reply as server-sent events: a chunk an event, `[DONE]` at the end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;

use crate::run::{Run, Step};

/// A comment is sent where nothing else was for this long, so that no proxy takes a reply that
/// waits for its slot or its prompt for a dead one.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl Run {
    pub(crate) fn into_sse(self) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        let events = Events { run: Some(self), ready: VecDeque::new() };
        Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("waiting"))
    }
}

struct Events {
    /// Gone once nothing more comes of it.
    run: Option<Run>,
    /// Data of events to send.
    ready: VecDeque<String>,
}

impl Stream for Events {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(Event::default().data(data))));
            }
            let Some(run) = &mut self.run else { return Poll::Ready(None) };
            let (last, is_end) = match ready!(run.poll_step(cx)) {
                Step::Chunks(chunks) => (chunks, false),
                Step::Done(chunks) => (chunks, true),
                Step::Failed(error) => (vec![error.body()], true),
            };
            self.ready.extend(last.iter().map(ToString::to_string));
            if is_end {
                self.ready.push_back("[DONE]".to_owned());
                self.run = None;
            }
        }
    }
}
