//! Ctrl-C in the terminal: during a reply the first ends the reply and a second one the program. SIGTERM
//! ends the program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::outfile::exit;

/// The exit code of a program that Ctrl-C ended, or the one reply that it runs.
pub const INTERRUPTED: i32 = 130;
/// The exit code of one that SIGTERM ended.
#[cfg(unix)]
const TERMINATED: i32 = 143;

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
    /// Takes over Ctrl-C and SIGTERM: from then on they end the program by way of this. Needs a runtime
    /// whose threads go on while the program loads or waits for input.
    pub async fn listen() -> Self {
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let (taken, ready) = oneshot::channel();
        tokio::spawn(async move {
            let Ok(mut signals) = Signals::new() else { return };
            // Who waits for this is there as long as the runtime.
            let _ = taken.send(());
            while let Some(code) = signals.next().await {
                if code != INTERRUPTED || !shared.armed.swap(false, SeqCst) {
                    exit(code);
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

/// The signals that end a program, taken over once this is made.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// The next one, as the code of a program that it ended.
    async fn next(&mut self) -> Option<i32> {
        tokio::select! {
            got = self.interrupt.recv() => got.map(|()| INTERRUPTED),
            got = self.terminate.recv() => got.map(|()| TERMINATED),
        }
    }
}

/// Ctrl-C, taken over once this is made.
#[cfg(not(unix))]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) -> Option<i32> {
        self.0.recv().await.map(|()| INTERRUPTED)
    }
}
