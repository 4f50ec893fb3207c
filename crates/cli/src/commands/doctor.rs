//! `finback doctor`: this machine, its backends, and the effective settings with their origin.

use crate::machine;
use crate::settings::table::{JSON, SETTINGS_DOC};
use crate::settings::{Declared, Origin, Value, Values, markdown, unknown_variables};
use serde_json::{Value as Json, json};

/// Backends by name, each with whether this binary has it.
const BACKENDS: [(&str, &str); 3] = [
    ("cpu", "ready"),
    ("cuda", "not built in this version"),
    ("metal", "not built in this version"),
];

/// Prints the report.
pub fn run(values: &Values) -> anyhow::Result<()> {
    if values.get(&SETTINGS_DOC) {
        print!("{}", markdown());
        return Ok(());
    }
    let report = report(values);
    if values.get(&JSON) {
        println!("{report}");
    } else {
        print_text(&report);
    }
    Ok(())
}

fn report(values: &Values) -> Json {
    let (total, available) = machine::memory().unzip();
    let settings: Vec<Json> = values
        .list()
        .filter(|(declared, ..)| declared.env)
        .map(|(declared, value, origin)| setting(declared, value, origin))
        .collect();
    let backends: serde_json::Map<String, Json> =
        BACKENDS.iter().map(|(name, state)| ((*name).into(), json!(state))).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": {
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "processor": machine::processor(),
            "cores": machine::cores(),
            "memory_bytes": total,
            "memory_available_bytes": available,
        },
        "backends": backends,
        "settings": settings,
        "unknown_variables": unknown_variables(std::env::vars().map(|(name, _)| name)),
    })
}

fn setting(declared: &Declared, value: Option<&Value>, origin: Origin) -> Json {
    let origin = match origin {
        Origin::Environment => declared.variable(),
        Origin::Flag => declared.flag(),
        Origin::Default => Origin::Default.name().into(),
    };
    let value = value.map_or_else(|| declared.unset.to_string(), Value::to_string);
    json!({ "name": declared.name, "value": value, "origin": origin })
}

fn print_text(report: &Json) {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_string();
    let bytes =
        |value: &Json| value.as_u64().map_or_else(|| "unknown".into(), machine::human_bytes);
    let machine = &report["machine"];
    println!("finback {}", text(&report["version"]));
    println!("\nMachine");
    println!("  system     {} {}", text(&machine["os"]), text(&machine["arch"]));
    println!("  processor  {}", text(&machine["processor"]));
    println!("  cores      {}", machine["cores"]);
    println!(
        "  memory     {}, {} available",
        bytes(&machine["memory_bytes"]),
        bytes(&machine["memory_available_bytes"])
    );
    println!("\nBackends");
    for (name, state) in report["backends"].as_object().into_iter().flatten() {
        println!("  {name:<9}  {}", text(state));
    }
    println!("\nSettings");
    for setting in report["settings"].as_array().into_iter().flatten() {
        println!(
            "  {:<14} {}  ({})",
            text(&setting["name"]),
            text(&setting["value"]),
            text(&setting["origin"])
        );
    }
    for name in report["unknown_variables"].as_array().into_iter().flatten() {
        println!("\nThe environment variable {} names no setting.", text(name));
    }
}
