//! A request whose logits are NaN, from its prompt on or in the middle of its reply, beside others.

use std::fs;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use crate::support::{Server, stdout};

/// The id whose embedding is spoiled.
const SPOILED: usize = 500;

/// Makes the embedding of [`SPOILED`] NaN in a checkpoint's shard.
fn spoil(directory: &Path) {
    let read = |file: &Path| fs::read(file).expect("readable");
    let index: Value =
        serde_json::from_slice(&read(&directory.join("model.safetensors.index.json")))
            .expect("JSON");
    let shard = directory.join(index["weight_map"]["embed.weight"].as_str().expect("a shard"));
    let mut bytes = read(&shard);
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
    let tensor = &header["embed.weight"];
    assert_eq!(tensor["dtype"], "BF16");
    let size = |value: &Value| value.as_u64().expect("a size") as usize;
    let width = 2 * size(&tensor["shape"][1]);
    let row = 8 + length + size(&tensor["data_offsets"][0]) + SPOILED * width;
    bytes[row..row + width].fill(0xff);
    fs::write(&shard, bytes).expect("writes");
}

#[test]
fn a_request_of_nan_fails_and_those_beside_it_have_their_own_tokens() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = directory.path().join("made");
    stdout(&["synth", "--out", made.to_str().expect("UTF-8")]);
    spoil(&made);
    let path = made.to_str().expect("UTF-8");
    let server = Server::start(&[path, "--context", "1024", "--parallel", "4"]);
    let body = |prompt: &[usize], tokens: usize| {
        json!({
            "prompt": prompt, "max_tokens": tokens, "seed": 4, "ignore_eos": true,
            "logit_bias": {"500": -100},
        })
    };
    let good: Vec<Value> = (0..3).map(|i| body(&[5 + i, 9, 2, 40 + i], 40 + 20 * i)).collect();
    let sha = |body: &Value| server.post("/v1/completions", body)["finback"]["token_sha"].clone();
    let alone: Vec<Value> = good.iter().map(sha).collect();

    // One reads the row in its prompt; the other says the id, so that its next row reads it.
    let from_prompt = body(&[5, SPOILED, 7], 30);
    let mut in_reply = body(&[5, 9, 7], 30);
    in_reply["logit_bias"] = json!({"500": 100});
    for bad in [from_prompt, in_reply] {
        for streamed in [false, true] {
            let mut bad = bad.clone();
            bad["stream"] = json!(streamed);
            thread::scope(|scope| {
                for (body, wanted) in good.iter().zip(&alone) {
                    scope.spawn(|| assert_eq!(sha(body), *wanted, "beside {bad}"));
                }
                let (status, text) = server.request("POST", "/v1/completions", &bad.to_string());
                assert_eq!(status, if streamed { 200 } else { 500 }, "{text}");
                let error = text
                    .lines()
                    .map(|line| line.strip_prefix("data: ").unwrap_or(line))
                    .filter_map(|line| serde_json::from_str::<Value>(line).ok())
                    .find(|piece| piece["error"].is_object())
                    .unwrap_or_else(|| panic!("an error in {text}"));
                assert_eq!(error["error"]["code"], "reply_failed");
                let message = error["error"]["message"].as_str().expect("a message");
                assert!(message.contains("NaN"), "{message}");
            });
        }
    }
    assert_eq!(good.iter().map(sha).collect::<Vec<_>>(), alone, "and after it");
}
