//! Many long prompts at once, each with a fact to find: whether all are answered, how long they
//! wait, and what the server's memory comes to.

mod report;
mod watch;

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::draw::Draw;
use crate::judge::{Tally, judge};
use crate::prompt::{ADJECTIVES, Sizing, THINGS, sentences};
use crate::{Ask, BenchError, BenchResult, Reply, Say, Step, Target};
pub use watch::{Memory, Peaks};

/// Between the starts of two prompts.
const STAGGER: Duration = Duration::from_millis(50);
/// A request that waited no longer has not waited: its slot was free.
const WAITED: f64 = 0.1;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Prompts, all at once but for a short stagger.
    pub prompts: usize,
    /// Tokens of a prompt, about.
    pub tokens: usize,
    /// Tokens of the first one, about.
    pub huge: usize,
    /// Tokens of a reply, at most.
    pub reply: usize,
    /// Whether every reply is compared with the same request alone, not only wrong ones.
    pub alone: bool,
    /// Keys prompts and facts; the same again may find what the server kept of them.
    pub seed: Option<u64>,
    /// The server's process, where it runs here.
    pub pid: Option<u32>,
}

/// What came of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The reply names the fact.
    Right,
    /// It does not: its text.
    Wrong(String),
    /// The server refused it.
    Refused(String),
    /// It failed in another way.
    Failed(String),
}

/// One prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Where in the text the fact stands, from 0 to 1.
    pub depth: f64,
    /// Tokens of the prompt, where the server counts them.
    pub tokens: Option<u64>,
    /// Seconds to the first piece of the reply.
    pub first_s: Option<f64>,
    /// Seconds it waited for a slot, where the server tells.
    pub queue_s: Option<f64>,
    /// What came of it.
    pub outcome: Outcome,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// In the order they were sent.
    pub rows: Vec<Row>,
    /// What keyed the prompts.
    pub seed: u64,
    /// Replies against the same requests alone: all of them, or those that were wrong.
    pub alone: Tally,
    /// Whether all of them were to be compared.
    pub compared: bool,
    /// What the server held at most.
    pub peaks: Peaks,
    /// What could not be measured, a sentence each.
    pub unverified: Vec<String>,
}

/// A question, the answer it wants, and where in the text it stands.
struct Needle {
    ask: Ask,
    answer: String,
    depth: f64,
}

/// Sends prompts to `target` and watches it meanwhile.
///
/// # Errors
///
/// A request that counts tokens gets no whole reply, or the process is not there.
pub fn run(target: &Target, options: &Options, say: Say<'_>) -> BenchResult<Report> {
    let watch = watch::Watch::new(target, options.pid)?;
    let seed = options.seed.unwrap_or_else(Draw::fresh_seed);
    let (mut draw, total) = (Draw::new(seed), options.prompts as u64 + 1);
    say(Step { done: 0, total, now: "counting tokens" });
    let sizing = Sizing::of(target, &mut draw, options.tokens)?;
    let needles: Vec<Needle> = (0..options.prompts)
        .map(|at| {
            let tokens = if at == 0 { options.huge } else { options.tokens };
            let depth = (at as f64 + 0.5) / options.prompts as f64;
            needle(&mut draw, sizing.chars(tokens), depth, options.reply)
        })
        .collect();
    let now = format!("{} prompts at once", options.prompts);
    say(Step { done: 1, total, now: &now });
    let (replies, peaks) = watch.during(|| together(target, &needles));
    let rows: Vec<Row> = needles.iter().zip(&replies).map(|(n, reply)| row(n, reply)).collect();
    let mut alone = Tally::default();
    for (at, (needle, reply)) in needles.iter().zip(&replies).enumerate() {
        let Ok(reply) = reply else { continue };
        if options.alone || matches!(rows[at].outcome, Outcome::Wrong(_)) {
            let now = format!("prompt {at}, alone");
            say(Step { done: at as u64 + 1, total, now: &now });
            let again = target.ask(&needle.ask.clone().uncached()).ok();
            let again = again.and_then(|reply| reply.token_sha);
            alone.add(judge(reply.token_sha.as_deref(), again.as_deref()));
        }
    }
    let unverified = sizing.note().into_iter().chain(notes(&rows, &peaks, options)).collect();
    Ok(Report { rows, seed, alone, compared: options.alone, peaks, unverified })
}

