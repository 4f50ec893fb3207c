//! Ctrl-C in the terminal: during a reply the first ends the reply and a second one the program.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::outfile::remove_temporaries;

/// The exit code of a program that Ctrl-C ended.
const EXIT_INTERRUPTED: i32 = 130;

/// Ctrl-C as an event that one reply at a time waits for.
#[derive(Debug, Clone)]
pub struct Interrupt(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether a reply runs that has not been interrupted yet.
    armed: AtomicBool,
    pressed: Notify,
}

impl Interrupt {
    /// Takes over Ctrl-C: from then on it ends the program by way of this. Needs a runtime whose threads
    /// go on while the program loads or waits for input.
    pub async fn listen() -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let (taken, ready) = oneshot::channel();
        tokio::spawn(async move {
            let mut press = Box::pin(tokio::signal::ctrl_c());
            // The first look at it takes the signal over.
            let mut seen = match poll_fn(|cx| Poll::Ready(press.as_mut().poll(cx))).await {
                Poll::Ready(Err(_)) => return,
                Poll::Ready(Ok(())) => true,
                Poll::Pending => false,
            };
            // Who waits for this is there as long as the runtime.
            let _ = taken.send(());
            while std::mem::take(&mut seen) || press.as_mut().await.is_ok() {
                press.set(tokio::signal::ctrl_c());
                if !shared.armed.swap(false, SeqCst) {
                    remove_temporaries();
                    std::process::exit(EXIT_INTERRUPTED);
                }
                shared.pressed.notify_one();
            }
        });
        // Where the task has ended already, Ctrl-C is not there to be taken over.
        let _ = ready.await;
        Self(state)
    }

    /// Runs `reply` to its end, or to the first Ctrl-C: then `None`, and `reply` is dropped.
    pub async fn guard<T>(&self, reply: impl Future<Output = T>) -> Option<T> {
        // A press that met the end of the reply before is not meant for this one.
        let _ = tokio::time::timeout(Duration::ZERO, self.0.pressed.notified()).await;
        self.0.armed.store(true, SeqCst);
        let result = tokio::select! {
            result = reply => Some(result),
            () = self.0.pressed.notified() => None,
        };
        self.0.armed.store(false, SeqCst);
        result
    }
}
