//! The way out.

use std::time::Duration;

use finback_engine::testing::{Call, hashed};
use finback_engine::{Engine, Load, Options};
use finback_server::serve_until;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{finish, get, open};
use crate::{VOCAB, app, runner, wait_for};

const SOON: Duration = Duration::from_secs(5);

struct Stage {
    engine: Engine,
    address: std::net::SocketAddr,
    server: JoinHandle<std::io::Result<()>>,
    stop: oneshot::Sender<()>,
    now: oneshot::Sender<()>,
}

/// A server whose rounds take 10 ms, with its two signals in hand.
async fn stage(drain: Duration) -> Stage {
    let runner = runner(hashed(VOCAB)).on_call(|call, _| {
        if call == Call::Windows {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    });
    let engine = Engine::start(Box::new(runner), Options::default()).unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let (now, cut) = oneshot::channel::<()>();
    let app = app(&engine);
    let server = tokio::spawn(serve_until(
        listener,
        app,
        drain,
        async { stopped.await.unwrap_or_default() },
        async { cut.await.unwrap_or_default() },
    ));
    Stage { engine, address, server, stop, now }
}

async fn begin(address: std::net::SocketAddr, max_tokens: usize) -> tokio::net::TcpStream {
    let body = json!({"prompt": "a", "max_tokens": max_tokens, "ignore_eos": true});
    open(address, "POST", "/v1/completions", &body.to_string()).await
}

#[tokio::test]
async fn a_stop_lets_running_replies_end_and_fails_waiting_ones() {
    let stage = stage(SOON).await;
    let mut running = begin(stage.address, 30).await;
    wait_for(&stage.engine.handle(), Load { waiting: 0, running: 1 }).await;
    let mut waiting = begin(stage.address, 30).await;
    wait_for(&stage.engine.handle(), Load { waiting: 1, running: 1 }).await;
    stage.stop.send(()).unwrap();
    let refused = finish(&mut waiting).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("engine_stopped")));
    // Who comes now is refused in words, not by a closed door.
    let refused = finish(&mut begin(stage.address, 30).await).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("engine_stopped")));
    assert!(refused.headers.contains("retry-after: 10"), "{refused:?}");
    let health = get(stage.address, "/health").await;
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("draining")));
    let answer = finish(&mut running).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["usage"]["completion_tokens"], 30);
    timeout(SOON, stage.server).await.unwrap().unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(stage.address).await.is_err());
    drop(stage.now);
}

#[tokio::test]
async fn a_second_signal_ends_everything() {
    let stage = stage(SOON).await;
    let _running = begin(stage.address, 2000).await;
    wait_for(&stage.engine.handle(), Load { waiting: 0, running: 1 }).await;
    stage.stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!stage.server.is_finished(), "it waits for the running reply");
    stage.now.send(()).unwrap();
    timeout(SOON, stage.server).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_reply_that_outlasts_the_drain_ends_with_an_error_event() {
    let stage = stage(Duration::from_millis(100)).await;
    let body = json!({"prompt": "a", "max_tokens": 2000, "ignore_eos": true, "stream": true});
    let mut running = open(stage.address, "POST", "/v1/completions", &body.to_string()).await;
    wait_for(&stage.engine.handle(), Load { waiting: 0, running: 1 }).await;
    stage.stop.send(()).unwrap();
    let events = finish(&mut running).await.events();
    let last = events.last().unwrap();
    assert_eq!(last["error"]["message"], "server is stopping");
    assert_eq!(last["error"]["code"], "engine_stopped");
    timeout(SOON, stage.server).await.unwrap().unwrap().unwrap();
}
