//! What a scrape reads, and the queue's limit.

use finback_engine::testing::{Call, hashed};
use finback_engine::{Load, Options};
use serde_json::json;

use crate::client::{finish, get, open, post};
use crate::{Server, VOCAB, runner, wait_for};

const COMPLETIONS: &str = "/v1/completions";

#[tokio::test]
async fn a_scrape_says_what_was_done() {
    let options = Options { draft_tokens: 3, ..Options::default() };
    let server = Server::with(runner(hashed(VOCAB)).right_drafts(8), options).await;
    let plain = json!({"prompt": [5, 6], "max_tokens": 5, "ignore_eos": true, "draft": false});
    let reply = post(server.address, COMPLETIONS, &plain).await.json();
    assert_eq!(reply["finback"]["drafts"], json!({"offered": 0, "accepted": 0, "by_position": []}));
    let drafted = json!({"prompt": [5, 6], "max_tokens": 5, "ignore_eos": true});
    let again = post(server.address, COMPLETIONS, &drafted).await.json();
    assert_eq!(again["finback"]["token_sha"], reply["finback"]["token_sha"]);
    let place = json!({"offered": 1, "accepted": 1});
    assert_eq!(
        again["finback"]["drafts"],
        json!({"offered": 3, "accepted": 3, "by_position": [place, place, place]})
    );
    assert_eq!(post(server.address, COMPLETIONS, &json!({"prompt": 5})).await.status, 400);
    wait_for(&server.handle(), Load::default()).await;
    let page = get(server.address, "/metrics").await;
    assert_eq!(page.status, 200);
    assert!(page.headers.contains("content-type: text/plain; version=0.0.4"), "{page:?}");
    for line in [
        "finback_requests_running{model_name=\"finback/demo\"} 0",
        "vllm:num_requests_waiting{model_name=\"finback/demo\"} 0",
        "finback_kv_blocks_used{model_name=\"finback/demo\"} 0",
        "finback_kv_blocks{model_name=\"finback/demo\"} 16",
        "finback_planned_bytes{model_name=\"finback/demo\"} 123456",
        "vllm:kv_cache_usage_perc{model_name=\"finback/demo\"} 0",
        "vllm:prompt_tokens_total{model_name=\"finback/demo\"} 4",
        "finback_reply_tokens_total{model_name=\"finback/demo\"} 10",
        // Four of the first; of the second one of four rows.
        "finback_rounds_total{model_name=\"finback/demo\"} 5",
        "finback_drafts_offered_total{model_name=\"finback/demo\",position=\"2\"} 1",
        "vllm:spec_decode_num_accepted_tokens_total{model_name=\"finback/demo\"} 3",
        "finback_requests_total{model_name=\"finback/demo\",outcome=\"length\"} 2",
        "finback_requests_total{model_name=\"finback/demo\",outcome=\"refused\"} 1",
        "vllm:request_success_total{model_name=\"finback/demo\",finished_reason=\"length\"} 2",
    ] {
        assert!(page.body.lines().any(|found| found == line), "{line} in {}", page.body);
    }
}

#[tokio::test]
async fn a_full_queue_says_when_to_come_again() {
    let (open_gate, gate) = std::sync::mpsc::channel::<()>();
    let runner = runner(hashed(VOCAB)).on_call(move |call, _| {
        if call == Call::Finish {
            let _ = gate.recv();
        }
        Ok(())
    });
    let server = Server::with(runner, Options { queue: 1, ..Options::default() }).await;
    let body = json!({"prompt": "a", "max_tokens": 3, "ignore_eos": true});
    let mut taken = Vec::new();
    for waiting in 0..2 {
        taken.push(open(server.address, "POST", COMPLETIONS, &body.to_string()).await);
        wait_for(&server.handle(), Load { waiting, running: 1 }).await;
    }
    let refused = post(server.address, COMPLETIONS, &body).await;
    assert_eq!(refused.status, 429);
    assert!(refused.headers.contains("retry-after: 1\r\n"), "{refused:?}");
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["code"], &error["type"]),
        (&json!("queue_full"), &json!("rate_limit_error"))
    );
    assert_eq!(
        error["message"],
        "the queue is full: 1 requests run and 1 wait, accepted are 1 (--parallel) and 1 more (--queue)"
    );
    drop(open_gate);
    for mut socket in taken {
        assert_eq!(finish(&mut socket).await.status, 200);
    }
}

#[tokio::test]
async fn log_probabilities_come_streamed_as_whole() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let mut body = json!({"prompt": [5, 6], "max_tokens": 12, "ignore_eos": true, "logprobs": 2});
    let whole = post(server.address, COMPLETIONS, &body).await.json();
    let lists = whole["choices"][0]["logprobs"].clone();
    let count = lists["tokens"].as_array().unwrap().len();
    assert!(count > 6, "{lists}");
    body["stream"] = json!(true);
    let events = post(server.address, COMPLETIONS, &body).await.events();
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        let parts = events.iter().filter_map(|e| e["choices"][0]["logprobs"][list].as_array());
        let joined: Vec<_> = parts.flatten().cloned().collect();
        assert_eq!(json!(joined), lists[list], "{list}");
        assert_eq!(joined.len(), count);
    }
}
