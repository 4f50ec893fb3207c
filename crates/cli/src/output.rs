//! Standard output of commands that print a report.

use std::io::{ErrorKind, Write};

use anyhow::Context;

/// Prints `text`. A reader that has read enough, such as `head`, is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("standard output")
        }
        _ => Ok(()),
    }
}
