use std::io;
use std::time::Duration;

use finback_engine::Load;
use tokio::net::TcpListener;

use crate::{App, Signals};

/// How often a server on its way out looks whether the last reply has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Answers connections until the first of `signals`. New requests are refused from then on and waiting
/// ones fail; running replies have `drain` to end, and end with an error after it. A second signal
/// ends everything at once.
///
/// # Errors
///
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    app: App,
    drain: Duration,
    signals: &Signals,
) -> io::Result<()> {
    serve_until(listener, app, drain, signals.seen(1), signals.seen(2)).await
}

/// [`serve`] with the two signals given: `stop` ends it in peace, `now`, which is not looked at
/// before, at once.
///
/// # Errors
///
/// The listener fails.
pub async fn serve_until(
    listener: TcpListener,
    app: App,
    drain: Duration,
    stop: impl Future<Output = ()> + Send + 'static,
    now: impl Future<Output = ()>,
) -> io::Result<()> {
    let engine = app.engine.clone();
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let graceful = async move {
        stop.await;
        tracing::info!("stopping: running replies have {} s to end", drain.as_secs());
        engine.stop(drain);
        // The other side is there as long as this future runs.
        let _ = stopping.send(());
        // The door stays open meanwhile: who comes now is told to try again.
        while engine.load() != Load::default() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let server = axum::serve(listener, app.router()).with_graceful_shutdown(graceful);
    let cut = async {
        if stopped.await.is_ok() {
            now.await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        result = async { server.await } => result,
        () = cut => Ok(()),
    }
}