/// A text of `chars` characters that states a fact at `depth`, and the question for it at the end.
fn needle(draw: &mut Draw, chars: usize, depth: f64, reply: usize) -> Needle {
    let thing = format!("{} {}", draw.pick(ADJECTIVES), draw.pick(THINGS));
    let answer = (10_000 + draw.below(90_000)).to_string();
    let fact = format!("The secret code of the {thing} is {answer}.");
    let question = format!("What is the secret code of the {thing}?");
    let mut text = sentences(draw, chars.saturating_sub(fact.len() + question.len()));
    let place = 1 + (depth * (text.len() - 1) as f64) as usize;
    text.insert(place, fact);
    let text = format!("{}\n\n{question}", text.join(" "));
    let ask = Ask::talk(&json!([{"role": "user", "content": text}]), reply);
    Needle { ask, answer, depth }
}

/// All of them, each [`STAGGER`] after the one before.
fn together(target: &Target, needles: &[Needle]) -> Vec<BenchResult<Reply>> {
    thread::scope(|scope| {
        let mut streams = Vec::new();
        for needle in needles {
            streams.push(scope.spawn(|| target.ask(&needle.ask)));
            thread::sleep(STAGGER);
        }
        let join = |stream: thread::ScopedJoinHandle<'_, _>| match stream.join() {
            Ok(reply) => reply,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        streams.into_iter().map(join).collect()
    })
}

fn row(needle: &Needle, reply: &BenchResult<Reply>) -> Row {
    let whole = reply.as_ref().ok();
    let outcome = match reply {
        Ok(reply) if reply.text.contains(&needle.answer) => Outcome::Right,
        Ok(reply) => Outcome::Wrong(reply.text.clone()),
        Err(error @ BenchError::Status { .. }) => Outcome::Refused(error.to_string()),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    Row {
        depth: needle.depth,
        tokens: whole.and_then(|reply| reply.prompt_tokens),
        first_s: whole.and_then(|reply| Some(reply.first_piece()?.as_secs_f64())),
        queue_s: whole.and_then(|reply| reply.queue_s),
        outcome,
    }
}

fn notes(rows: &[Row], peaks: &Peaks, options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    let silent = |row: &&Row| {
        row.queue_s.is_none() && matches!(row.outcome, Outcome::Right | Outcome::Wrong(_))
    };
    let silent = rows.iter().filter(silent).count();
    if silent > 0 {
        notes.push(format!("{silent} of {} replies do not say how long they waited", rows.len()));
    }
    if peaks.pool_share.is_none() {
        notes.push("/metrics does not say how full the KV pool is".to_owned());
    }
    match (&peaks.memory, peaks.planned_bytes) {
        (None, _) if options.pid.is_none() => {
            notes.push("--pid was not given: memory was not looked at".to_owned());
        }
        (None, _) => notes.push("the server's process was gone at the end".to_owned()),
        (Some(_), None) => notes.push("/metrics does not say what the server planned".to_owned()),
        (Some(_), Some(_)) => {}
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_stands_at_its_depth_and_is_asked_for_at_the_end() {
        let mut draw = Draw::new(7);
        for depth in [0.0, 0.03, 0.5, 0.97, 1.0] {
            let needle = needle(&mut draw, 4000, depth, 16);
            let text = needle.ask.body["messages"][0]["content"].as_str().unwrap();
            assert!((4000..4200).contains(&text.len()), "{}", text.len());
            assert_eq!(text.matches(&needle.answer).count(), 1);
            assert!(text.starts_with("Book ") && text.ends_with('?'), "{text}");
            let at = text.find(&needle.answer).unwrap() as f64 / text.len() as f64;
            assert!((at - depth).abs() < 0.05, "{at} for {depth}");
        }
    }
}
