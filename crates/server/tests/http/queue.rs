//! Requests that come together.

use std::sync::{Arc, Mutex};

use finback_engine::Load;
use finback_engine::testing::{Call, hashed};
use serde_json::json;

use crate::client::{finish, open, post, read_until};
use crate::{Server, VOCAB, runner, wait_for};

#[tokio::test]
async fn requests_run_in_the_order_they_came() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    let next = hashed(VOCAB);
    let (open_gate, gate) = std::sync::mpsc::channel::<()>();
    let runner = runner(Arc::new(move |history, sampling| {
        let mut seen = seen.lock().unwrap();
        if seen.last() != history.first() {
            seen.push(history[0]);
        }
        next(history, sampling)
    }))
    .on_call(move |call, _| {
        // The first request waits before its first choice until the others have come.
        if call == Call::Finish {
            let _ = gate.recv();
        }
        Ok(())
    });
    let server = Server::start(runner).await;
    let mut sockets = Vec::new();
    for first in 0..5 {
        let body = json!({"prompt": [10 + first, 3], "max_tokens": 6, "ignore_eos": true,
            "temperature": 0, "stream": first % 2 == 1});
        let path = "/v1/completions";
        sockets.push(open(server.address, "POST", path, &body.to_string()).await);
        let waiting = first as usize;
        wait_for(&server.handle(), Load { waiting, running: 1 }).await;
    }
    // A stream that waits has its headers: it was admitted.
    read_until(&mut sockets[1], "text/event-stream").await;
    drop(open_gate);
    for socket in sockets.iter_mut().step_by(2) {
        assert_eq!(finish(socket).await.json()["usage"]["completion_tokens"], 6);
    }
    assert_eq!(*order.lock().unwrap(), [10, 11, 12, 13, 14]);
}

#[tokio::test]
async fn a_reply_does_not_depend_on_its_company() {
    let server = Server::start(runner(hashed(VOCAB))).await;
    let body = |n: u32| json!({"prompt": [n, 4], "max_tokens": 30, "ignore_eos": true});
    let mut alone = Vec::new();
    for n in 0..6 {
        let reply = post(server.address, "/v1/completions", &body(n)).await.json();
        alone.push(reply["finback"]["token_sha"].clone());
    }
    let together: Vec<_> = (0..6)
        .map(|n| {
            let address = server.address;
            let body = body(n);
            tokio::spawn(async move { post(address, "/v1/completions", &body).await.json() })
        })
        .collect();
    for (alone, together) in alone.into_iter().zip(together) {
        assert_eq!(together.await.unwrap()["finback"]["token_sha"], alone);
    }
}
