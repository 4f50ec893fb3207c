//! One stream at a time: decode rate, time to the first token, tokens a round.

use serde_json::{Value, json};

use crate::ask::FIRST_SEED;
use crate::judge::{Verdict, judge};
use crate::stats::{mean, median};
use crate::table::{figure, table};
use crate::{Ask, BenchResult, Reply, Say, Step, Target};

/// What is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Tokens of a reply.
    pub tokens: usize,
    /// Repetitions of each cell, after one that is not counted.
    pub reps: usize,
    /// Temperatures, one cell each for either prompt.
    pub temperatures: Vec<f64>,
}

/// One of the two fixed prompts at one temperature.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// `raw` or `chat`.
    pub prompt: &'static str,
    /// Of every request.
    pub temperature: f64,
    /// Tokens a second after the first, of every repetition that could be measured.
    pub decode_tps: Vec<f64>,
    /// Seconds to the first piece of text, of every repetition.
    pub ttft_s: Vec<f64>,
    /// Tokens a model round; mean of the replies that say it.
    pub tokens_per_round: Option<f64>,
    /// The hash of each repetition's reply.
    pub token_sha: Vec<Option<String>>,
}

impl Cell {
    /// The median of `decode_tps`.
    #[must_use]
    pub fn decode_tps_median(&self) -> Option<f64> {
        median(&self.decode_tps)
    }

    /// The median of `ttft_s`.
    #[must_use]
    pub fn ttft_s_median(&self) -> Option<f64> {
        median(&self.ttft_s)
    }

    /// Its name in tables and charts.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} t={}", self.prompt, self.temperature)
    }

    /// Whether its repetitions of one seed are the replies of `other`, hash by hash.
    #[must_use]
    pub fn same_replies(&self, other: &Self) -> Verdict {
        let mut verdict = if self.token_sha.is_empty() { Verdict::Failed } else { Verdict::Equal };
        for (this, other) in self.token_sha.iter().zip(&other.token_sha) {
            match judge(this.as_deref(), other.as_deref()) {
                Verdict::Equal => {}
                Verdict::Unequal => return Verdict::Unequal,
                Verdict::Failed => verdict = Verdict::Failed,
            }
        }
        verdict
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Raw and chat at each temperature.
    pub cells: Vec<Cell>,
}

/// Measures `target`.
///
/// # Errors
///
/// The first request that gets no whole reply.
pub fn run(target: &Target, options: &Options, say: Say<'_>) -> BenchResult<Report> {
    let total = (2 * options.temperatures.len() * (options.reps + 1)) as u64;
    let (mut done, mut cells) = (0, Vec::new());
    for &temperature in &options.temperatures {
        for (prompt, chat) in [("raw", false), ("chat", true)] {
            let mut replies = Vec::new();
            for rep in 0..=options.reps {
                let now = format!("{prompt}, temperature {temperature}, run {rep}");
                say(Step { done, total, now: &now });
                done += 1;
                let seed = FIRST_SEED + rep.saturating_sub(1) as u64;
                replies.push(target.ask(&Ask::fixed(chat, options.tokens, temperature, seed))?);
            }
            // The first has warmed the server up.
            cells.push(cell(prompt, temperature, &replies[1..]));
        }
    }
    Ok(Report { cells })
}

fn cell(prompt: &'static str, temperature: f64, replies: &[Reply]) -> Cell {
    let rounds: Vec<f64> = replies.iter().filter_map(Reply::tokens_per_round).collect();
    Cell {
        prompt,
        temperature,
        decode_tps: replies.iter().filter_map(Reply::decode_rate).collect(),
        ttft_s: replies.iter().filter_map(|r| Some(r.first_piece()?.as_secs_f64())).collect(),
        tokens_per_round: mean(&rounds),
        token_sha: replies.iter().map(|reply| reply.token_sha.clone()).collect(),
    }
}

impl Report {
    /// What this server does not let one measure or verify, a sentence each.
    #[must_use]
    pub fn unverified(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for cell in &self.cells {
            let (name, reps) = (cell.name(), cell.token_sha.len());
            if cell.decode_tps.len() < reps {
                let unmeasured = reps - cell.decode_tps.len();
                notes.push(format!(
                    "{name}: {unmeasured} of {reps} replies have no usage or too few pieces for a \
                     decode rate"
                ));
            }
            if cell.token_sha.iter().any(Option::is_none) {
                notes.push(format!("{name}: replies without token_sha cannot be compared"));
            }
        }
        notes
    }

    /// The cells as a table, and what is not verified.
    #[must_use]
    pub fn text(&self) -> String {
        let header = ["prompt", "temp", "decode tok/s", "ttft s", "tok/round"];
        let rows: Vec<Vec<String>> = self
            .cells
            .iter()
            .map(|cell| {
                vec![
                    cell.prompt.to_owned(),
                    cell.temperature.to_string(),
                    figure(cell.decode_tps_median(), 2),
                    figure(cell.ttft_s_median(), 3),
                    figure(cell.tokens_per_round, 2),
                ]
            })
            .collect();
        let mut text = table(&header, &rows);
        for note in self.unverified() {
            text.push_str(&format!("not verified: {note}\n"));
        }
        text
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, target: &Target) -> Value {
        json!({
            "bench": "openai", "server": target.to_json(), "cells": self.cells_json(),
            "unverified": self.unverified(),
        })
    }

    pub(crate) fn cells_json(&self) -> Vec<Value> {
        let one = |cell: &Cell| {
            json!({
                "prompt": cell.prompt,
                "temperature": cell.temperature,
                "decode_tps_median": cell.decode_tps_median(),
                "decode_tps_all": cell.decode_tps,
                "ttft_s_median": cell.ttft_s_median(),
                "ttft_s_all": cell.ttft_s,
                "tokens_per_round": cell.tokens_per_round,
                "token_sha": cell.token_sha,
            })
        };
        self.cells.iter().map(one).collect()
    }
}
