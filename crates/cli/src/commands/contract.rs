//! `finback contract`: every kernel held to its gates, and every gate to planted faults.

use anyhow::bail;
use finback_kernels::contract::{self, Report, Scope, Verdict};
use finback_kernels::manifest::KERNELS;
use serde_json::{Value, json};

use crate::device;
use crate::output::print;
use crate::settings::contract::{DEVICE, KERNEL, NO_FAULTS};
use crate::settings::table::JSON;
use crate::settings::{UsageError, Values};

/// Prints a table and a summary; fails where a kernel fails or a fault is missed.
pub fn run(values: &Values) -> anyhow::Result<()> {
    let only = values.get(&KERNEL);
    if let Some(name) = only.as_deref().filter(|name| KERNELS.iter().all(|k| k.name != *name)) {
        let names: Vec<&str> = KERNELS.iter().map(|kernel| kernel.name).collect();
        let names = names.join(", ");
        return Err(UsageError(format!("--kernel: found {name:?}, wanted one of {names}")).into());
    }
    let mut device = device::open(values, "--device", &values.get(&DEVICE))?;
    let scope = Scope { only: only.as_deref(), no_faults: values.get(&NO_FAULTS) };
    let report = contract::run(&mut *device, scope, |_| {});
    print(&if values.get(&JSON) { format!("{}\n", to_json(&report)) } else { report.text() })?;
    if !report.is_green() {
        let (_, fails, _, missed) = report.counts();
        bail!(
            "the contract does not hold: {fails} kernels fail, {missed} planted faults are missed"
        );
    }
    Ok(())
}

fn to_json(report: &Report) -> Value {
    let kernels: Vec<Value> = report
        .kernels
        .iter()
        .map(|kernel| {
            let gates: serde_json::Map<String, Value> = kernel
                .gates
                .iter()
                .map(|(gate, verdict)| {
                    let word = match verdict {
                        Verdict::Pass => json!("pass"),
                        Verdict::None => json!("none"),
                        Verdict::Fail(why) => json!({ "fail": why }),
                    };
                    (gate.name().into(), word)
                })
                .collect();
            let faults: Vec<Value> = kernel
                .faults
                .iter()
                .map(|f| json!({ "name": f.name, "gate": f.gate.name(), "red": f.red }))
                .collect();
            json!({
                "kernel": kernel.kernel, "shapes": kernel.shapes, "passes": kernel.passes(),
                "gates": gates, "faults": faults,
                "faults_skipped": kernel.faults_skipped,
            })
        })
        .collect();
    let (passes, fails, red, missed) = report.counts();
    json!({
        "device": report.device, "kernels": kernels, "passes": passes, "fails": fails,
        "faults_red": red, "faults_missed": missed,
        "skipped": report.skipped,
    })
}
