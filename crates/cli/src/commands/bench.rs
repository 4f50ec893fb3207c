//! `finback bench`: measures and judges servers over HTTP.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use finback_bench::{BenchError, Target, compare, concurrent, openai, soak};
use serde_json::Value as Json;

use crate::output::print;
use crate::progress::Steps;
use crate::settings::bench::{
    ALONE, API_KEY, CHART, FIRST, JSON_FILE, LEVELS, MINUTES, MIXED, MODEL, REPS, SECOND, SERIAL,
    STAGGER_MS, STREAMS, TEMPERATURES, TOKENS, URL,
};
use crate::settings::table::SEED;
use crate::settings::{UsageError, Values};

/// `finback bench concurrent`
pub fn concurrent(values: &Values) -> anyhow::Result<()> {
    let target = target(values, &values.get(&URL))?;
    let options = concurrent::Options {
        levels: values.get(&LEVELS).into_iter().map(|level| level as usize).collect(),
        tokens: values.get(&TOKENS),
        reps: values.get(&REPS),
        temperatures: values.get(&TEMPERATURES),
        alone: values.get(&ALONE),
        serial: values.get(&SERIAL),
        mixed: values.get(&MIXED),
        stagger: Duration::from_millis(values.get(&STAGGER_MS)),
    };
    let mut steps = Steps::new("bench concurrent");
    let report = concurrent::run(&target, &options, &mut |step| steps.at(step));
    steps.finish();
    show(values, &report.text(), &report.to_json(&target))?;
    ensure!(report.passed(), "{}: {}", target.url(), report.summary());
    Ok(())
}

/// `finback bench openai`
pub fn openai(values: &Values) -> anyhow::Result<()> {
    let target = target(values, &values.get(&URL))?;
    let mut steps = Steps::new("bench openai");
    let report = openai::run(&target, &fixed(values), &mut |step| steps.at(step));
    steps.finish();
    let report = report?;
    show(values, &report.text(), &report.to_json(&target))
}

/// `finback bench compare`
pub fn compare(values: &Values) -> anyhow::Result<()> {
    let (Some(first), Some(second)) = (values.get(&FIRST), values.get(&SECOND)) else {
        return Err(UsageError("give two addresses: the base's, and this one's".into()).into());
    };
    let chart = values.get(&CHART).map(|file| Chart::to(&file)).transpose()?;
    let (base, this) = (target(values, &first)?, target(values, &second)?);
    let mut steps = Steps::new("bench compare");
    let report = compare::run(&base, &this, &fixed(values), &mut |step| steps.at(step));
    steps.finish();
    let report = report?;
    if let Some(Chart { file, page }) = chart {
        let text = if page { report.html(&base, &this) } else { report.svg() };
        fs::write(&file, text).context(file)?;
    }
    show(values, &report.text(), &report.to_json(&base, &this))?;
    ensure!(report.passed(), "{} is slower than {}", this.url(), base.url());
    Ok(())
}

/// `finback bench soak`
pub fn soak(values: &Values) -> anyhow::Result<()> {
    let target = target(values, &values.get(&URL))?;
    let options = soak::Options {
        time: Duration::from_secs_f64(values.get(&MINUTES) * 60.0),
        streams: values.get(&STREAMS),
        tokens: values.get(&TOKENS),
        seed: values.get(&SEED).unwrap_or(0),
    };
    let mut steps = Steps::new("bench soak");
    let report = soak::run(&target, &options, &mut |step| steps.at(step));
    steps.finish();
    show(values, &report.text(), &report.to_json(&target))?;
    ensure!(report.passed(), "{}: {}", target.url(), report.summary());
    Ok(())
}

fn fixed(values: &Values) -> openai::Options {
    openai::Options {
        tokens: values.get(&TOKENS),
        reps: values.get(&REPS),
        temperatures: values.get(&TEMPERATURES),
    }
}

fn target(values: &Values, url: &str) -> anyhow::Result<Target> {
    Target::connect(url, values.get(&MODEL), values.get(&API_KEY)).map_err(|error| match error {
        BenchError::Url { .. } => UsageError(error.to_string()).into(),
        other => other.into(),
    })
}

/// The table, and the JSON where it is asked for.
fn show(values: &Values, text: &str, json: &Json) -> anyhow::Result<()> {
    let json_text = format!("{json}\n");
    match values.get(&JSON_FILE).as_deref() {
        None => print(text),
        Some("-") => print(&json_text),
        Some(file) => {
            fs::write(file, json_text).with_context(|| file.to_owned())?;
            print(text)
        }
    }
}

/// A chart's file, and whether it is a page.
struct Chart {
    file: String,
    page: bool,
}

impl Chart {
    fn to(file: &str) -> Result<Self, UsageError> {
        let page = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
            Some("html") => true,
            Some("svg") => false,
            _ => {
                let accepted = "a file that ends in .svg or .html";
                return Err(UsageError(format!("--chart: found {file:?}, accepted: {accepted}")));
            }
        };
        Ok(Self { file: file.to_owned(), page })
    }
}
