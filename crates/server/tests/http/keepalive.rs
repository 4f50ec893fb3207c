//! What a stream says while there is nothing to say, and what a reply tells of kept prefixes.

use std::time::{Duration, Instant};

use finback_engine::testing::{Call, hashed};
use finback_engine::{CacheOptions, Load, Options};
use serde_json::{Value, json};

use crate::client::{finish, get, open, post, read_until};
use crate::{Server, VOCAB, runner, wait_for};

const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn a_stream_that_waits_tells_how_far_it_is() {
    let (pieces, gate) = std::sync::mpsc::channel::<()>();
    let runner = runner(hashed(VOCAB)).on_call(move |call, _| {
        if call == Call::Piece {
            let _ = gate.recv();
        }
        Ok(())
    });
    let keepalive = Duration::from_millis(40);
    let server = Server::keeping(runner, Options::default(), keepalive).await;
    let body = json!({"prompt": [5, 6, 7, 8, 9, 10], "max_tokens": 2, "stream": true});
    let opened = Instant::now();
    let mut first = open(server.address, "POST", COMPLETIONS, &body.to_string()).await;
    wait_for(&server.handle(), Load { waiting: 0, running: 1 }).await;
    let mut second = open(server.address, "POST", COMPLETIONS, &body.to_string()).await;
    let comment = |phase: &str, done: usize| {
        let finback = json!({"phase": phase, "prompt_tokens": 6, "prompt_done": done,
            "completion_tokens": 0});
        format!(": {}\n\n", json!({"finback": finback}))
    };
    // The engine does not move: the clock alone makes them.
    read_until(&mut second, &comment("queue", 0)).await;
    read_until(&mut first, &comment("prompt", 0)).await;
    pieces.send(()).unwrap();
    read_until(&mut first, &comment("prompt", 4)).await;
    assert!(opened.elapsed() >= 2 * keepalive);
    read_until(&mut first, &comment("prompt", 4)).await;
    drop(pieces);
    for socket in [&mut first, &mut second] {
        let mut rest = String::new();
        while !rest.contains("[DONE]") {
            rest.push_str(&read_until(socket, "\n\n").await);
        }
    }
}

#[tokio::test]
async fn a_reply_says_what_was_restored_and_where_its_prompt_differs() {
    let cache = CacheOptions { bytes: 1 << 20, every: usize::MAX };
    let server = Server::with(runner(hashed(VOCAB)), Options { cache, ..Options::default() }).await;
    let prompt: Vec<usize> = (0..600).map(|at| 5 + at * 7 % 900).collect();
    let body = |prompt: &[usize]| json!({"prompt": prompt, "max_tokens": 4, "ignore_eos": true});
    let ask = async |body: Value| post(server.address, COMPLETIONS, &body).await.json();
    let cold = ask(body(&prompt)).await;
    assert_eq!(cold["finback"]["cache"], json!({"restored": 0, "matched": 0, "kept": []}));
    let warm = ask(body(&prompt)).await;
    assert_eq!(warm["finback"]["cache"], json!({"restored": 600, "matched": 600, "kept": [600]}));
    assert_eq!(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 600);
    assert_eq!(warm["finback"]["token_sha"], cold["finback"]["token_sha"]);
    let mut edited = prompt.clone();
    edited[599] += 1;
    let edited = ask(body(&edited)).await;
    assert_eq!(edited["finback"]["cache"], json!({"restored": 0, "matched": 599, "kept": []}));
    let mut alone = body(&prompt);
    alone["cache"] = json!(false);
    let alone = ask(alone).await;
    assert_eq!(alone["finback"]["cache"], Value::Null);
    assert_eq!(alone["finback"]["token_sha"], cold["finback"]["token_sha"]);
    // A reply's own tokens are there for the next turn, streamed or not.
    let mut next: Value = body(&[prompt, vec![77, 78]].concat());
    next["stream"] = json!(true);
    let mut socket = open(server.address, "POST", COMPLETIONS, &next.to_string()).await;
    let last = finish(&mut socket).await.events().pop().unwrap();
    assert_eq!(last["finback"]["cached_tokens"], 600);
    wait_for(&server.handle(), Load::default()).await;
    let page = get(server.address, "/metrics").await.body;
    for line in [
        "finback_cached_tokens_total{model_name=\"finback/demo\"} 1200",
        // Of the four prompts that asked, not of the one with "cache": false.
        "vllm:prefix_cache_queries_total{model_name=\"finback/demo\"} 2402",
        "finback_prompt_cache_total{model_name=\"finback/demo\",outcome=\"hit\"} 2",
        "finback_prompt_cache_total{model_name=\"finback/demo\",outcome=\"miss\"} 2",
        "finback_kv_blocks_used{model_name=\"finback/demo\"} 0",
        "finback_kv_blocks_kept{model_name=\"finback/demo\"} 7",
        "finback_kv_blocks_free{model_name=\"finback/demo\"} 9",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
}
