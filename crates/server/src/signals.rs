use std::io;

use tokio::sync::watch;

/// Ctrl-C and SIGTERM, counted from the moment this is made: neither ends the process by itself from
/// then on.
#[derive(Debug)]
pub struct Signals(watch::Receiver<usize>);

impl Signals {
    /// Takes them over. Needs a runtime.
    ///
    /// # Errors
    ///
    /// The system lets nobody take them over.
    pub fn listen() -> io::Result<Self> {
        let (count, seen) = watch::channel(0);
        let mut source = Source::new()?;
        tokio::spawn(async move {
            while source.next().await.is_some() {
                count.send_modify(|count| *count += 1);
            }
        });
        Ok(Self(seen))
    }

    /// Waits until so many have come in all.
    pub(crate) fn seen(&self, wanted: usize) -> impl Future<Output = ()> + Send + 'static {
        let mut seen = self.0.clone();
        async move {
            // Where no more can come, nothing is to be waited for.
            if seen.wait_for(|count| *count >= wanted).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(unix)]
struct Source {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Source {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> Option<()> {
        tokio::select! {
            got = self.interrupt.recv() => got,
            got = self.terminate.recv() => got,
        }
    }
}

#[cfg(not(unix))]
struct Source;

#[cfg(not(unix))]
impl Source {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Option<()> {
        tokio::signal::ctrl_c().await.ok()
    }
}
