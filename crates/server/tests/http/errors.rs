//! Every way to be refused, and replies that break.

use std::sync::Arc;

use finback_engine::testing::hashed;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::client::{finish, get, open, post};
use crate::{CONTEXT, Server, VOCAB, runner};

const COMPLETIONS: &str = "/v1/completions";

/// The error object's fields, after checking its form.
fn error(answer: &crate::client::Answer) -> (String, Value, String) {
    assert!(answer.headers.contains("content-type: application/json"), "{answer:?}");
    let body = answer.json();
    let error = &body["error"];
    let fields: Vec<&String> = error.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["message", "type", "param", "code"], "{body}");
    let kind = if answer.status < 500 { "invalid_request_error" } else { "server_error" };
    assert_eq!(error["type"], kind);
    let text = |field: &str| error[field].as_str().unwrap().to_owned();
    assert_eq!(text("message").lines().count(), 1);
    (text("message"), error["param"].clone(), text("code"))
}

#[tokio::test]
async fn refusals_come_before_anything_starts() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let long = vec![5; CONTEXT];
    for (fields, status, param, code) in [
        (json!({"temperature": true}), 400, json!("temperature"), "invalid_value"),
        (json!({"top_k": 1.5}), 400, json!("top_k"), "invalid_value"),
        (json!({"n": 2}), 400, json!("n"), "unsupported_value"),
        (json!({"prompt": [[4_294_967_296u64]]}), 400, json!("prompt[0][0]"), "invalid_value"),
        (json!({"prompt": []}), 400, json!("prompt"), "invalid_value"),
        (json!({"prompt": ""}), 400, json!("prompt"), "invalid_value"),
        (json!({"prompt": [VOCAB]}), 400, json!("prompt"), "invalid_value"),
        (json!({"prompt": long}), 400, json!(null), "context_length_exceeded"),
        (json!({"model": "gpt-4"}), 404, json!("model"), "model_not_found"),
    ] {
        for stream in [false, true] {
            let mut body = json!({"prompt": "a", "stream": stream, "max_tokens": 2});
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let answer = post(server.address, COMPLETIONS, &body).await;
            let (message, found, name) = error(&answer);
            assert_eq!(
                (answer.status, &found, name.as_str()),
                (status, &param, code),
                "{message} for {fields}"
            );
        }
    }
    assert_eq!(server.handle().load(), finback_engine::Load::default());
}

#[tokio::test]
async fn malformed_json_names_line_and_column() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    for path in [COMPLETIONS, "/v1/chat/completions"] {
        let mut socket = open(server.address, "POST", path, "{\"prompt\": \"a\",\n  oops}").await;
        let answer = finish(&mut socket).await;
        let (message, _, code) = error(&answer);
        assert_eq!((answer.status, code.as_str()), (400, "invalid_json"));
        assert!(message.ends_with("line 2 column 3"), "{message}");
    }
}

