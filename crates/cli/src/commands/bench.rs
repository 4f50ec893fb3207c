//! `finback bench`: measures and judges servers over HTTP.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use finback_bench::{
    BenchError, Step, Target, cache, capacity, compare, concurrent, fill, openai, soak,
};
use serde_json::Value as Json;

use crate::outfile::OutFile;
use crate::output::print;
use crate::progress::Steps;
use crate::round;
use crate::settings::bench::{
    ALONE, API_KEY, CHART, FIRST, HUGE, JSON_FILE, LEVELS, LONG, MINUTES, MIXED, MODEL,
    NEEDLE_SEED, PID, PROMPT_TOKENS, PROMPTS, REPLY, REPS, REQUIRE_COLD, REQUIRE_REUSE,
    ROUND_LAUNCHES, SECOND, SERIAL, STAGGER_MS, STREAMS, TEMPERATURES, TOKENS, URL, URLS,
};
use crate::settings::table::SEED;
use crate::settings::{UsageError, Values};

/// Requests that each stream of a soak sends at least: on the slowest server some are repeated.
const SOAK_LEAST: usize = 4;

/// `finback bench concurrent`
pub fn concurrent(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
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
    output.show(&report.text(), &report.to_json(&target))?;
    ensure!(report.passed(), "{}: {}", target.url(), report.summary());
    Ok(())
}

/// `finback bench openai`
pub fn openai(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
    let target = target(values, &values.get(&URL))?;
    let mut steps = Steps::new("bench openai");
    let report = openai::run(&target, &fixed(values), &mut |step| steps.at(step));
    steps.finish();
    let report = report?;
    output.show(&report.text(), &report.to_json(&target))
}

/// `finback bench compare`
pub fn compare(values: &Values) -> anyhow::Result<()> {
    let (Some(first), Some(second)) = (values.get(&FIRST), values.get(&SECOND)) else {
        return Err(UsageError("give two addresses: the base's, and this one's".into()).into());
    };
    let chart = values.get(&CHART).map(|file| Chart::to(&file)).transpose()?;
    let output = Output::of(values)?;
    let (base, this) = (target(values, &first)?, target(values, &second)?);
    let mut steps = Steps::new("bench compare");
    let report = compare::run(&base, &this, &fixed(values), &mut |step| steps.at(step));
    steps.finish();
    let report = report?;
    if let Some(Chart { file, page }) = chart {
        let text = if page { report.html(&base, &this) } else { report.svg() };
        file.text(&text)?;
    }
    output.show(&report.text(), &report.to_json(&base, &this))?;
    ensure!(report.passed(), "{} is slower than {}", this.url(), base.url());
    Ok(())
}

/// `finback bench soak`
pub fn soak(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
    let target = target(values, &values.get(&URL))?;
    let options = soak::Options {
        time: Duration::from_secs_f64(values.get(&MINUTES) * 60.0),
        least: SOAK_LEAST,
        streams: values.get(&STREAMS),
        tokens: values.get(&TOKENS),
        seed: values.get(&SEED).unwrap_or(0),
    };
    let mut steps = Steps::new("bench soak");
    let report = soak::run(&target, &options, &mut |step| steps.at(step));
    steps.finish();
    output.show(&report.text(), &report.to_json(&target))?;
    ensure!(report.passed(), "{}: {}", target.url(), report.summary());
    Ok(())
}

/// `finback bench cache`
pub fn cache(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
    let target = target(values, &values.get(&URL))?;
    let options = cache::Options {
        long: values.get(&LONG),
        reply: values.get(&REPLY),
        require_cold: values.get(&REQUIRE_COLD),
        require_reuse: values.get(&REQUIRE_REUSE),
    };
    let mut steps = Steps::new("bench cache");
    let report = cache::run(&target, &options, &mut |step| steps.at(step));
    steps.finish();
    let report = report?;
    output.show(&report.text(), &report.to_json(&target))?;
    ensure!(report.qualified(), "{}: not qualified: {}", target.url(), report.summary());
    Ok(())
}

