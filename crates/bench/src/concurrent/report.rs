//! The report of a concurrent run: its verdict, its table, its JSON.

use serde_json::{Value, json};

use super::Report;
use crate::Target;
use crate::judge::Tally;
use crate::table::{figure, table};

impl Report {
    /// Whether every reply was whole and every comparison that was asked for is equal.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.cells.iter().all(|cell| {
            let tallies = [cell.alone, cell.serial];
            cell.failed == 0 && tallies.iter().flatten().all(Tally::passed)
        })
    }

    /// One line on what is wrong: failed replies, and comparisons by kind.
    #[must_use]
    pub fn summary(&self) -> String {
        let failed: usize = self.cells.iter().map(|cell| cell.failed).sum();
        let mut parts = vec![format!("{failed} replies failed")];
        let alone: Vec<Tally> = self.cells.iter().filter_map(|cell| cell.alone).collect();
        let serial: Vec<Tally> = self.cells.iter().filter_map(|cell| cell.serial).collect();
        for (name, tallies) in [("alone", alone), ("serial", serial)] {
            if tallies.is_empty() {
                continue;
            }
            let sum = |count: fn(&Tally) -> usize| tallies.iter().map(count).sum::<usize>();
            let (equal, unequal) = (sum(|t| t.equal), sum(|t| t.unequal));
            let failed = sum(|t| t.failed);
            parts.push(format!("{name}: {equal} equal, {unequal} unequal, {failed} failed"));
        }
        parts.join("; ")
    }

    /// The cells as a table, the errors, and what is not verified.
    #[must_use]
    pub fn text(&self) -> String {
        let header = [
            "streams",
            "temp",
            "failed",
            "tok/s all",
            "tok/s each",
            "steady",
            "ttft max s",
            "tok/round",
            "alone",
            "serial",
        ];
        let tally = |tally: Option<Tally>| {
            tally.map_or("-".to_owned(), |t| format!("{}/{}/{}", t.equal, t.unequal, t.failed))
        };
        let rows: Vec<Vec<String>> = self
            .cells
            .iter()
            .map(|cell| {
                vec![
                    cell.streams.to_string(),
                    cell.temperature.to_string(),
                    cell.failed.to_string(),
                    figure(cell.aggregate_tps, 1),
                    figure(cell.per_stream_tps, 1),
                    figure(cell.steady_tps, 1),
                    figure(cell.ttft_s_max, 3),
                    figure(cell.tokens_per_round, 2),
                    tally(cell.alone),
                    tally(cell.serial),
                ]
            })
            .collect();
        let mut text = table(&header, &rows);
        text.push_str("alone, serial: replies equal/unequal/failed\n");
        for error in self.cells.iter().flat_map(|cell| &cell.errors) {
            text.push_str(&format!("failed: {error}\n"));
        }
        for note in &self.unverified {
            text.push_str(&format!("not verified: {note}\n"));
        }
        text
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, target: &Target) -> Value {
        let cells: Vec<Value> = self
            .cells
            .iter()
            .map(|cell| {
                json!({
                    "streams": cell.streams,
                    "temperature": cell.temperature,
                    "failed": cell.failed,
                    "unmeasured": cell.unmeasured,
                    "aggregate_tps": cell.aggregate_tps,
                    "per_stream_tps": cell.per_stream_tps,
                    "steady_tps": cell.steady_tps,
                    "ttft_s_max": cell.ttft_s_max,
                    "tokens_per_round": cell.tokens_per_round,
                    "alone": cell.alone.map(|tally| tally.to_json()),
                    "serial": cell.serial.map(|tally| tally.to_json()),
                    "errors": cell.errors,
                })
            })
            .collect();
        json!({
            "bench": "concurrent", "server": target.to_json(), "passed": self.passed(),
            "cells": cells, "unverified": self.unverified,
        })
    }
}
