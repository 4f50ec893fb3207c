//! A server whose replies are a function of the request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use finback_bench::Target;

/// What is answered: a status with a body, or events.
pub enum Answer {
    Body(u16, String),
    /// Data of events, sent as they are; nothing is added.
    Events(Vec<String>),
    /// The same, each once the pace has been asked with its index.
    Paced(Pace, Vec<String>),
}

/// Returns when an event is due.
pub type Pace = Box<dyn Fn(usize) + Send>;

/// The first event after a while, each of the others a while after the one before.
pub fn slowly(first: Duration, each: Duration) -> Pace {
    Box::new(move |event| std::thread::sleep(if event == 0 { first } else { each }))
}

type Answers = dyn Fn(&str, &Value) -> Answer + Send + Sync;

/// Answers every POST by `answer` (route, body) and GETs by route with a null body.
pub fn serve(answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> Target {
    Target::connect(&address(answer), None, None).unwrap()
}

/// The address of [`serve`]'s server.
pub fn address(answer: impl Fn(&str, &Value) -> Answer + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer: Arc<Answers> = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || one(stream.unwrap(), &*answer));
        }
    });
    url
}

fn one(mut stream: TcpStream, answer: &Answers) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let lower = head.to_lowercase();
    let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).unwrap();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (status, kind, text) = match answer(&path, &body) {
        Answer::Body(status, text) => (status, "application/json", text),
        Answer::Events(events) => {
            let text = events.iter().map(|event| format!("data: {event}\n\n")).collect();
            (200, "text/event-stream", text)
        }
        Answer::Paced(pace, events) => return paced(&mut stream, &pace, &events),
    };
    // A client that has left is no failure of the server.
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: \
         close\r\n\r\n{text}",
        text.len()
    );
}

fn paced(stream: &mut TcpStream, pace: &Pace, events: &[String]) {
    let head = "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(head.as_bytes());
    for (index, event) in events.iter().enumerate() {
        pace(index);
        let _ = write!(stream, "data: {event}\n\n");
    }
}

/// What a request says, whatever its route: its prompt, or the texts of its messages.
pub fn said(body: &Value) -> String {
    let messages = body["messages"].as_array().into_iter().flatten();
    let texts: Vec<&str> = messages.filter_map(|message| message["content"].as_str()).collect();
    body["prompt"].as_str().map_or_else(|| texts.join("\n"), str::to_owned)
}

/// The events of a streamed reply of 8 pieces, the last of them `text`.
pub fn events(text: &str, usage: &Value, own: &Value) -> Vec<String> {
    let piece = |text: &str| json!({"choices": [{"text": text}]}).to_string();
    let mut events = vec![piece("word "); 7];
    events.push(piece(text));
    let last = json!({"text": "", "finish_reason": "length"});
    events.push(json!({"choices": [last], "usage": usage, "finback": own}).to_string());
    events.push("[DONE]".into());
    events
}

/// The model list, an idle health, and `reply` for everything else.
pub fn usual(path: &str, reply: impl FnOnce() -> Answer) -> Answer {
    match path {
        "/v1/models" => {
            Answer::Body(200, json!({"data": [{"id": "m", "owned_by": "fake"}]}).to_string())
        }
        "/health" => Answer::Body(200, json!({"running": 0, "waiting": 0}).to_string()),
        _ => reply(),
    }
}

/// A whole reply to `body`, streamed or not, with `own` as its `finback` object.
pub fn reply(body: &Value, own: &Value) -> Answer {
    let usage = json!({"completion_tokens": 8});
    if body["stream"] != true {
        let whole = json!({
            "choices": [{"text": "words", "finish_reason": "length"}], "usage": usage,
            "finback": own,
        });
        return Answer::Body(200, whole.to_string());
    }
    Answer::Events(events("word ", &usage, own))
}

/// A hash made of one digit.
pub fn sha(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// What a server with drafts says of a reply with this hash.
pub fn own(body: &Value, sha: &str) -> Value {
    let offered = if body["draft"] == false { 0 } else { 5 };
    json!({"token_sha": sha, "rounds": 4, "drafts": {"offered": offered, "accepted": 0}})
}
