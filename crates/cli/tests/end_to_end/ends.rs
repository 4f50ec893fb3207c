//! The way out of a server: what running, waiting and new requests get, and when it ends; and what Ctrl-C
//! leaves of a run.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Server, command, read_head, read_response, wait_for};

fn send(server: &Server, signal: &str) {
    let id = server.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill").success());
}

/// A streamed reply far too long to end, up to its first event.
fn endless(server: &Server) -> BufReader<TcpStream> {
    begun(server, 16000)
}

fn body(max_tokens: usize) -> Value {
    json!({"prompt": [5, 9, 2], "max_tokens": max_tokens, "seed": 1, "ignore_eos": true})
}

/// A streamed reply up to its first event.
fn begun(server: &Server, max_tokens: usize) -> BufReader<TcpStream> {
    let mut body = body(max_tokens);
    body["stream"] = json!(true);
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

/// The data of a stream's events from here to its end.
fn rest(mut reader: BufReader<TcpStream>) -> Vec<String> {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("readable");
    rest.lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
}

#[test]
fn after_a_first_signal_waiting_and_new_requests_are_refused_and_a_second_ends_it() {
    for second in ["-TERM", "-INT"] {
        let mut server =
            Server::start(&["--context", "16384", "--parallel", "1", "--drain-seconds", "3600"]);
        let mut running = endless(&server);
        let short = json!({"prompt": [7], "max_tokens": 4}).to_string();
        let waiting = server.open("POST", "/v1/completions", &short);
        wait_for(|| health(&server)["waiting"] == 1);
        send(&server, "-TERM");
        let refused = |(status, text): (u16, String)| {
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let code = &answer["error"]["code"];
            assert_eq!((status, code), (503, &json!("engine_stopped")), "{text}");
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
        send(&server, second);
        assert!(server.wait().success(), "{second}");
        // The connection ends; that it breaks off is no matter.
        let _ = running.read_to_string(&mut String::new());
    }
}

#[test]
fn a_reply_that_outlasts_its_time_ends_with_an_error() {
    let mut server = Server::start(&["--context", "16384", "--drain-seconds", "1"]);
    let running = endless(&server);
    let signalled = Instant::now();
    send(&server, "-TERM");
    let events = rest(running);
    assert!(signalled.elapsed() >= Duration::from_secs(1), "{:?}", signalled.elapsed());
    let [.., last, done] = &events[..] else { panic!("events: {events:?}") };
    let last: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!(last["error"]["code"], "engine_stopped");
    assert_eq!((&last["error"]["message"], &**done), (&json!("server is stopping"), "[DONE]"));
    assert!(server.wait().success());
}

#[test]
fn a_reply_that_ends_in_time_is_whole() {
    let mut server = Server::start(&["--context", "2048", "--drain-seconds", "3600"]);
    let wanted = server.post("/v1/completions", &body(800));
    let running = begun(&server, 800);
    send(&server, "-TERM");
    let events = rest(running);
    let [.., last, done] = &events[..] else { panic!("events: {events:?}") };
    let found: Value = serde_json::from_str(last).expect("JSON");
    assert_eq!((&found["usage"]["completion_tokens"], &**done), (&json!(800), "[DONE]"));
    assert_eq!(found["finback"]["token_sha"], wanted["finback"]["token_sha"]);
    assert!(server.wait().success());
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
    wait_for(|| !names().is_empty());
    // One while it loads ends it; one more ends a reply that has begun, and its writing.
    let id = child.id().to_string();
    let mut status = None;
    wait_for(|| {
        status = child.try_wait().expect("a status");
        if status.is_none() {
            // It may have ended meanwhile.
            let _ = Command::new("kill").args(["-INT", &id]).stderr(Stdio::null()).status();
        }
        status.is_some()
    });
    let status = status.expect("it has ended");
    assert_eq!(status.code(), Some(130), "{status}");
    let left = names();
    assert!(left.iter().all(|name| name == "rows"), "{left:?}");
}

#[test]
fn what_sigterm_ends_leaves_nothing_temporary() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    let file = format!("{path}/rows");
    let run = ["run", "hi", "--ignore-eos", "--max-tokens", "16000", "--logits", &file];
    let round = ["bench", "round", "--device", "emu", "--widths", "small", "--rounds", "1000"];
    for args in [&run[..], &round] {
        let mut command = command(args);
        command.env("TMPDIR", path).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("runs");
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(path).expect("readable").flatten();
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        };
        wait_for(|| !names().is_empty());
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
        // A machine may be so slow that it ends by itself meanwhile.
        let code = child.wait().expect("ends").code();
        assert!(matches!(code, Some(0 | 143)), "{args:?}: {code:?}");
        let left = names();
        assert!(left.iter().all(|name| name == "rows"), "{args:?}: {left:?}");
    }
}
