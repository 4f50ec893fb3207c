//! `finback doctor`: this machine, its backends, and the effective settings with their origin.

use finback_cpu::simd::Isa;
use finback_kernels::device::DeviceError;
use finback_model::plan::human;
use serde_json::{Value as Json, json};

use crate::machine;
use crate::output::print;
use crate::settings::table::{JSON, SETTINGS_DOC};
use crate::settings::{Declared, Origin, Value, Values, markdown, unknown_variables};

/// Backends by name, each with what this machine has of it.
fn backends() -> [(&'static str, String); 3] {
    let cuda = match finback_cuda::about() {
        Ok(about) => {
            let (major, minor) = about.capability;
            let (cuda, memory) = (about.driver, human(about.memory as u64));
            format!(
                "{}, compute capability {major}.{minor}, {memory}, driver for CUDA {}.{}",
                about.name,
                cuda / 1000,
                cuda % 1000 / 10
            )
        }
        Err(DeviceError::Missing { reason, .. }) => format!("not here: {reason}"),
        Err(error) => format!("not here: {error}"),
    };
    [("cpu", "ready".into()), ("cuda", cuda), ("metal", "not built in this version".into())]
}

/// Prints the report.
pub fn run(values: &Values) -> anyhow::Result<()> {
    if values.get(&SETTINGS_DOC) {
        return print(&markdown());
    }
    let report = report(values);
    print(&if values.get(&JSON) { format!("{report}\n") } else { text(&report) })
}

fn report(values: &Values) -> Json {
    let (total, available) = machine::memory().unzip();
    let settings: Vec<Json> = values
        .list()
        .filter(|(declared, ..)| declared.env)
        .map(|(declared, value, origin)| setting(declared, value, origin))
        .collect();
    let backends: serde_json::Map<String, Json> =
        backends().into_iter().map(|(name, state)| (name.into(), json!(state))).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "machine": {
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "processor": machine::processor(),
            "cores": machine::cores(),
            "isa": Isa::available().map(Isa::name).collect::<Vec<_>>(),
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

fn text(report: &Json) -> String {
    let word = |value: &Json| value.as_str().unwrap_or_default().to_string();
    let words = |value: &Json| -> Vec<String> {
        value.as_array().into_iter().flatten().map(word).collect()
    };
    let bytes = |value: &Json| value.as_u64().map_or_else(|| "unknown".into(), human);
    let machine = &report["machine"];
    let mut lines = vec![
        format!("finback {}", word(&report["version"])),
        String::new(),
        "Machine".into(),
        format!("  system     {} {}", word(&machine["os"]), word(&machine["arch"])),
        format!("  processor  {}", word(&machine["processor"])),
        format!("  cores      {}", machine["cores"]),
        format!("  isa        {}", words(&machine["isa"]).join(", ")),
        format!(
            "  memory     {}, {} available",
            bytes(&machine["memory_bytes"]),
            bytes(&machine["memory_available_bytes"])
        ),
        String::new(),
        "Backends".into(),
    ];
    for (name, state) in report["backends"].as_object().into_iter().flatten() {
        lines.push(format!("  {name:<9}  {}", word(state)));
    }
    lines.extend([String::new(), "Settings".into()]);
    for setting in report["settings"].as_array().into_iter().flatten() {
        let [name, value, origin] = ["name", "value", "origin"].map(|key| word(&setting[key]));
        lines.push(format!("  {name:<14} {value}  ({origin})"));
    }
    for name in words(&report["unknown_variables"]) {
        lines.push(format!("\nThe environment variable {name} names no setting."));
    }
    lines.join("\n") + "\n"
}
