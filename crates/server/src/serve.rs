use std::io;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::App;

/// How long running replies may go on after the first request to stop.
const GRACE: Duration = Duration::from_secs(30);

/// Answers connections until ctrl-c (or SIGTERM). Running replies then have 30 seconds to end,
/// waiting ones fail at once; a second ctrl-c ends everything.
///
/// # Errors
///
/// The listener fails.
pub async fn serve(listener: TcpListener, app: App) -> io::Result<()> {
    serve_until(listener, app, interrupt(), interrupt()).await
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
    stop: impl Future<Output = ()> + Send + 'static,
    now: impl Future<Output = ()>,
) -> io::Result<()> {
    let engine = app.engine.clone();
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let graceful = async move {
        stop.await;
        tracing::info!("stopping: running replies have {} s to end", GRACE.as_secs());
        engine.stop(GRACE);
        // The other side is there as long as this future runs.
        let _ = stopping.send(());
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

/// One ctrl-c or SIGTERM. Where the system gives no signals, none ever comes.
async fn interrupt() {
    let ctrl_c = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = ctrl_c => {}
        () = terminate() => {}
    }
}

#[cfg(unix)]
async fn terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

#[cfg(not(unix))]
async fn terminate() {
    std::future::pending().await
}
