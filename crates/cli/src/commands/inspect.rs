//! `finback inspect`: what is in a checkpoint, what a round reads of it, what a stream needs.

use finback_model::Config;
use finback_model::inspect::{Census, RoundBytes, StateBytes};
use finback_model::plan::human;
use serde_json::{Value, json};

use crate::machine;
use crate::open::{self, Opened};
use crate::output::print;
use crate::settings::Values;
use crate::settings::table::JSON;

/// Prints the report; fails on the first tensor that cannot be loaded.
pub fn run(values: &Values) -> anyhow::Result<()> {
    let opened = open::open(values)?;
    let census = Census::of(&opened.config, &opened.checkpoint)?;
    // A map that does not fit would stop a start, so it stops here too.
    opened.token_map()?;
    print(&if values.get(&JSON) {
        format!("{}\n", report(&opened, &census))
    } else {
        text(&opened, &census)
    })
}

fn report(opened: &Opened, census: &Census) -> Value {
    let config = &opened.config;
    let classes: Vec<Value> = census
        .classes(config)
        .into_iter()
        .map(|total| {
            json!({
                "class": total.class.name(),
                "tensors": total.tensors,
                "bytes": total.bytes,
                "parameters": total.parameters,
            })
        })
        .collect();
    let round = RoundBytes::of(config, census);
    let state = StateBytes::of(config);
    json!({
        "checkpoint": opened.directory,
        "shards": opened.checkpoint.shards().len(),
        "tokenizer": opened.tokenizer.is_some(),
        "config": {
            "num_hidden_layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
            "vocab_size": config.vocab_size,
            "max_position_embeddings": config.max_position_embeddings,
            "n_routed_experts": config.n_routed_experts,
            "num_experts_per_tok": config.num_experts_per_tok,
            "engram_layers": config.engram.as_ref().map_or(0, |engram| engram.layer_ids.len()),
            "draft_blocks": config.drafts.as_ref().map_or(0, |drafts| drafts.layers),
        },
        "classes": classes,
        "round_bytes": {
            "dense": round.dense,
            "experts": round.experts,
            "engram": round.engram,
            "embeddings": round.embeddings,
            "total": round.total(),
        },
        "kv_bytes_per_position": state.kv_per_position(),
        "slot_bytes": state.rings + state.draft_rings + state.open_groups,
        "context_that_fits": context_that_fits(config, census),
    })
}

/// Positions whose KV fits beside the weights; `None` where the memory is unknown.
fn context_that_fits(config: &Config, census: &Census) -> Option<u64> {
    let (_, available) = machine::memory()?;
    let state = StateBytes::of(config);
    let weights = census.bytes(|_| true) - census.table_bytes();
    let slot = state.rings + state.draft_rings + state.open_groups;
    let left = available.saturating_sub(weights + slot) as f64;
    let positions = match state.kv_per_position() {
        bytes if bytes > 0.0 => (left / bytes) as u64,
        _ => u64::MAX,
    };
    Some(positions.min(config.max_position_embeddings as u64))
}

fn text(opened: &Opened, census: &Census) -> String {
    let config = &opened.config;
    let tokenizer = if opened.tokenizer.is_some() { "tokenizer.json" } else { "none" };
    let mut lines = vec![
        format!("checkpoint  {}", opened.directory.display()),
        format!(
            "model       {} layers of {} channels, {} experts of which a token uses {}, {} token ids",
            config.num_hidden_layers,
            config.hidden_size,
            config.n_routed_experts,
            config.num_experts_per_tok,
            config.vocab_size
        ),
        format!("context     {} positions at most", config.max_position_embeddings),
        format!("tokenizer   {tokenizer}"),
        format!("\nstored in {} shards", opened.checkpoint.shards().len()),
    ];
    for total in census.classes(config) {
        lines.push(format!(
            "  {:<53} {:>8}  {:>6} tensors  {:>9.1} M parameters",
            total.class.name(),
            human(total.bytes),
            total.tensors,
            total.parameters as f64 / 1e6
        ));
    }
    let round = RoundBytes::of(config, census);
    lines.push(format!("\na round of one token reads {}", human(round.total())));
    for (name, bytes) in [
        ("attention, shared experts, routers, hyper-connections", round.dense),
        ("routed experts", round.experts),
        ("Engram", round.engram),
        ("embedding and head", round.embeddings),
    ] {
        lines.push(format!("  {name:<53} {:>8}", human(bytes)));
    }
    let state = StateBytes::of(config);
    let slot = state.rings + state.draft_rings + state.open_groups;
    lines.push(format!(
        "\na stream takes {} B of KV a position, and {} whatever its length",
        state.kv_per_position(),
        human(slot)
    ));
    if let Some(positions) = context_that_fits(config, census) {
        lines.push(format!("here the weights leave room for {positions} positions"));
    }
    lines.join("\n") + "\n"
}
