//! The finback binary: settings, commands and the terminal.
//!
//! Exit codes: 0 done, 1 failed, 2 a mistake on the command line or in the environment, 130 and 143 ended by
//! Ctrl-C or SIGTERM.

mod backend;
mod commands;
mod demo;
mod device;
mod identity;
mod interrupt;
mod load;
mod machine;
mod open;
mod outfile;
mod output;
mod profile;
mod progress;
mod reply;
mod round;
mod session;
mod settings;

use settings::{UsageError, Values};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", one_line(&error));
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

fn run() -> anyhow::Result<()> {
    // A mistake that clap finds ends the process with code 2 and its own words.
    let matches = settings::command_line().get_matches();
    let Some((command, flags)) = settings::chosen(&matches) else { return Ok(()) };
    let values = Values::resolve(command, flags, |name| std::env::var(name).ok())?;
    commands::dispatch(command, &values)
}

/// An error with its causes, each said once: some of ours already say theirs.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}
