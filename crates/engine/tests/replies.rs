//! Replies of the engine over the fake runner equal those of a pure function, whatever runs beside.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use finback_engine::testing::{FakeRunner, hashed, serial_reply};
use finback_engine::{Engine, Event, FinishReason, Options, Reply, Request};
use finback_ops::{Penalties, Sampling};
use proptest::prelude::*;

const CONTEXT: usize = 48;
const VOCAB: usize = 23;

fn engine(
    slots: usize,
    draft_tokens: usize,
    plain_streams: usize,
    draft_confidence: f32,
) -> Engine {
    let info = FakeRunner::small(slots, CONTEXT, VOCAB);
    let runner = Box::new(FakeRunner::new(info, hashed(VOCAB)));
    Engine::start(
        runner,
        Options {
            parallel: slots,
            draft_tokens,
            plain_streams,
            draft_confidence,
            ..Options::default()
        },
    )
    .unwrap()
}

/// Reads a reply to its end: its tokens, and its last event.
fn drain(reply: &mut Reply) -> (Vec<u32>, Event) {
    let mut tokens = Vec::new();
    while let Some(event) = reply.next_blocking() {
        match event {
            Event::Token { id, .. } => tokens.push(id),
            Event::Started { .. } | Event::Prompt { .. } | Event::PromptLogits { .. } => {}
            Event::Finished { .. } | Event::Failed { .. } => return (tokens, event),
        }
    }
    panic!("the reply ended without a last event");
}

fn finished(event: &Event) -> Option<FinishReason> {
    match event {
        Event::Finished { reason, .. } => Some(*reason),
        _ => None,
    }
}

/// What a client does with its reply.
#[derive(Debug, Clone, Copy)]
enum Reader {
    Drains,
    /// Drops the reply after this many events.
    Leaves(usize),
}

fn request() -> impl Strategy<Value = Request> {
    let id = 0..VOCAB as u32;
    let prompt = prop::collection::vec(id.clone(), 1..CONTEXT);
    let sampling = (any::<bool>(), 0..3u64).prop_map(|(greedy, seed)| Sampling {
        temperature: if greedy { 0.0 } else { 1.0 },
        seed,
        ..Sampling::GREEDY
    });
    // Steps that f32 adds exactly, near the fake row's own differences of 1.
    let step = (-4..=4i8).prop_map(|n| f32::from(n) * 0.5);
    let penalties =
        (any::<bool>(), step.clone(), step.clone()).prop_map(|(some, presence, frequency)| {
            if some { Penalties { presence, frequency } } else { Penalties::default() }
        });
    let bias = prop::collection::btree_map(id.clone(), step, 0..3);
    let ends = prop::collection::vec(id, 0..3);
    (prompt, 1..60usize, sampling, ends, penalties, bias, any::<bool>()).prop_map(
        |(prompt, max_tokens, sampling, end_tokens, penalties, bias, drafts)| Request {
            sampling,
            end_tokens,
            penalties,
            bias: bias.into_iter().collect(),
            drafts,
            ..Request::greedy(prompt, max_tokens)
        },
    )
}

fn reader() -> impl Strategy<Value = Reader> {
    prop_oneof![3 => Just(Reader::Drains), 1 => (0..12usize).prop_map(Reader::Leaves)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_reply_is_the_serial_one(
        jobs in prop::collection::vec((request(), reader()), 1..12),
        slots in 1..5usize,
        draft_tokens in 0..7usize,
        plain_streams in 2..5usize,
        draft_confidence in prop_oneof![Just(0.0f32), Just(0.2)],
    ) {
        let engine = engine(slots, draft_tokens, plain_streams, draft_confidence);
        let handle = engine.handle();
        let next = hashed(VOCAB);
        std::thread::scope(|scope| {
            let mut clients = Vec::new();
            for (request, reader) in &jobs {
                let mut reply = handle.submit(request.clone()).unwrap();
                clients.push(scope.spawn(move || match *reader {
                    Reader::Drains => Some(drain(&mut reply)),
                    Reader::Leaves(after) => {
                        (0..after).for_each(|_| drop(reply.next_blocking()));
                        None
                    }
                }));
            }
            for ((request, _), client) in jobs.iter().zip(clients) {
                let (tokens, reason) = serial_reply(&next, CONTEXT, request);
                if let Some((got, last)) = client.join().unwrap() {
                    prop_assert_eq!(got, tokens);
                    prop_assert_eq!(finished(&last), reason);
                }
            }
            Ok(())
        })?;
        // Whatever was cancelled, a later reply is right and nothing stays behind.
        let request = Request::greedy(vec![1, 2, 3], 9);
        let (tokens, _) = drain(&mut handle.submit(request.clone()).unwrap());
        prop_assert_eq!(tokens, serial_reply(&next, CONTEXT, &request).0);
        engine.stop(Duration::from_secs(60));
        prop_assert_eq!(handle.load(), Default::default());
    }
}
