//! Time as the scheduler sees it, so that tests can say how long a call took.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Time since some moment; it never goes back.
pub trait Clock: Debug + Send {
    /// The time now.
    fn now(&self) -> Duration;
}

/// The machine's own time.
#[derive(Debug)]
pub(crate) struct Wall(Instant);

impl Default for Wall {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Wall {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}
