//! `finback serve`: the HTTP server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use finback_server::{App, Signals, serve};
use serde_json::json;
use tokio::net::TcpListener;

use super::plan::plan_text;
use crate::load;
use crate::machine;
use crate::open::TOKENIZER_FILE;
use crate::output::print;
use crate::profile::Recording;
use crate::session::api;
use crate::settings::Values;
use crate::settings::table::{DRAIN_SECONDS, HOST, KEEPALIVE_SECONDS, PORT};

/// Loads the checkpoint and answers until Ctrl-C.
pub async fn run(values: &Values) -> anyhow::Result<()> {
    // The address first: a port that is taken is known before a large checkpoint is read.
    let address = (values.get(&HOST), values.get(&PORT) as u16);
    let listener = TcpListener::bind((address.0.as_str(), address.1)).await.with_context(|| {
        format!(
            "cannot listen on {}:{} (--host, --port), accepted: an address of this machine and a port that is free, or 0 \
             for any that is",
            address.0, address.1
        )
    })?;
    let prepared = load::prepare(values)?;
    let opened = &prepared.opened;
    let attention = prepared.attention.map_or(String::new(), |word| format!(", {word} attention"));
    print(&format!(
        "checkpoint {}\nmodel      {} ({} numerics{attention})\n{}",
        opened.directory.display(),
        opened.model_id,
        prepared.numerics,
        plan_text(&prepared.plan)
    ))?;
    prepared.check()?;
    let Some(api) = api(&prepared) else {
        bail!("{}: no {TOKENIZER_FILE}, which a server needs", opened.directory.display());
    };
    // The tokenizer, the tensor directory and the like: measured, as no plan foresees them.
    let program = machine::allocated();
    let (engine, recording) = prepared.start()?;
    // Before the address is printed: whoever has read it may end the server in peace.
    let signals = Signals::listen().context("Ctrl-C and SIGTERM cannot be taken over")?;
    let address = listener.local_addr()?;
    let curl = curl(&address.to_string(), &opened.model_id);
    print(&format!("listening  http://{address}\n\n{curl}\n"))?;
    let keepalive = Duration::from_secs(values.get(&KEEPALIVE_SECONDS));
    let app = App::new(Arc::new(api), engine.handle())
        .with_keepalive(keepalive)
        .with_planned(program + prepared.host_bytes());
    let drain = Duration::from_secs(values.get(&DRAIN_SECONDS));
    serve(listener, app, drain, &signals).await.context("the server")?;
    // A round is recorded after its last token is said: only a thread that has ended has told all.
    drop(engine);
    recording.as_ref().map_or(Ok(()), Recording::finish)
}

/// A request to paste into a shell.
fn curl(address: &str, model: &str) -> String {
    let body = json!({
        "model": model,
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 32,
    });
    // A quote inside single quotes ends them for a moment.
    let body = body.to_string().replace('\'', r"'\''");
    format!(
        "curl http://{address}/v1/chat/completions -H 'Content-Type: application/json' -d '{body}'"
    )
}
