//! The report of a capacity run: its verdict, its table, its JSON.

use serde_json::{Value, json};

use super::{Outcome, Report, Row, WAITED};
use crate::Target;
use crate::stats::{largest, median};
use crate::table::{figure, table};

/// Of a wrong reply or a refusal, the characters that are shown.
const SHOWN: usize = 160;

impl Outcome {
    /// As tables and JSON name it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Right => "right",
            Self::Wrong(_) => "wrong",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
        }
    }

    fn words(&self) -> Option<&str> {
        match self {
            Self::Right => None,
            Self::Wrong(words) | Self::Refused(words) | Self::Failed(words) => Some(words),
        }
    }
}

impl Report {
    /// How many prompts came to what `name` says.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        self.rows.iter().filter(|row| row.outcome.name() == name).count()
    }

    /// Whether every prompt was answered right, and every reply that was compared is equal to the one
    /// alone.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.count("right") == self.rows.len()
            && self.alone.unequal == 0
            && (!self.compared || self.alone.passed())
    }

    fn waits(&self) -> Vec<f64> {
        self.rows.iter().filter_map(|row| row.queue_s).collect()
    }

    /// How many requests waited for a slot.
    #[must_use]
    pub fn waited(&self) -> usize {
        self.waits().iter().filter(|wait| **wait > WAITED).count()
    }

    /// The most that was seen allocated over what was planned.
    #[must_use]
    pub fn memory_ratio(&self) -> Option<f64> {
        let (memory, planned) = (self.peaks.memory?, self.peaks.planned_bytes?);
        (planned > 0).then(|| memory.allocated_bytes as f64 / planned as f64)
    }

    /// One line: answers by what came of them, and comparisons.
    #[must_use]
    pub fn summary(&self) -> String {
        let names = ["right", "wrong", "refused", "failed"];
        let counts: Vec<String> =
            names.iter().map(|name| format!("{} {name}", self.count(name))).collect();
        format!(
            "{} prompts: {}; alone: {} equal, {} unequal, {} without token_sha",
            self.rows.len(),
            counts.join(", "),
            self.alone.equal,
            self.alone.unequal,
            self.alone.failed
        )
    }

    /// The prompts as a table, what was waited for and held, and what is not verified.
    #[must_use]
    pub fn text(&self) -> String {
        let one = |(at, row): (usize, &Row)| {
            vec![
                at.to_string(),
                row.tokens.map_or("-".to_owned(), |tokens| tokens.to_string()),
                format!("{:.2}", row.depth),
                figure(row.queue_s, 3),
                figure(row.first_s, 3),
                row.outcome.name().to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = self.rows.iter().enumerate().map(one).collect();
        let mut text = table(&["prompt", "tokens", "depth", "waited s", "ttft s", "answer"], &rows);
        let waits = self.waits();
        text.push_str(&format!(
            "answers  {}, seed {}\nwaits    {} of {} over {WAITED} s; median {} s, longest {} s; at \
             most {} at once\n",
            self.summary(),
            self.seed,
            self.waited(),
            waits.len(),
            figure(median(&waits), 3),
            figure(largest(waits.iter().copied()), 3),
            self.peaks.waiting.map_or("-".to_owned(), |waiting| waiting.to_string()),
        ));
        text.push_str(&format!("pool     {}\nmemory   {}\n", self.pool(), self.memory()));
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(words) = row.outcome.words() {
                let words: String = words.chars().take(SHOWN).collect();
                text.push_str(&format!("{}: prompt {at}: {words:?}\n", row.outcome.name()));
            }
        }
        for note in &self.unverified {
            text.push_str(&format!("not verified: {note}\n"));
        }
        text
    }

    fn pool(&self) -> String {
        let share = self.peaks.pool_share.map(|share| format!("{:.0}%", share * 100.0));
        match (self.peaks.blocks, self.peaks.blocks_total, share) {
            (Some(blocks), Some(total), _) => {
                format!("at most {blocks} of {total} blocks held by requests")
            }
            (_, _, Some(share)) => format!("at most {share} held by requests"),
            _ => "-".to_owned(),
        }
    }

    fn memory(&self) -> String {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        let planned = self.peaks.planned_bytes.map_or("-".to_owned(), mib);
        let Some(memory) = self.peaks.memory else { return format!("planned {planned}") };
        format!(
            "at most {} allocated, planned {planned}: x {}; {} with the program and its weights",
            mib(memory.allocated_bytes),
            figure(self.memory_ratio(), 3),
            mib(memory.all_bytes)
        )
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, target: &Target) -> Value {
        let one = |row: &Row| {
            json!({
                "tokens": row.tokens, "depth": row.depth, "queue_s": row.queue_s,
                "ttft_s": row.first_s, "answer": row.outcome.name(), "words": row.outcome.words(),
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(one).collect();
        let waits = self.waits();
        let peaks = &self.peaks;
        let memory = peaks.memory;
        json!({
            "bench": "capacity", "server": target.to_json(), "passed": self.passed(),
            "seed": self.seed, "prompts": rows,
            "right": self.count("right"), "wrong": self.count("wrong"),
            "refused": self.count("refused"), "failed": self.count("failed"),
            "waited": self.waited(), "queue_s_median": median(&waits),
            "queue_s_max": largest(waits.iter().copied()), "waiting_max": peaks.waiting,
            "alone": self.alone.to_json(),
            "pool": {
                "blocks_max": peaks.blocks, "blocks": peaks.blocks_total,
                "share_max": peaks.pool_share,
            },
            "memory": {
                "allocated_bytes_max": memory.map(|memory| memory.allocated_bytes),
                "all_bytes_max": memory.map(|memory| memory.all_bytes),
                "planned_bytes": peaks.planned_bytes, "over_planned": self.memory_ratio(),
            },
            "unverified": self.unverified,
        })
    }
}
