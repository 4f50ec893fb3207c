//! How requests and the engine end: cancels, faults, panics, stops, limits. Never a hang, never a neighbour.
#![allow(clippy::unwrap_used)]

mod ends;
mod faults;
mod rounds;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use finback_engine::testing::{Call, FakeRunner, hashed, serial_reply};
use finback_engine::{Engine, Event, Options, Reply, Request};
use finback_model::{RunnerResult, SlotId};

pub(crate) const CONTEXT: usize = 64;
pub(crate) const VOCAB: usize = 50;

pub(crate) fn fake(slots: usize) -> FakeRunner {
    FakeRunner::new(FakeRunner::small(slots, CONTEXT, VOCAB), hashed(VOCAB))
}

pub(crate) fn start(runner: FakeRunner, parallel: usize) -> Engine {
    Engine::start(Box::new(runner), Options { parallel, draft_tokens: 0, ..Options::default() })
        .unwrap()
}

pub(crate) fn request(first: u32) -> Request {
    Request::greedy(vec![first, 2, 3, 4, 5], 20)
}

pub(crate) fn drain(reply: &mut Reply) -> (Vec<u32>, Event) {
    let mut tokens = Vec::new();
    while let Some(event) = reply.next_blocking() {
        match event {
            Event::Token { id, .. } => tokens.push(id),
            Event::Finished { .. } | Event::Failed { .. } => return (tokens, event),
            _ => {}
        }
    }
    panic!("the reply ended without a last event");
}

pub(crate) fn failure(reply: &mut Reply) -> String {
    match drain(reply).1 {
        Event::Failed { message } => message,
        other => panic!("{other:?} instead of a failure"),
    }
}

/// Holds if the reply is whole and the serial one.
pub(crate) fn check(reply: &mut Reply, request: &Request) {
    let (tokens, last) = drain(reply);
    let (want, reason) = serial_reply(&hashed(VOCAB), CONTEXT, request);
    assert_eq!(tokens, want);
    assert!(matches!(last, Event::Finished { reason: r, .. } if Some(r) == reason), "{last:?}");
}

/// Lets one held call through.
pub(crate) type Permits = SyncSender<()>;

pub(crate) type Count = Arc<AtomicUsize>;

/// A hook that lets one call of a kind through for each permit, and counts those that began.
pub(crate) fn gate(
    held: Call,
) -> (Permits, Count, impl FnMut(Call, &[SlotId]) -> RunnerResult<()> + Send) {
    let (permits, gate): (Permits, Receiver<()>) = sync_channel(1000);
    let count = Count::default();
    let counter = Arc::clone(&count);
    let hook = move |call, _: &[SlotId]| {
        if call == held {
            counter.fetch_add(1, SeqCst);
            // Without its permits the gate stands open.
            let _ = gate.recv();
        }
        Ok(())
    };
    (permits, count, hook)
}

pub(crate) fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}
