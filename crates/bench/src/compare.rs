//! Two servers against each other, in an order and with a rule that noise does not pass.

use serde_json::{Value, json};

use crate::judge::Verdict;
use crate::stats::mean;
use crate::table::{figure, table};
use crate::{BenchResult, Say, Step, Target, chart, openai};

/// A gap of the means, as a share of the base's, that noise may make.
const NOISE: f64 = 0.01;

/// How this stands to the base in one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Both runs are over both of the base, and the mean gap passes 1%.
    Faster,
    /// Neither of the others.
    Same,
    /// Both runs are under both of the base, and the mean gap passes 1%.
    Slower,
    /// A run has no rate.
    Unknown,
}

impl Pace {
    /// As tables and JSON name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Slower => "slower",
            Self::Unknown => "unknown",
        }
    }
}

/// Judges two runs of this against two of the base, higher being faster.
#[must_use]
pub fn pace(base: &[f64], this: &[f64]) -> Pace {
    let (Some(of_base), Some(of_this)) = (mean(base), mean(this)) else { return Pace::Unknown };
    if base.len() < 2 || this.len() < 2 {
        return Pace::Unknown;
    }
    let all_under = |low: &[f64], high: &[f64]| low.iter().all(|l| high.iter().all(|h| l < h));
    let gap = (of_this - of_base) / of_base;
    if all_under(this, base) && gap < -NOISE {
        Pace::Slower
    } else if all_under(base, this) && gap > NOISE {
        Pace::Faster
    } else {
        Pace::Same
    }
}

/// One prompt at one temperature on both servers.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Prompt and temperature.
    pub name: String,
    /// Decode tokens a second of the base's two runs, those that could be measured.
    pub base: Vec<f64>,
    /// The same of this.
    pub this: Vec<f64>,
    /// Seconds to the first piece: means of the base's runs and of this one's.
    pub ttft_s: [Option<f64>; 2],
    /// The verdict on the decode rates.
    pub pace: Pace,
    /// Whether both servers gave the same replies.
    pub replies: Verdict,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// One a prompt and temperature.
    pub cells: Vec<Cell>,
    /// The base's two runs, then this one's, in the order they ran.
    runs: [[openai::Report; 2]; 2],
}

/// Measures base, this, this, base, after one discarded run of each.
///
/// # Errors
///
/// The first request that gets no whole reply.
pub fn run(
    base: &Target,
    this: &Target,
    options: &openai::Options,
    say: Say<'_>,
) -> BenchResult<Report> {
    let order = [
        ("discarded", base),
        ("discarded", this),
        ("base", base),
        ("this", this),
        ("this", this),
        ("base", base),
    ];
    let mut reports = Vec::new();
    for (at, (name, target)) in order.into_iter().enumerate() {
        let mut inner = |step: Step<'_>| {
            let now = format!("{name}: {}", step.now);
            let before = at as u64 * step.total;
            let total = order.len() as u64 * step.total;
            say(Step { done: before + step.done, total, now: &now });
        };
        reports.push(openai::run(target, options, &mut inner)?);
    }
    let mut counted = reports.into_iter().skip(2);
    let mut next = || counted.next().unwrap_or(openai::Report { cells: Vec::new() });
    let (first_base, first_this, second_this, second_base) = (next(), next(), next(), next());
    Ok(Report::of([first_base, second_base], [first_this, second_this]))
}

impl Report {
    /// Judges two runs of each.
    #[must_use]
    pub fn of(base: [openai::Report; 2], this: [openai::Report; 2]) -> Self {
        let cells = (0..base[0].cells.len()).map(|at| cell(&base, &this, at)).collect();
        Self { cells, runs: [base, this] }
    }

