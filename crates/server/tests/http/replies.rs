//! Whole and streamed replies, and the small routes.

use finback_engine::testing::{hashed, scripted, serial_reply};
use finback_engine::{FinishReason, Request};
use finback_protocol::TokenSha;
use serde_json::{Value, json};

use crate::client::{get, post};
use crate::{CONTEXT, EOS, Server, VOCAB, runner};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn with(body: &Value, fields: &Value) -> Value {
    let mut body = body.clone();
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn joined(chunks: &[Value], pointer: &str) -> String {
    chunks.iter().filter_map(|chunk| chunk.pointer(pointer)?.as_str()).collect()
}

#[tokio::test]
async fn a_completion_has_the_engines_tokens() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let prompt = vec![5, 9, 2];
    let body = json!({"prompt": prompt, "temperature": 0, "max_tokens": 40, "ignore_eos": true});
    let answer = post(server.address, COMPLETIONS, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let reply = answer.json();
    let request = Request::greedy(prompt, 40);
    let (ids, reason) = serial_reply(&hashed(VOCAB), CONTEXT, &request);
    assert_eq!(reason, Some(FinishReason::Length));
    let mut sha = TokenSha::default();
    sha.extend(ids);
    assert_eq!(reply["finback"]["token_sha"], sha.hex());
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    assert_eq!(reply["usage"]["prompt_tokens"], 3);
    assert_eq!(reply["usage"]["completion_tokens"], 40);
    assert_eq!(reply["usage"]["total_tokens"], 43);
    assert!(reply["finback"]["rounds"].as_u64().unwrap() >= 39);
    assert!(reply["finback"]["timings"]["decode_tokens_per_s"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn streams_and_whole_replies_are_the_same() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let chat = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 80});
    let completion = json!({"prompt": "Once", "max_tokens": 80});
    for seed in 0..12 {
        let stop = if seed % 3 == 0 { json!(["e", "a"]) } else { Value::Null };
        let fields = json!({"seed": seed, "stop": stop});
        let (whole, chunks) = both(&server, CHAT, &with(&chat, &fields)).await;
        for field in ["content", "reasoning_content"] {
            let pointer = format!("/choices/0/delta/{field}");
            let message = &whole["choices"][0]["message"][field];
            assert_eq!(joined(&chunks, &pointer), message.as_str().unwrap_or_default());
        }
        compare(&whole, &chunks);
        let (whole, chunks) = both(&server, COMPLETIONS, &with(&completion, &fields)).await;
        assert_eq!(joined(&chunks, "/choices/0/text"), whole["choices"][0]["text"]);
        compare(&whole, &chunks);
    }
}

async fn both(server: &Server, path: &str, body: &Value) -> (Value, Vec<Value>) {
    let whole = post(server.address, path, body).await;
    let streamed = post(server.address, path, &with(body, &json!({"stream": true}))).await;
    assert_eq!((whole.status, streamed.status), (200, 200), "{whole:?} {streamed:?}");
    (whole.json(), streamed.events())
}

/// What a stream's last chunk must share with the whole reply.
fn compare(whole: &Value, chunks: &[Value]) {
    let last = chunks.last().unwrap();
    assert_eq!(last["usage"], whole["usage"]);
    assert_eq!(last["choices"][0]["finish_reason"], whole["choices"][0]["finish_reason"]);
    assert_eq!(last["finback"]["token_sha"], whole["finback"]["token_sha"]);
    assert_eq!(last["model"], "finback/demo");
}

#[tokio::test]
async fn the_same_request_has_the_same_reply_without_a_seed() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let body = json!({"prompt": "Once", "max_tokens": 20});
    let first = post(server.address, COMPLETIONS, &body).await.json();
    let second = post(server.address, COMPLETIONS, &body).await.json();
    assert_eq!(first["finback"]["token_sha"], second["finback"]["token_sha"]);
    let other = post(server.address, COMPLETIONS, &with(&body, &json!({"seed": 1}))).await.json();
    assert_ne!(first["finback"]["token_sha"], other["finback"]["token_sha"]);
}

#[tokio::test]
async fn split_characters_arrive_whole() {
    let tokenizer = finback_tokenizer::Tokenizer::from_bytes(finback_tokenizer::SYNTHETIC).unwrap();
    let script: Vec<u32> = "🐋 é"
        .bytes()
        .map(|byte| (3..259).find(|&id| tokenizer.bytes(id) == [byte]).unwrap())
        .collect();
    let server = Server::start(runner(scripted(2, script, EOS))).await;
    let body = json!({"prompt": [7, 8], "stream": true});
    let chunks = post(server.address, COMPLETIONS, &body).await.events();
    let pieces: Vec<&str> =
        chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(pieces, ["🐋", " ", "é", ""]);
    assert_eq!(chunks.last().unwrap()["usage"]["completion_tokens"], 8);
}

#[tokio::test]
async fn usage_is_asked_for_as_clients_do() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let body = json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3,
        "stream": true, "stream_options": {"include_usage": true}});
    let chunks = post(server.address, CHAT, &body).await.events();
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 3);
}

#[tokio::test]
async fn models_are_listed_under_id_and_alias() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let list = get(server.address, "/v1/models").await.json();
    assert_eq!((&list["object"], list["data"].as_array().unwrap().len()), (&json!("list"), 1));
    let model = &list["data"][0];
    assert_eq!(model["id"], "finback/demo");
    assert_eq!((&model["object"], &model["owned_by"]), (&json!("model"), &json!("finback")));
    assert_eq!(model["max_model_len"], CONTEXT);
    for id in ["finback/demo", "deepseek-chat"] {
        let answer = get(server.address, &format!("/v1/models/{id}")).await;
        assert_eq!((answer.status, &answer.json()), (200, model));
    }
}

#[tokio::test]
async fn health_says_what_runs() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let answer = get(server.address, "/health").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.json(),
        json!({"status": "ok", "model": "finback/demo", "running": 0, "waiting": 0})
    );
}