/// `finback bench fill`
pub fn fill(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
    let urls = values.get(&URLS);
    let targets: Vec<Target> =
        urls.iter().map(|url| target(values, url)).collect::<anyhow::Result<_>>()?;
    let options = fill::Options { long: values.get(&LONG), reply: values.get(&REPLY) };
    let mut reports = Vec::new();
    for (at, target) in (0u64..).zip(&targets) {
        let mut steps = Steps::new("bench fill");
        let report = fill::run(target, &options, &mut |step| {
            let (done, total) = (at * step.total + step.done, targets.len() as u64 * step.total);
            let now = format!("{}: {}", target.url(), step.now);
            steps.at(Step { done, total, now: &now });
        });
        steps.finish();
        reports.push((target, report?));
    }
    output.show(&fill::text_of(&reports), &fill::json_of(&reports))?;
    for (target, report) in &reports {
        ensure!(report.passed(), "{}: {}", target.url(), report.summary());
    }
    Ok(())
}

/// `finback bench capacity`
pub fn capacity(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
    let target = target(values, &values.get(&URL))?;
    let tokens = values.get(&PROMPT_TOKENS);
    let options = capacity::Options {
        prompts: values.get(&PROMPTS),
        tokens,
        huge: values.get(&HUGE).unwrap_or(tokens),
        reply: values.get(&REPLY),
        alone: values.get(&ALONE),
        seed: values.get(&NEEDLE_SEED),
        // The setting holds it to 32 bits.
        pid: values.get(&PID).map(|pid| pid as u32),
    };
    let mut steps = Steps::new("bench capacity");
    let report = capacity::run(&target, &options, &mut |step| steps.at(step));
    steps.finish();
    let report = report?;
    output.show(&report.text(), &report.to_json(&target))?;
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

/// `finback bench round`
pub fn round(values: &Values) -> anyhow::Result<()> {
    let output = Output::of(values)?;
    if values.get(&ROUND_LAUNCHES) {
        let listed = round::list(values)?;
        let text: String = listed.iter().map(round::Listed::text).collect();
        let rounds: Vec<Json> = listed.iter().map(round::Listed::to_json).collect();
        return output.show(text.trim_start(), &serde_json::json!({ "rounds": rounds }));
    }
    let report = round::run(values)?;
    output.show(&report.text(), &report.to_json())
}

fn target(values: &Values, url: &str) -> anyhow::Result<Target> {
    Target::connect(url, values.get(&MODEL), values.get(&API_KEY)).map_err(|error| match error {
        BenchError::Url { .. } => UsageError(error.to_string()).into(),
        other => other.into(),
    })
}

/// Where the JSON goes, if anywhere.
enum Output {
    Table,
    /// Instead of the table.
    Json,
    /// The JSON goes to a file, the table to standard output.
    Both(OutFile),
}

impl Output {
    fn of(values: &Values) -> anyhow::Result<Self> {
        Ok(match values.get(&JSON_FILE) {
            None => Self::Table,
            Some(file) if file == "-" => Self::Json,
            Some(file) => Self::Both(OutFile::create("--json", file)?),
        })
    }

    fn show(&self, table: &str, json: &Json) -> anyhow::Result<()> {
        match self {
            Self::Table => print(table),
            Self::Json => print(&format!("{json}\n")),
            Self::Both(file) => {
                file.text(&format!("{json}\n"))?;
                print(table)
            }
        }
    }
}

/// A chart's file, and whether it is a page.
struct Chart {
    file: OutFile,
    page: bool,
}

impl Chart {
    fn to(file: &str) -> anyhow::Result<Self> {
        let page = match Path::new(file).extension().and_then(|extension| extension.to_str()) {
            Some("html") => true,
            Some("svg") => false,
            _ => {
                let accepted = "a file that ends in .svg or .html";
                let text = format!("--chart: found {file:?}, accepted: {accepted}");
                return Err(UsageError(text).into());
            }
        };
        Ok(Self { file: OutFile::create("--chart", file)?, page })
    }
}
