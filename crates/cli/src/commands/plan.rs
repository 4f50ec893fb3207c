//! `finback plan`: whether a checkpoint would start here, with the arithmetic; nothing is allocated.

use std::fmt::Write as _;

use finback_model::plan::{Kind, Plan, Verdict, human};
use finback_ops::BLOCK_POSITIONS;
use serde_json::{Value, json};

use crate::load;
use crate::output::print;
use crate::settings::Values;
use crate::settings::table::JSON;

/// Prints the plan; fails where it is refused.
pub fn run(values: &Values) -> anyhow::Result<()> {
    let prepared = load::prepare(values)?;
    let (plan, context) = (&prepared.plan, prepared.context());
    print(&if values.get(&JSON) {
        format!("{}\n", to_json(plan, context))
    } else {
        let directory = prepared.opened.directory.display();
        format!("checkpoint {directory}\ncontext    {context}\n{}", plan_text(plan))
    })?;
    prepared.check()
}

/// A plan as lines: every item with its bytes and how they come about, then the verdict.
pub fn plan_text(plan: &Plan) -> String {
    let mut text = String::from("memory\n");
    for item in &plan.items {
        let bytes = human(item.bytes);
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "  {:<16} {bytes:>8}  {:<9}  {}", item.name, kind(item.kind), item.how);
    }
    let (positions, each) = (plan.blocks * BLOCK_POSITIONS, plan.position_bytes);
    let mib = positions as f64 * each / f64::from(1 << 20);
    let _ = writeln!(text, "  pool: {positions} positions x {each} B = {mib:.1} MiB");
    let _ = writeln!(text, "  {}: {}", verdict(plan.verdict), plan.reason);
    text
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Allocated => "allocated",
        Kind::Mapped => "mapped",
        Kind::ByRow => "by row",
        Kind::Host => "host",
        Kind::Locked => "locked",
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::FitsFromDisk => "fits from disk",
        Verdict::Refused => "refused",
    }
}

fn to_json(plan: &Plan, context: usize) -> Value {
    let items: Vec<Value> = plan
        .items
        .iter()
        .map(|item| {
            json!({
                "name": item.name, "bytes": item.bytes, "kind": kind(item.kind), "how": item.how,
            })
        })
        .collect();
    json!({
        "fits": plan.verdict != Verdict::Refused,
        "verdict": verdict(plan.verdict),
        "reason": plan.reason,
        "context": context,
        "kv_blocks": plan.blocks,
        "kv_position_bytes": plan.position_bytes,
        "allocated_bytes": plan.bytes(Kind::Allocated),
        "mapped_bytes": plan.bytes(Kind::Mapped),
        "by_row_bytes": plan.bytes(Kind::ByRow),
        "host_bytes": plan.bytes(Kind::Host),
        "locked_bytes": plan.bytes(Kind::Locked),
        "items": items,
    })
}
