//! Replies in company against the same requests alone and undrafted: streams, temperatures, drafts,
//! staggered arrivals, mixed lengths, cancels.

use std::io::BufRead;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Server, wait_for};

/// Requests that run at once; more streams than that wait for each other.
const PARALLEL: &str = "4";
/// Streams that are there at once.
const LEVELS: [usize; 5] = [1, 2, 3, 4, 8];
const TEMPERATURES: [f64; 2] = [0.0, 0.9];

/// The request of a stream: chats and token ids, prompts and replies of several lengths.
fn request(stream: usize, temperature: f64) -> (&'static str, Value) {
    let (path, mut body) = if stream.is_multiple_of(3) {
        let content = "What is near the sea? ".repeat(1 + stream / 3);
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": content}]}))
    } else {
        let ids: Vec<usize> = (0..3 + 11 * stream).map(|at| 5 + (at * 7 + stream) % 90).collect();
        ("/v1/completions", json!({"prompt": ids}))
    };
    body["max_tokens"] = json!(24 - 5 * (stream % 4));
    body["temperature"] = json!(temperature);
    body["seed"] = json!(stream + 1);
    body["ignore_eos"] = json!(true);
    (path, body)
}

/// The `finback` object of a whole reply, streamed or not.
fn reply(server: &Server, (path, body): &(&str, Value)) -> Value {
    let whole = if body["stream"] == true {
        let events = server.stream(path, body);
        events.into_iter().rev().find(|event| event["finback"].is_object()).expect("a last event")
    } else {
        server.post(path, body)
    };
    assert_eq!(whole["finback"]["token_sha"].as_str().map(str::len), Some(64), "{whole}");
    whole["finback"].clone()
}

/// Reads the first pieces of a streamed reply and goes away.
fn cancel(server: &Server, stream: usize, pieces: usize) {
    let (path, mut body) = request(stream, 0.9);
    body["stream"] = json!(true);
    body["max_tokens"] = json!(200);
    let mut reader = server.open("POST", path, &body.to_string());
    let (mut line, mut seen) = (String::new(), 0);
    while seen < pieces {
        line.clear();
        assert!(reader.read_line(&mut line).expect("readable") > 0, "the reply ends early");
        seen += usize::from(line.starts_with("data: "));
    }
}

/// One session: `streams` requests at once, staggered ones with cancelled replies among them.
fn session(server: &Server, streams: usize, temperature: f64, staggered: bool, alone: &[Value]) {
    thread::scope(|scope| {
        for (stream, alone) in alone.iter().enumerate().take(streams) {
            scope.spawn(move || {
                if staggered {
                    thread::sleep(Duration::from_millis(13 * stream as u64));
                }
                let (path, mut body) = request(stream, temperature);
                body["stream"] = json!((stream + streams).is_multiple_of(2));
                if (stream + streams).is_multiple_of(3) {
                    body["draft"] = json!(false);
                }
                // Half of them run their prompts, whatever was kept of them.
                body["cache"] = json!((stream + streams / 2).is_multiple_of(2));
                let found = reply(server, &(path, body));
                assert_eq!(
                    found["token_sha"], alone["token_sha"],
                    "stream {stream} of {streams}, temperature {temperature}, staggered {staggered}"
                );
            });
        }
        for cancelled in 0..if staggered { streams / 2 } else { 0 } {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(20 * cancelled as u64));
                cancel(server, cancelled, 1 + 3 * cancelled);
            });
        }
    });
}

#[test]
fn every_reply_in_company_is_the_one_alone_and_undrafted() {
    let start = |drafts: &[&str]| {
        Server::start(&[&["--context", "1024", "--parallel", PARALLEL], drafts].concat())
    };
    let (serial, server) = (start(&["--no-drafts"]), start(&["--plain-streams", "65"]));
    for temperature in TEMPERATURES {
        let requests: Vec<_> = (0..LEVELS[4]).map(|i| request(i, temperature)).collect();
        let alone: Vec<Value> = requests.iter().map(|ask| reply(&serial, ask)).collect();
        for (stream, (ask, alone)) in requests.iter().zip(&alone).enumerate() {
            let drafted = reply(&server, ask);
            assert_eq!(drafted["token_sha"], alone["token_sha"], "stream {stream}, drafted");
            assert_eq!(alone["drafts"]["offered"], 0);
            assert!(drafted["drafts"]["offered"].as_u64().is_some_and(|n| n > 0), "{drafted}");
        }
        for streams in LEVELS {
            for staggered in [false, true] {
                session(&server, streams, temperature, staggered, &alone);
            }
        }
    }
    let idle = |server: &Server| {
        let health: Value =
            serde_json::from_str(&server.request("GET", "/health", "").1).expect("JSON");
        (health["running"].clone(), health["waiting"].clone()) == (json!(0), json!(0))
    };
    // Cancelled requests do not go on.
    wait_for(|| idle(&server));
    let request = request(7, 0.0);
    let (wanted, found) = (reply(&serial, &request), reply(&server, &request));
    assert_eq!(found["token_sha"], wanted["token_sha"], "after the cancels");
}
