//! The report of a fill run: its verdict, its table, its JSON.

use serde_json::{Value, json};

use super::{Arm, Report, Row};
use crate::Target;
use crate::judge::Tally;
use crate::table::{figure, table};

impl Row {
    /// The long prompt's first piece and the short reply's end, over the same alone.
    fn ratios(&self, alone: &Row) -> [Option<f64>; 2] {
        let over = |this: Option<f64>, alone: Option<f64>| {
            let (this, alone) = (this?, alone?);
            (alone > 0.0).then(|| this / alone)
        };
        [over(self.long_first_s, alone.long_first_s), over(self.reply_s, alone.reply_s)]
    }
}

impl Report {
    /// Whether every reply is the one it is alone, and the requests met in both arms.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.met && row.replies.as_ref().is_none_or(Tally::passed))
    }

    /// One line on what is wrong.
    #[must_use]
    pub fn summary(&self) -> String {
        let tallies: Vec<Tally> = self.rows.iter().filter_map(|row| row.replies).collect();
        let sum = |count: fn(&Tally) -> usize| tallies.iter().map(count).sum::<usize>();
        let (equal, unequal, failed) = (sum(|t| t.equal), sum(|t| t.unequal), sum(|t| t.failed));
        let missed = self.rows.iter().filter(|row| !row.met).count();
        format!(
            "replies: {equal} equal, {unequal} unequal, {failed} without token_sha; {missed} arms in \
             which the requests did not meet"
        )
    }

    fn cells(&self, url: &str) -> Vec<Vec<String>> {
        let alone = self.rows.iter().find(|row| row.arm == Arm::Alone);
        let ms = |seconds: Option<f64>| figure(seconds.map(|s| s * 1000.0), 1);
        let one = |row: &Row| {
            let [long, reply] = alone.map_or([None, None], |alone| row.ratios(alone));
            vec![
                url.to_owned(),
                row.arm.name().to_owned(),
                row.long_tokens.map_or("-".to_owned(), |tokens| tokens.to_string()),
                row.long_state.name().to_owned(),
                figure(row.long_first_s, 3),
                figure(long, 2),
                figure(row.reply_first_s, 3),
                figure(row.reply_s, 3),
                figure(reply, 2),
                ms(row.gap_s_p95),
                ms(row.gap_s_max),
                row.replies
                    .map_or("-".to_owned(), |t| format!("{}/{}/{}", t.equal, t.unequal, t.failed)),
            ]
        };
        self.rows.iter().map(one).collect()
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, target: &Target) -> Value {
        let alone = self.rows.iter().find(|row| row.arm == Arm::Alone);
        let one = |row: &Row| {
            let [long, reply] = alone.map_or([None, None], |alone| row.ratios(alone));
            json!({
                "arm": row.arm.name(),
                "long_tokens": row.long_tokens,
                "long_state": row.long_state.name(),
                "long_ttft_s": row.long_first_s,
                "long_over_alone": long,
                "reply_ttft_s": row.reply_first_s,
                "reply_s": row.reply_s,
                "reply_over_alone": reply,
                "gap_s_p95": row.gap_s_p95,
                "gap_s_max": row.gap_s_max,
                "replies": row.replies.map(|tally| tally.to_json()),
                "met": row.met,
            })
        };
        let rows: Vec<Value> = self.rows.iter().map(one).collect();
        json!({
            "server": target.to_json(), "passed": self.passed(), "rows": rows,
            "unverified": self.unverified,
        })
    }
}

/// The rows of several servers as one table, and what is not verified.
#[must_use]
pub fn text_of(reports: &[(&Target, Report)]) -> String {
    let header = [
        "server",
        "arm",
        "long",
        "state",
        "long ttft",
        "x alone",
        "reply ttft",
        "reply s",
        "x alone",
        "gap p95 ms",
        "gap max ms",
        "equal",
    ];
    let rows: Vec<Vec<String>> =
        reports.iter().flat_map(|(target, report)| report.cells(target.url())).collect();
    let mut text = table(&header, &rows);
    text.push_str("equal: both replies against those alone, equal/unequal/failed\n");
    for (target, report) in reports {
        for note in &report.unverified {
            text.push_str(&format!("not verified: {}: {note}\n", target.url()));
        }
    }
    text
}

/// The reports of several servers, for scripts.
#[must_use]
pub fn json_of(reports: &[(&Target, Report)]) -> Value {
    let servers: Vec<Value> =
        reports.iter().map(|(target, report)| report.to_json(target)).collect();
    let passed = reports.iter().all(|(_, report)| report.passed());
    json!({"bench": "fill", "passed": passed, "servers": servers})
}
