//! Penalties, biases and log-probabilities: undrafted as drafted, alone as in company, whole as streamed.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use crate::support::Server;

/// What a client is told of a reply's tokens.
#[derive(Debug, PartialEq)]
struct Told {
    sha: String,
    /// Every list of the log-probabilities, its pieces joined.
    logprobs: BTreeMap<String, Vec<Value>>,
}

/// A request with every field at work, and the same without them.
fn request(stream: usize) -> (&'static str, Value, Value) {
    let (path, mut plain) = if stream.is_multiple_of(2) {
        let content = "Who lives near the sea? ".repeat(1 + stream);
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": content}]}))
    } else {
        let ids: Vec<usize> = (0..4 + 9 * stream).map(|at| 5 + (at * 11 + stream) % 90).collect();
        ("/v1/completions", json!({"prompt": ids}))
    };
    plain["max_tokens"] = json!(28 - 3 * stream);
    plain["temperature"] = json!(if stream.is_multiple_of(4) { 0.0 } else { 0.8 });
    plain["seed"] = json!(stream + 1);
    plain["ignore_eos"] = json!(true);
    let mut body = plain.clone();
    body["presence_penalty"] = json!(2.0);
    body["frequency_penalty"] = json!(1.5);
    body["logit_bias"] = json!({"20": 7, "41": -100, "300": 6.5});
    if stream.is_multiple_of(2) {
        body["logprobs"] = json!(true);
        body["top_logprobs"] = json!(4);
    } else {
        body["logprobs"] = json!(4);
    }
    (path, body, plain)
}

/// Asks, and joins what the reply's pieces say; `drafts` were offered where the second value says so.
fn ask(server: &Server, path: &str, body: &Value) -> (Told, bool) {
    let pieces = match body["stream"] == true {
        true => server.stream(path, body),
        false => vec![server.post(path, body)],
    };
    let mut logprobs: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for piece in &pieces {
        for (list, items) in piece["choices"][0]["logprobs"].as_object().into_iter().flatten() {
            let items = items.as_array().into_iter().flatten().cloned();
            logprobs.entry(list.clone()).or_default().extend(items);
        }
    }
    logprobs.retain(|_, items| !items.is_empty());
    let own = pieces.iter().rev().map(|piece| &piece["finback"]).find(|own| own.is_object());
    let own = own.unwrap_or_else(|| panic!("a finback object in {pieces:?}"));
    let sha = own["token_sha"].as_str().expect("a hash").to_owned();
    (Told { sha, logprobs }, own["drafts"]["offered"].as_u64().is_some_and(|count| count > 0))
}

#[test]
fn what_bends_and_reports_choices_is_the_same_however_it_runs() {
    const STREAMS: usize = 6;
    let start =
        |more: &[&str]| Server::start(&[&["--context", "1024", "--parallel", "3"], more].concat());
    let (serial, server) = (start(&["--no-drafts"]), start(&["--plain-streams", "65"]));
    let requests: Vec<_> = (0..STREAMS).map(request).collect();
    let mut bent = 0;
    let alone: Vec<Told> = requests
        .iter()
        .enumerate()
        .map(|(stream, (path, body, plain))| {
            let (told, offered) = ask(&serial, path, body);
            assert!(!offered, "stream {stream}: undrafted");
            // As many entries as tokens, but for those that make no whole character.
            let count = |list: &str| told.logprobs.get(list).map_or(0, Vec::len);
            let entries = count("tokens") + count("content") + count("reasoning_content");
            let tokens = body["max_tokens"].as_u64().expect("a number") as usize;
            assert!(entries + 6 >= tokens, "stream {stream}: {entries} of {tokens}");
            bent += usize::from(told.sha != ask(&serial, path, plain).0.sha);
            told
        })
        .collect();
    assert!(bent >= STREAMS / 2, "the fields change {bent} replies");
    for streamed in [false, true] {
        let body = |stream: usize| {
            let (path, mut body, _) = request(stream);
            body["stream"] = json!(streamed);
            (path, body)
        };
        for (stream, wanted) in alone.iter().enumerate() {
            let (path, body) = body(stream);
            let (found, offered) = ask(&server, path, &body);
            assert_eq!(&found, wanted, "stream {stream}, drafted, streamed {streamed}");
            assert!(offered, "stream {stream}: drafted");
        }
        thread::scope(|scope| {
            for (stream, wanted) in alone.iter().enumerate() {
                let (server, (path, mut body)) = (&server, body(stream));
                scope.spawn(move || {
                    body["draft"] = json!(stream % 3 != 2);
                    let (found, _) = ask(server, path, &body);
                    assert_eq!(&found, wanted, "stream {stream} in company, streamed {streamed}");
                });
            }
        });
    }
}
