//! `finback run`: the reply to one prompt.

use std::io::Write;

use finback_checkpoint::{Dtype, Entry, write_file};
use serde_json::json;

use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::outfile::{OutFile, exit};
use crate::output::print;
use crate::reply::Outcome;
use crate::session::Session;
use crate::settings::table::{JSON, LOGITS, PROMPT, PROMPT_IDS, STOP, SYSTEM};
use crate::settings::{UsageError, Values};

/// Runs one request and prints its reply.
pub async fn run(values: &Values) -> anyhow::Result<()> {
    let (prompt, ids) = (values.get(&PROMPT), values.get(&PROMPT_IDS));
    if prompt.is_some() == ids.is_some() {
        return Err(UsageError("give either PROMPT or --prompt-ids".into()).into());
    }
    if ids.is_some() && (values.get(&SYSTEM).is_some() || !values.get(&STOP).is_empty()) {
        let text = "--prompt-ids is the whole prompt as ids: it takes no --system and no --stop";
        return Err(UsageError(text.into()).into());
    }
    // Before the temporary file, which Ctrl-C removes.
    let interrupt = Interrupt::listen().await;
    let logits = values.get(&LOGITS).map(|file| OutFile::create("--logits", file)).transpose()?;
    let session = Session::start(values, interrupt)?;
    let ask = match ids {
        Some(ids) => session.ids(ids),
        None => session.chat(&messages(values))?,
    };
    let json = values.get(&JSON);
    let outcome = session.reply(ask, logits.is_some(), !json).await?;
    if let Some(file) = &logits {
        write_logits(file, &outcome)?;
    }
    if json {
        let prepared = &session.prepared;
        let line = outcome.to_json(&prepared.opened.model_id, prepared.numerics);
        print(&format!("{line}\n"))?;
    } else {
        eprintln!("{}", outcome.rate_line());
    }
    session.end()?;
    if outcome.finish.is_none() {
        // Ctrl-C cut it short: what came is kept, and the code says so.
        exit(INTERRUPTED);
    }
    Ok(())
}

fn messages(values: &Values) -> Vec<serde_json::Value> {
    let system = values.get(&SYSTEM).map(|text| json!({"role": "system", "content": text}));
    let user = values.get(&PROMPT).map(|text| json!({"role": "user", "content": text}));
    system.into_iter().chain(user).collect()
}

/// `logits`, the row each reply token was chosen from, and `prompt`, the prompt's last rows.
fn write_logits(file: &OutFile, outcome: &Outcome) -> anyhow::Result<()> {
    let tensors = [("logits", &outcome.logits), ("prompt", &outcome.prompt_logits)];
    let entries: Vec<Entry> = tensors
        .iter()
        .map(|(name, rows)| Entry {
            name: (*name).into(),
            dtype: Dtype::F32,
            shape: vec![rows.len(), rows.first().map_or(0, Vec::len)],
        })
        .collect();
    file.write(|path| {
        write_file(path, &entries, |entry, sink| {
            let rows = tensors.iter().filter(|(name, _)| *name == entry.name);
            for value in rows.flat_map(|(_, rows)| rows.iter().flatten()) {
                sink.write_all(&value.to_le_bytes())?;
            }
            Ok(())
        })
    })
}