    /// Whether this is slower in no cell.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.cells.iter().all(|cell| cell.pace != Pace::Slower)
    }

    /// The cells as a table.
    #[must_use]
    pub fn text(&self) -> String {
        let header = ["cell", "base tok/s", "this tok/s", "gap", "pace", "ttft s", "replies"];
        let two = |values: &[f64]| match mean(values) {
            None => "-".to_owned(),
            Some(mean) => {
                let all: Vec<String> = values.iter().map(|v| format!("{v:.2}")).collect();
                format!("{mean:.2} ({})", all.join(" "))
            }
        };
        let rows: Vec<Vec<String>> = self
            .cells
            .iter()
            .map(|cell| {
                vec![
                    cell.name.clone(),
                    two(&cell.base),
                    two(&cell.this),
                    cell.gap().map_or("-".to_owned(), |gap| format!("{:+.1}%", gap * 100.0)),
                    cell.pace.name().to_owned(),
                    cell.ttft_s.map(|seconds| figure(seconds, 3)).join(" / "),
                    cell.replies.name().to_owned(),
                ]
            })
            .collect();
        table(&header, &rows)
            + "slower or faster: both runs are on one side of both of the base's, and the means are \
               more than 1% apart\n"
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, base: &Target, this: &Target) -> Value {
        let cells: Vec<Value> = self
            .cells
            .iter()
            .map(|cell| {
                json!({
                    "name": cell.name, "base_tps": cell.base, "this_tps": cell.this,
                    "gap": cell.gap(), "pace": cell.pace.name(), "ttft_s": cell.ttft_s,
                    "replies": cell.replies.name(),
                })
            })
            .collect();
        let runs = self.runs.each_ref().map(|two| two.each_ref().map(openai::Report::cells_json));
        json!({
            "bench": "compare", "base": base.to_json(), "this": this.to_json(),
            "passed": self.passed(), "cells": cells, "runs": {"base": runs[0], "this": runs[1]},
        })
    }

    /// A chart of the decode rates: an SVG image.
    #[must_use]
    pub fn svg(&self) -> String {
        chart::svg(&self.cells)
    }

    /// The chart and the table as a page that needs nothing else.
    #[must_use]
    pub fn html(&self, base: &Target, this: &Target) -> String {
        chart::html(&self.svg(), &self.text(), base.url(), this.url())
    }
}

impl Cell {
    /// This one's mean over the base's, less one.
    #[must_use]
    pub fn gap(&self) -> Option<f64> {
        let (base, this) = (mean(&self.base)?, mean(&self.this)?);
        (base > 0.0).then(|| this / base - 1.0)
    }
}

fn cell(base: &[openai::Report; 2], this: &[openai::Report; 2], at: usize) -> Cell {
    let rates = |runs: &[openai::Report; 2]| -> Vec<f64> {
        runs.iter().filter_map(|run| run.cells[at].decode_tps_median()).collect()
    };
    let first = |runs: &[openai::Report; 2]| {
        let seconds: Vec<f64> =
            runs.iter().filter_map(|run| run.cells[at].ttft_s_median()).collect();
        mean(&seconds)
    };
    let (base_tps, this_tps) = (rates(base), rates(this));
    Cell {
        name: base[0].cells[at].name(),
        pace: pace(&base_tps, &this_tps),
        replies: this[0].cells[at].same_replies(&base[0].cells[at]),
        ttft_s: [first(base), first(this)],
        base: base_tps,
        this: this_tps,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_needs_both_runs_under_both_and_more_than_one_percent() {
        assert_eq!(pace(&[100.0, 102.0], &[97.0, 98.0]), Pace::Slower);
        // Under in the mean, but one run is over one of the base's.
        assert_eq!(pace(&[100.0, 102.0], &[90.0, 100.5]), Pace::Same);
        // Both under both, but by less than 1%.
        assert_eq!(pace(&[100.0, 100.2], &[99.5, 99.6]), Pace::Same);
        assert_eq!(pace(&[100.0, 100.2], &[102.0, 103.0]), Pace::Faster);
        assert_eq!(pace(&[100.0, 100.0], &[100.0, 100.0]), Pace::Same);
    }

    #[test]
    fn runs_without_a_rate_are_unknown_not_same() {
        assert_eq!(pace(&[100.0], &[100.0, 90.0]), Pace::Unknown);
        assert_eq!(pace(&[100.0, 100.0], &[]), Pace::Unknown);
    }
}