#[tokio::test]
async fn unknown_routes_and_methods_are_json_errors() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let answer = get(server.address, "/v2/nothing").await;
    let (message, _, code) = error(&answer);
    assert_eq!((answer.status, code.as_str()), (404, "no_route"));
    assert!(message.contains("GET /v2/nothing") && message.contains("/health"), "{message}");
    let answer = get(server.address, COMPLETIONS).await;
    let (message, _, code) = error(&answer);
    assert_eq!((answer.status, code.as_str()), (405, "no_method"));
    assert_eq!(message, "/v1/completions does not take GET; accepted: POST");
    assert!(answer.headers.contains("allow: post"), "{answer:?}");
    let answer = post(server.address, "/health", &json!({})).await;
    assert_eq!(error(&answer).0, "/health does not take POST; accepted: GET");
    let answer = get(server.address, "/v1/models/other").await;
    let (message, param, code) = error(&answer);
    assert_eq!((answer.status, param, code.as_str()), (404, json!("model"), "model_not_found"));
    assert!(message.contains("\"other\"") && message.contains("\"finback/demo\""), "{message}");
    // A name of bytes that are no text.
    let answer = get(server.address, "/v1/models/a%ff").await;
    let (message, param, code) = error(&answer);
    assert_eq!((answer.status, param, code.as_str()), (404, json!("model"), "model_not_found"));
    assert!(message.starts_with("the model \"a%ff\" does not exist; "), "{message}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_refused() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let text = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n4\r\n{{\"a\"\r\nno size\r\n"
    );
    socket.write_all(text.as_bytes()).await.unwrap();
    let answer = finish(&mut socket).await;
    let (message, _, code) = error(&answer);
    assert_eq!((answer.status, code.as_str()), (400, "body_broken"));
    assert!(message.starts_with("the request body cannot be read: "), "{message}");
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_once_it_is_sent() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let head = format!("POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    let wanted = "the request body is too large; accepted: at most 33554432 bytes";
    let refused = |answer: &crate::client::Answer| {
        let (message, _, code) = error(answer);
        assert_eq!((answer.status, code.as_str()), (413, "body_too_large"));
        assert_eq!(message, wanted);
    };
    // A client that waits to be told to send is told at once.
    let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let waits = format!("{head}expect: 100-continue\r\ncontent-length: 99999999\r\n\r\n");
    socket.write_all(waits.as_bytes()).await.unwrap();
    refused(&finish(&mut socket).await);
    // Others send all of it before they read, and no write fails.
    let mebibyte = " ".repeat(1 << 20);
    for (kind, part) in [
        (format!("content-length: {}", 40 << 20), mebibyte.clone()),
        ("transfer-encoding: chunked".to_owned(), format!("100000\r\n{mebibyte}\r\n")),
    ] {
        let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        socket.write_all(format!("{head}{kind}\r\n\r\n").as_bytes()).await.unwrap();
        for _ in 0..40 {
            socket.write_all(part.as_bytes()).await.unwrap();
        }
        if kind.ends_with("chunked") {
            socket.write_all(b"0\r\n\r\n").await.unwrap();
        }
        refused(&finish(&mut socket).await);
    }
}

#[tokio::test]
async fn a_chunked_body_is_read() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let mut request = format!(
        "POST {COMPLETIONS} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
         transfer-encoding: chunked\r\n\r\n"
    );
    for part in ["{\"prompt\"", ": \"a\", \"max_", "tokens\": 2}", ""] {
        request.push_str(&format!("{:x}\r\n{part}\r\n", part.len()));
    }
    socket.write_all(request.as_bytes()).await.unwrap();
    let answer = finish(&mut socket).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["usage"]["completion_tokens"], 2);
}

#[tokio::test]
async fn a_reply_that_breaks_says_so() {
    // Three tokens, then a row of NaN.
    let server =
        Server::start(runner(Arc::new(|history, _| (history.len() < 5).then_some(7)))).await;
    let mut body = json!({"prompt": [5, 6]});
    let answer = post(server.address, COMPLETIONS, &body).await;
    let (message, _, code) = error(&answer);
    assert_eq!((answer.status, code.as_str()), (500, "reply_failed"));
    assert!(message.contains("NaN"), "{message}");
    body["stream"] = json!(true);
    let answer = post(server.address, COMPLETIONS, &body).await;
    assert_eq!(answer.status, 200);
    let events = answer.events();
    let (last, chunks) = events.split_last().unwrap();
    assert_eq!(chunks.len(), 3);
    assert_eq!(last["error"]["code"], "reply_failed");
    assert_eq!(last["error"]["message"], message);
}

#[tokio::test]
async fn a_stopped_engine_is_503() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    server.handle().stop(std::time::Duration::ZERO);
    let answer = post(server.address, COMPLETIONS, &json!({"prompt": "a"})).await;
    let (message, _, code) = error(&answer);
    assert_eq!((answer.status, code.as_str()), (503, "engine_stopped"));
    assert_eq!(message, "the engine has stopped: server is stopping");
    let answer = get(server.address, "/health").await;
    assert_eq!((answer.status, &answer.json()["status"]), (503, &json!("draining")));
}
