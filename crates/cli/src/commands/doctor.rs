//! `finback doctor`: this machine, its backends, what the settings come to here and why, and what
//! requests get where they do not say.

use finback_cpu::simd::Isa;
use finback_kernels::device::DeviceError;
use finback_model::plan::{Verdict, human};
use finback_protocol::Defaults;
use serde_json::{Value as Json, json};

use crate::backend;
use crate::demo;
use crate::load::{self, Prepared};
use crate::machine;
use crate::one_line;
use crate::output::print;
use crate::settings::table::{CACHE_DIR, JSON, SETTINGS_DOC};
use crate::settings::{Declared, Origin, Value, Values, markdown, unknown_variables};

/// Backends by name, each with what this machine has of it.
fn backends() -> [(&'static str, String); 3] {
    let cuda = match finback_cuda::about() {
        Ok(about) => {
            let (major, minor) = about.capability;
            let (cuda, memory) = (about.driver, human(about.memory as u64));
            let maps = if about.reads_maps { "takes" } else { "does not take" };
            format!(
                "{}, compute capability {major}.{minor}, {memory}, driver for CUDA {}.{}, {maps} \
                 --experts-on host; {}",
                about.name,
                cuda / 1000,
                cuda % 1000 / 10,
                gpus()
            )
        }
        Err(DeviceError::Missing { reason, .. }) => format!("not here: {reason}"),
        Err(error) => format!("not here: {error}"),
    };
    [("cpu", "ready".into()), ("cuda", cuda), ("metal", "not built in this version".into())]
}

/// How many NVIDIA GPUs there are, and whether they can share a model.
fn gpus() -> String {
    match (finback_cuda::count(), finback_cuda::gathers()) {
        (Ok(count @ 2..), Ok(())) => format!("{count} GPUs"),
        (Ok(count @ 2..), Err(error)) => format!("{count} GPUs, of which --gpus takes 1: {error}"),
        _ => "1 GPU".into(),
    }
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
    // As `serve` does, up to where it would allocate.
    let prepared = load::prepare(values);
    let mut effective = prepared.as_ref().map(Prepared::effective).unwrap_or_default();
    effective.extend(backend::effective(values));
    if let Ok(directory) = demo::cache(values.get(&CACHE_DIR).as_deref()) {
        effective.push((CACHE_DIR.declared.name, directory.display().to_string()));
    }
    let settings: Vec<Json> = values
        .list()
        .filter(|(declared, ..)| declared.env)
        .map(|(declared, value, origin)| setting(declared, value, origin, &effective))
        .collect();
    // Of a plan the reason, whatever it comes to; of all else what would end the start.
    let refused = |prepared: &Prepared| match prepared.plan.verdict {
        Verdict::Refused => Some(prepared.plan.reason.clone()),
        _ => prepared.check().err().map(|error| one_line(&error)),
    };
    let (ready, reason) = match &prepared {
        Ok(prepared) => match refused(prepared) {
            None => (true, prepared.plan.reason.clone()),
            Some(reason) => (false, reason),
        },
        Err(error) => (false, one_line(error)),
    };
    let start = json!({ "ready": ready, "reason": reason });
    let requests = prepared.as_ref().map_or(Json::Null, |prepared| requests(&prepared.defaults));
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
        "start": start,
        "settings": settings,
        "requests": requests,
        "unknown_variables": unknown_variables(std::env::vars().map(|(name, _)| name)),
    })
}

/// A setting's value here, where it comes from, and what was given or is the rule.
fn setting(
    declared: &Declared,
    value: Option<&Value>,
    origin: Origin,
    effective: &[(&'static str, String)],
) -> Json {
    let origin = match origin {
        Origin::Environment => declared.variable(),
        Origin::Flag => declared.flag(),
        Origin::Default => Origin::Default.name().into(),
    };
    let given = value.map_or_else(|| declared.unset.to_string(), Value::to_string);
    let here = effective.iter().find(|(name, _)| *name == declared.name);
    let value = here.map_or_else(|| given.clone(), |(_, value)| value.clone());
    json!({ "name": declared.name, "value": value, "origin": origin, "given": given })
}

/// What requests get where they do not say.
fn requests(defaults: &Defaults) -> Json {
    let Defaults { temperature, top_k, top_p, min_p, thinking } = *defaults;
    json!({
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "thinking": load::on_or_off(thinking),
        "seed": "made from the prompt",
        "max_tokens": "what the prompt leaves of the context",
    })
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
    let start = &report["start"];
    let ready = if start["ready"] == true { "ready" } else { "does not start here" };
    lines.extend([String::new(), "Start".into()]);
    lines.push(format!("  {ready}: {}", word(&start["reason"])));
    lines.extend([String::new(), "Settings".into()]);
    for setting in report["settings"].as_array().into_iter().flatten() {
        let [name, value, origin, given] =
            ["name", "value", "origin", "given"].map(|key| word(&setting[key]));
        let why = if given == value { origin } else { format!("{origin}: {given}") };
        lines.push(format!("  {name:<21} {value}  ({why})"));
    }
    if let Some(requests) = report["requests"].as_object() {
        lines.extend([String::new(), "Requests, where they do not say".into()]);
        for (name, value) in requests {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            lines.push(format!("  {name:<21} {value}"));
        }
    }
    for name in words(&report["unknown_variables"]) {
        lines.push(format!("\nThe environment variable {name} names no setting."));
    }
    lines.join("\n") + "\n"
}
