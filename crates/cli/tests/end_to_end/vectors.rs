//! `finback run` against right answers: every case of the vectors, 64 greedy tokens in plain mode.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::support::{json, vectors};

/// The reply's hash as the documentation defines it.
fn token_sha(ids: &[u32]) -> String {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).expect("ids")
}

fn run(checkpoint: &str, prompt: &[u32], more: &[&str]) -> Value {
    let directory = vectors(checkpoint);
    let prompt: Vec<String> = prompt.iter().map(u32::to_string).collect();
    let prompt = prompt.join(",");
    let mut args = vec!["run", "--checkpoint", directory.to_str().expect("UTF-8")];
    args.extend(["--prompt-ids", &prompt, "--numerics", "plain", "--temperature", "0"]);
    args.extend(["--max-tokens", "64", "--ignore-eos", "--json"]);
    args.extend(more);
    json(&args)
}

#[test]
fn every_case_gives_the_64_greedy_tokens() {
    let text = std::fs::read_to_string(vectors("cases.json")).expect("cases.json");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let cases = document["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 15);
    for case in cases {
        let name = case["name"].as_str().expect("a name");
        let checkpoint = case["checkpoint"].as_str().expect("a checkpoint");
        let wanted = ids(&case["greedy"]);
        assert_eq!(wanted.len(), 64, "{name}");
        let prompt = ids(&case["prompt"]);
        let reply = run(checkpoint, &prompt, &[]);
        assert_eq!(ids(&reply["token_ids"]), wanted, "{name}");
        assert_eq!(reply["token_sha"], token_sha(&wanted), "{name}");
        assert_eq!(reply["prompt_tokens"], prompt.len(), "{name}");
        assert_eq!(reply["finish_reason"], "length", "{name}");
    }
}

#[test]
fn threads_chunks_and_drafts_change_nothing() {
    let prompt: Vec<u32> = (0..90).map(|i| i * 7 % 500).collect();
    let wanted = run("full", &prompt, &["--threads", "1"]);
    for more in [
        &["--threads", "2"][..],
        &["--prefill-chunk", "17"],
        &["--isa", "portable"],
        &["--no-drafts"],
        &["--draft-tokens", "2", "--prefill-chunk", "16"],
    ] {
        assert_eq!(run("full", &prompt, more)["token_sha"], wanted["token_sha"], "{more:?}");
    }
}

#[test]
fn logit_rows_are_written_beside_the_tokens() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("rows.safetensors");
    let prompt = [5, 9, 2, 11, 300];
    let reply = run("full", &prompt, &["--logits", file.to_str().expect("UTF-8")]);
    let bytes = std::fs::read(&file).expect("written");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + length]).expect("JSON");
    assert_eq!(header["logits"]["dtype"], "F32");
    assert_eq!(header["logits"]["shape"], serde_json::json!([64, 512]));
    assert_eq!(header["prompt"]["shape"], serde_json::json!([5, 512]));
    let rows = |name: &str| -> Vec<Vec<f32>> {
        let offset = |i: usize| header[name]["data_offsets"][i].as_u64().expect("offset") as usize;
        bytes[8 + length + offset(0)..8 + length + offset(1)]
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
            .collect::<Vec<f32>>()
            .chunks(512)
            .map(<[f32]>::to_vec)
            .collect()
    };
    let largest = |row: &[f32]| {
        (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best }) as u32
    };
    let logits = rows("logits");
    let chosen: Vec<u32> = logits.iter().map(|row| largest(row)).collect();
    assert_eq!(chosen, ids(&reply["token_ids"]));
    assert_eq!(rows("prompt")[4], logits[0]);
}
