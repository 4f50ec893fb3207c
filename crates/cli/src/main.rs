//! The finback binary: settings, commands and the terminal.
//!
//! Exit codes: 0 done, 1 failed, 2 a mistake on the command line or in the environment.

mod commands;
mod demo;
mod interrupt;
mod load;
mod machine;
mod open;
mod output;
mod progress;
mod reply;
mod session;
mod settings;

use settings::{Command, UsageError, Values};
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
    for command in Command::ALL {
        if let Some(flags) = matches.subcommand_matches(command.name()) {
            let values = Values::resolve(command, flags, |name| std::env::var(name).ok())?;
            return commands::dispatch(command, &values);
        }
    }
    Ok(())
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
