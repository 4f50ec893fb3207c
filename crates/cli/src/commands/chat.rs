//! `finback chat`: a conversation in the terminal, one line a message.

use std::io::{BufRead, IsTerminal, Write};

use serde_json::{Value, json};

use crate::interrupt::Interrupt;
use crate::session::Session;
use crate::settings::Values;
use crate::settings::table::SYSTEM;

/// Reads messages until the input ends, and answers each.
pub async fn run(values: &Values) -> anyhow::Result<()> {
    let interrupt = Interrupt::listen().await;
    let session = Session::start(values, interrupt)?;
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
    let mut input = std::io::stdin().lock();
    loop {
        if terminal {
            eprint!("> ");
            std::io::stderr().flush()?;
        }
        let Some(line) = next_line(&mut input)? else { return Ok(()) };
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

/// The next line without its end; `None` where the input ends. Bytes that are no UTF-8 become U+FFFD:
/// one bad paste must not end the chat.
fn next_line(input: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    if input.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(&bytes);
    Ok(Some(line.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_utf8_is_a_line() {
        let mut input = &b"one\r\n\n\xfftwo\xc3\nlast"[..];
        for line in ["one", "", "\u{fffd}two\u{fffd}", "last"] {
            assert_eq!(next_line(&mut input).unwrap().as_deref(), Some(line));
        }
        assert_eq!(next_line(&mut input).unwrap(), None);
    }
}
