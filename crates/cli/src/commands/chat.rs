//! `finback chat`: a conversation in the terminal, one line a message.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::{Value, json};

use crate::session::Session;
use crate::settings::Values;
use crate::settings::table::SYSTEM;

/// Reads messages until the input ends, and answers each.
pub async fn run(values: &Values) -> anyhow::Result<()> {
    let session = Session::start(values)?;
    let mut messages: Vec<Value> = Vec::new();
    if let Some(text) = values.get(&SYSTEM) {
        messages.push(json!({"role": "system", "content": text}));
    }
    let terminal = std::io::stdin().is_terminal();
    if terminal {
        eprintln!(
            "{}: one line is one message; Ctrl-C ends a reply, Ctrl-D the chat",
            session.prepared.opened.model_id
        );
    }
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if terminal {
            eprint!("> ");
            std::io::stderr().flush()?;
        }
        let Some(line) = lines.next() else { return Ok(()) };
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        messages.push(json!({"role": "user", "content": line}));
        // A refused message, such as one that leaves no room, ends the chat: the next would be longer.
        let outcome = session.reply(session.chat(&messages)?, false, true).await?;
        eprintln!("{}", outcome.rate_line());
        messages.push(json!({"role": "assistant", "content": outcome.text}));
    }
}
