//! The way out of a server: what running, waiting and new requests get, and when it ends; and what Ctrl-C
//! leaves of a run.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Server, command, read_head, read_response};

/// A second after which something that should be at once is late; a machine at work is slow.
const SOON: Duration = Duration::from_secs(10);

fn send(server: &Server, signal: &str) {
    let id = server.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
}

/// Its end, and how long it took.
fn end(server: &mut Server) -> (ExitStatus, Duration) {
    let start = Instant::now();
    (server.wait(), start.elapsed())
}

/// A streamed reply far too long to end, up to its first event.
fn endless(server: &Server) -> BufReader<TcpStream> {
    let body = json!({
        "prompt": [5, 9, 2], "max_tokens": 16000, "seed": 1, "ignore_eos": true, "stream": true,
    });
    let mut reader = server.open("POST", "/v1/completions", &body.to_string());
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        assert!(reader.read_line(&mut line).expect("readable") > 0, "a first event");
    }
    reader
}

fn health(server: &Server) -> Value {
    serde_json::from_str(&server.request("GET", "/health", "").1).expect("JSON")
}

#[test]
fn after_a_first_signal_replies_have_their_time_and_then_end_with_an_error() {
    let mut server =
        Server::start(&["--context", "16384", "--parallel", "1", "--drain-seconds", "2"]);
    let mut running = endless(&server);
    let short = json!({"prompt": [7], "max_tokens": 4}).to_string();
    let waiting = server.open("POST", "/v1/completions", &short);
    let start = Instant::now();
    while health(&server)["waiting"] != 1 {
        assert!(start.elapsed() < SOON, "it waits: {}", health(&server));
    }
    send(&server, "-TERM");
    let signalled = Instant::now();
    let refused = |(status, text): (u16, String)| {
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("engine_stopped")), "{text}");
    };
    // What waits fails at once, and who comes now is told when to come again.
    refused(read_response(waiting));
    let mut new = server.open("POST", "/v1/completions", &short);
    let (status, head) = read_head(&mut new);
    assert!(head.to_ascii_lowercase().contains("\r\nretry-after: 10\r\n"), "{head}");
    let mut text = String::new();
    new.read_to_string(&mut text).expect("readable");
    refused((status, text));
    assert_eq!(health(&server)["status"], "draining");
    // What runs goes on for two seconds, then ends with an error and the end of its stream.
    let mut rest = String::new();
    running.read_to_string(&mut rest).expect("readable");
    assert!(signalled.elapsed() >= Duration::from_millis(1900), "{:?}", signalled.elapsed());
    let events: Vec<&str> = rest.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let [.., last, done] = events[..] else { panic!("events: {rest:?}") };
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["error"]["code"], "engine_stopped");
    assert_eq!((&last["error"]["message"], done), (&json!("server is stopping"), "[DONE]"));
    assert!(events.len() > 3, "it went on after the signal: {rest}");
    let (status, took) = end(&mut server);
    assert!(status.success() && took < SOON, "{status}, {took:?}");
}

#[test]
fn a_reply_that_ends_in_time_is_whole() {
    let mut server = Server::start(&["--context", "2048", "--drain-seconds", "60"]);
    let body = json!({"prompt": [5, 9, 2], "max_tokens": 400, "seed": 1, "ignore_eos": true});
    let wanted = server.post("/v1/completions", &body);
    let running = server.open("POST", "/v1/completions", &body.to_string());
    let start = Instant::now();
    while health(&server)["running"] != 1 {
        assert!(start.elapsed() < SOON, "it runs: {}", health(&server));
    }
    send(&server, "-TERM");
    let (status, text) = read_response(running);
    let found: Value = serde_json::from_str(&text).expect("JSON");
    let tokens = |reply: &Value| reply["usage"]["completion_tokens"].clone();
    assert_eq!((status, tokens(&found)), (200, tokens(&wanted)), "{text}");
    assert_eq!(found["finback"]["token_sha"], wanted["finback"]["token_sha"]);
    let (status, took) = end(&mut server);
    assert!(status.success() && took < SOON, "{status}, {took:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for second in ["-TERM", "-INT"] {
        let mut server = Server::start(&["--context", "16384", "--drain-seconds", "600"]);
        let mut running = endless(&server);
        send(&server, "-TERM");
        let start = Instant::now();
        while health(&server)["status"] != "draining" {
            assert!(start.elapsed() < SOON, "it drains: {}", health(&server));
        }
        send(&server, second);
        let (status, took) = end(&mut server);
        assert!(status.success() && took < SOON, "{second}: {status}, {took:?}");
        // The connection ends; that it breaks off is no matter.
        let _ = running.read_to_string(&mut String::new());
    }
}

#[test]
fn a_run_that_is_interrupted_leaves_no_temporary_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(directory.path()).expect("readable");
        entries
            .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
            .collect()
    };
    let file = directory.path().join("rows").into_os_string().into_string().expect("text");
    let args = ["run", "hi", "--ignore-eos", "--max-tokens", "30000", "--logits", &file];
    let mut child =
        command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
    let start = Instant::now();
    while names().is_empty() {
        assert!(start.elapsed() < SOON, "a temporary file");
    }
    // One while it loads ends it; one more ends a reply that has begun, and its writing.
    let id = child.id().to_string();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a status") {
            break status;
        }
        assert!(start.elapsed() < 6 * SOON, "it ends");
        // It may have ended meanwhile.
        let _ = Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status();
    };
    assert!(matches!(status.code(), Some(0 | 130)), "{status}");
    let left = names();
    assert!(left.iter().all(|name| name == "rows"), "{left:?}");
}
