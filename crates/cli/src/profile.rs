//! `--profile-rounds`: a table on standard error and a trace that Chrome's viewers open.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use finback_engine::{HOST, Passes, Profile};
use serde_json::{Value, json};

use crate::outfile::OutFile;

/// A profile and the file it is written to.
#[derive(Debug)]
pub struct Recording {
    pub profile: Profile,
    pub file: OutFile,
}

impl Recording {
    /// Writes the trace and prints the table.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&self) -> anyhow::Result<()> {
        let passes = self.profile.passes();
        self.file.text(&trace(&passes).to_string())?;
        eprint!("{}", table(&passes));
        eprintln!("the first {} passes are in {}", passes.kept.len(), self.file.path().display());
        Ok(())
    }
}

/// What a user calls a step.
fn label(step: &'static str) -> &'static str {
    if step == "choose" { "choose (sampling)" } else { step }
}

/// A line for each kind of pass, and under it its phases and their steps, the longest first.
fn table(passes: &Passes) -> String {
    let mut text = String::new();
    for (kind, all) in &passes.passes {
        let ms = |took: Duration| took.as_secs_f64() * 1e3;
        let mean = ms(all.took) / all.calls.max(1) as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{kind}: {} passes, {mean:.3} ms each", all.calls);
        let mut lines: Vec<_> = passes.totals.iter().filter(|((of, ..), _)| of == kind).collect();
        lines.sort_by_key(|(_, total)| std::cmp::Reverse(total.took));
        let _ =
            writeln!(text, "  {:<12} {:<18} {:>12} {:>7}", "phase", "step", "ms a pass", "share");
        for ((_, phase, step), total) in lines {
            let each = ms(total.took) / all.calls.max(1) as f64;
            let share = 100.0 * total.took.as_secs_f64() / all.took.as_secs_f64().max(1e-9);
            let _ = writeln!(text, "  {phase:<12} {:<18} {each:>12.4} {share:>6.1}%", label(step));
        }
    }
    text
}

/// Chrome's trace format: passes, phases and steps as complete events, times in microseconds.
fn trace(passes: &Passes) -> Value {
    let Some(start) = passes.kept.first().map(|pass| pass.began) else {
        return json!({"traceEvents": []});
    };
    let event = |row: usize, name: &str, began: Instant, took: Duration, args: Value| {
        json!({
            "ph": "X", "pid": 1, "tid": row, "name": name, "args": args,
            "ts": (began - start).as_secs_f64() * 1e6, "dur": took.as_secs_f64() * 1e6,
        })
    };
    let name = |row: usize, name: &str| json!({"ph": "M", "pid": 1, "tid": row, "name": "thread_name", "args": {"name": name}});
    let mut events = vec![name(1, "passes"), name(2, HOST), name(3, "steps")];
    for pass in &passes.kept {
        let end = pass.phases.last().map_or(pass.began, |phase| phase.1);
        let args = json!({"streams": pass.streams, "rows": pass.rows});
        events.push(event(1, pass.kind, pass.began, end - pass.began, args));
        for (phase, begin, end) in pass.spans() {
            events.push(event(2, phase, begin, end - begin, json!({})));
        }
        for step in &pass.steps {
            events.push(event(3, label(step.step), step.began, step.took, json!({})));
        }
    }
    json!({"traceEvents": events, "displayTimeUnit": "ms"})
}
