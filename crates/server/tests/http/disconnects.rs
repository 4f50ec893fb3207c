//! A client that goes away ends the engine's work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use finback_engine::Load;
use finback_engine::testing::{Call, hashed};
use serde_json::json;
use tokio::net::TcpStream;

use crate::client::{open, post, read_until};
use crate::{ENDLESS, SLOW, Server, VOCAB, runner, wait_for};

const IDLE: Load = Load { waiting: 0, running: 0 };
const ONE: Load = Load { waiting: 0, running: 1 };

/// A server whose rounds are slow, and the count of them.
async fn slow() -> (Server, Arc<AtomicUsize>) {
    let rounds = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&rounds);
    let runner = runner(hashed(VOCAB)).on_call(move |call, _| {
        if call == Call::Windows {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(SLOW);
        }
        Ok(())
    });
    (Server::start(runner).await, rounds)
}

async fn begin(server: &Server, stream: bool) -> TcpStream {
    let body = json!({"prompt": "a", "max_tokens": ENDLESS, "ignore_eos": true, "stream": stream});
    open(server.address, "POST", "/v1/completions", &body.to_string()).await
}

#[tokio::test]
async fn a_stream_that_is_closed_ends_the_work() {
    let (server, rounds) = slow().await;
    let mut socket = begin(&server, true).await;
    read_until(&mut socket, "\ndata: ").await;
    assert_eq!(server.handle().load(), ONE);
    drop(socket);
    wait_for(&server.handle(), IDLE).await;
    assert!(rounds.load(Ordering::Relaxed) < ENDLESS - 1, "it ran to its end");
}

#[tokio::test]
async fn a_whole_reply_nobody_waits_for_ends_the_work() {
    let (server, rounds) = slow().await;
    let socket = begin(&server, false).await;
    wait_for(&server.handle(), ONE).await;
    drop(socket);
    wait_for(&server.handle(), IDLE).await;
    assert!(rounds.load(Ordering::Relaxed) < ENDLESS - 1, "it ran to its end");
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_makes_room() {
    let (server, _) = slow().await;
    let running = begin(&server, true).await;
    wait_for(&server.handle(), ONE).await;
    let waiting = [begin(&server, true).await, begin(&server, false).await];
    wait_for(&server.handle(), Load { waiting: 2, running: 1 }).await;
    drop(waiting);
    wait_for(&server.handle(), ONE).await;
    drop(running);
    wait_for(&server.handle(), IDLE).await;
    let body = json!({"prompt": "a", "max_tokens": 2, "ignore_eos": true});
    assert_eq!(post(server.address, "/v1/completions", &body).await.status, 200);
}

#[tokio::test]
async fn a_stop_string_ends_the_work() {
    let (server, rounds) = slow().await;
    let body =
        json!({"prompt": "a", "max_tokens": ENDLESS, "ignore_eos": true, "stop": ["e", "a"]});
    let reply = post(server.address, "/v1/completions", &body).await.json();
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
    wait_for(&server.handle(), IDLE).await;
    assert!(rounds.load(Ordering::Relaxed) < ENDLESS - 1, "it ran to its end");
}
