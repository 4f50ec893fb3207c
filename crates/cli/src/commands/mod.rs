//! One module per command.

mod doctor;

use crate::settings::{Command, Values};

/// Runs `command`.
pub fn dispatch(command: Command, values: &Values) -> anyhow::Result<()> {
    match command {
        Command::Doctor => doctor::run(values),
        other => anyhow::bail!("this version has no command {}", other.name()),
    }
}
