//! The way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use finback_engine::testing::{Call, hashed};
use finback_engine::{Engine, Load, Options};
use finback_server::serve_until;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::client::{finish, get, open};
use crate::{ENDLESS, EOS, LONG, SLOW, VOCAB, app, runner, wait_for};

struct Stage {
    engine: Engine,
    address: std::net::SocketAddr,
    server: JoinHandle<std::io::Result<()>>,
    stop: oneshot::Sender<()>,
    now: oneshot::Sender<()>,
    /// Ends replies by themselves.
    enough: Arc<AtomicBool>,
}

/// The server ends by itself, and well.
async fn ends(server: JoinHandle<std::io::Result<()>>) {
    timeout(LONG, server).await.unwrap().unwrap().unwrap();
}

/// A server whose rounds are slow, with its two signals in hand.
async fn stage(drain: Duration) -> Stage {
    let enough = Arc::new(AtomicBool::new(false));
    let (plain, end) = (hashed(VOCAB), Arc::clone(&enough));
    let next = Arc::new(move |history: &[u32], sampling: &_| match end.load(SeqCst) {
        true => Some(EOS),
        // Any other id than the end's.
        false => plain(history, sampling).map(|id| id.max(EOS + 1)),
    });
    let runner = runner(next).on_call(|call, _| {
        if call == Call::Windows {
            std::thread::sleep(SLOW);
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
    Stage { engine, address, server, stop, now, enough }
}

async fn begin(address: std::net::SocketAddr, stream: bool) -> TcpStream {
    let body = json!({"prompt": "a", "max_tokens": ENDLESS, "stream": stream});
    open(address, "POST", "/v1/completions", &body.to_string()).await
}

#[tokio::test]
async fn a_stop_lets_running_replies_end_and_fails_waiting_ones() {
    let stage = stage(30 * LONG).await;
    let mut running = begin(stage.address, false).await;
    wait_for(&stage.engine.handle(), Load { waiting: 0, running: 1 }).await;
    let mut waiting = begin(stage.address, false).await;
    wait_for(&stage.engine.handle(), Load { waiting: 1, running: 1 }).await;
    stage.stop.send(()).unwrap();
    let refused = finish(&mut waiting).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("engine_stopped")));
    // Who comes now is refused in words, not by a closed door.
    let refused = finish(&mut begin(stage.address, false).await).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (503, &json!("engine_stopped")));
    assert!(refused.headers.contains("retry-after: 10"), "{refused:?}");
    let health = get(stage.address, "/health").await;
    assert_eq!((health.status, &health.json()["status"]), (503, &json!("draining")));
    assert!(!stage.server.is_finished(), "it waits for the running reply");
    stage.enough.store(true, SeqCst);
    let answer = finish(&mut running).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "stop");
    ends(stage.server).await;
    drop(stage.now);
}

#[tokio::test]
async fn a_second_signal_ends_everything() {
    let stage = stage(30 * LONG).await;
    let _running = begin(stage.address, false).await;
    wait_for(&stage.engine.handle(), Load { waiting: 0, running: 1 }).await;
    stage.stop.send(()).unwrap();
    while !stage.engine.handle().stopping() {
        tokio::task::yield_now().await;
    }
    assert!(!stage.server.is_finished(), "it waits for the running reply");
    stage.now.send(()).unwrap();
    ends(stage.server).await;
}

#[tokio::test]
async fn a_reply_that_outlasts_the_drain_ends_with_an_error_event() {
    let stage = stage(Duration::from_millis(100)).await;
    let mut running = begin(stage.address, true).await;
    wait_for(&stage.engine.handle(), Load { waiting: 0, running: 1 }).await;
    stage.stop.send(()).unwrap();
    let events = finish(&mut running).await.events();
    let last = events.last().unwrap();
    assert_eq!(last["error"]["message"], "server is stopping");
    assert_eq!(last["error"]["code"], "engine_stopped");
    ends(stage.server).await;
    drop(stage.now);
}
