//! Progress of long work: a line that changes on a terminal, plain lines elsewhere; on standard error.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use finback_bench::Step;
use finback_model::plan::human;
use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Progress of one piece of work of unknown size.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Progress {
    /// Begins work called `what` that is counted in bytes.
    pub fn bytes(what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} {bytes} ({bytes_per_sec})")
                // The template is a constant; a bar of another look would do as well.
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            ProgressBar::new_spinner().with_style(style).with_message(what)
        });
        Self { what, bar, last_line: Instant::now() }
    }

    /// Says that `done` bytes are done in all.
    pub fn at(&mut self, done: u64) {
        match &self.bar {
            Some(bar) => bar.set_position(done),
            None if self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                eprintln!("{}: {}", self.what, human(done));
            }
            None => {}
        }
    }

    /// Ends it, leaving no bar behind.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Progress of a benchmark, whose steps are counted.
#[derive(Debug)]
pub struct Steps {
    what: &'static str,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl Steps {
    /// Begins a benchmark called `what`.
    pub fn new(what: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")
                // The template is a constant; a bar of another look would do as well.
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style)
        });
        Self { what, bar, last_line: None }
    }

    /// Says how far it is.
    pub fn at(&mut self, step: Step<'_>) {
        let Step { done, total, now } = step;
        match &self.bar {
            Some(bar) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(now.to_owned());
            }
            None if self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) => {
                self.last_line = Some(Instant::now());
                eprintln!("{}: {done}/{total} {now}", self.what);
            }
            None => {}
        }
    }

    /// Ends it, leaving no bar behind.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
