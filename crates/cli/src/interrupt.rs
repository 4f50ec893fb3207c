//! Ctrl-C in the terminal: during a reply the first ends the reply and a second one the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Notify;

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
    /// Takes over Ctrl-C. Needs a runtime whose threads go on while the program waits for input.
    pub fn listen() -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if !shared.armed.swap(false, SeqCst) {
                    std::process::exit(EXIT_INTERRUPTED);
                }
                shared.pressed.notify_one();
            }
        });
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
