//! Bodies in, prompts out; tokens in, replies out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test's helper may panic as the test may"
)]

mod fuzz;
mod refusals;
mod replies;
mod requests;

use std::sync::{Arc, OnceLock};

use finback_engine::{DraftCount, Event, FinishReason, Prefix, Timings};
use finback_protocol::{Api, ApiOptions, Defaults, Output, Prepared, Progress};
use finback_tokenizer::{SYNTHETIC, Tokenizer};
use serde_json::Value;

const EOS: u32 = 1;

fn tokenizer() -> Arc<Tokenizer> {
    static ONE: OnceLock<Arc<Tokenizer>> = OnceLock::new();
    Arc::clone(ONE.get_or_init(|| Arc::new(Tokenizer::from_bytes(SYNTHETIC).unwrap())))
}

fn api() -> Api {
    let options = ApiOptions {
        model: "demo".to_owned(),
        aliases: vec!["deepseek-chat".to_owned()],
        context: 4096,
        end_tokens: vec![EOS],
        defaults: Defaults::default(),
        numerics: "release",
    };
    Api::new(tokenizer(), options)
}

/// The ids of `text`, special tokens by their spelling.
fn ids(text: &str) -> Vec<u32> {
    let tokenizer = tokenizer();
    tokenizer.encode(text, &tokenizer.special_ranges(text)).unwrap()
}

/// A token for each byte of `text`.
fn byte_ids(text: &[u8]) -> Vec<u32> {
    let tokenizer = tokenizer();
    text.iter().map(|&byte| (3..259).find(|&id| tokenizer.bytes(id) == [byte]).unwrap()).collect()
}

fn timings() -> Timings {
    Timings {
        queue_s: 0.25,
        prompt_s: 2.0,
        decode_s: 0.5,
        prompt_tokens: 10,
        rounds: 4,
        drafted: 8,
        accepted: 3,
        drafts: std::array::from_fn(|place| match place {
            0 => DraftCount { offered: 4, accepted: 2 },
            1 => DraftCount { offered: 4, accepted: 1 },
            _ => DraftCount::default(),
        }),
    }
}

fn token(id: u32) -> Event {
    Event::Token { id, logits: None, logprobs: None, timings: timings() }
}

/// Sends the events of a reply of `ids`; returns the chunks and how it stood at the end. As the
/// server, it stops once the reply is whole.
fn play(output: &mut Output, ids: &[u32], reason: FinishReason) -> (Vec<Value>, Progress) {
    let prefix = Some(Prefix { restored: 4, matched: 6, kept: vec![2, 4] });
    let events = std::iter::once(Event::Started { cached_tokens: 4, prefix })
        .chain([Event::Prompt { done: 9 }])
        .chain(ids.iter().map(|&id| token(id)))
        .chain([Event::Finished { reason, timings: timings() }]);
    let mut chunks = Vec::new();
    for event in events {
        let (more, progress) = output.push(event);
        chunks.extend(more);
        if progress != Progress::Running {
            return (chunks, progress);
        }
    }
    (chunks, Progress::Running)
}

/// The whole reply to `body`.
fn whole(prepared: Prepared, ids: &[u32], reason: FinishReason) -> Value {
    let mut output = prepared.output;
    let (chunks, progress) = play(&mut output, ids, reason);
    assert_eq!((chunks.len(), progress), (0, Progress::Done));
    output.body()
}

/// The chunks of the reply to `body`.
fn streamed(prepared: Prepared, ids: &[u32], reason: FinishReason) -> Vec<Value> {
    assert!(prepared.stream);
    let mut output = prepared.output;
    let (chunks, progress) = play(&mut output, ids, reason);
    assert_eq!(progress, Progress::Done);
    chunks
}
