//! What a server keeps of prompts: cold, repeated, longer, edited and continued ones, and whether
//! their replies are those of the same requests uncached.

use serde_json::{Value, json};

use crate::judge::{Verdict, judge};
use crate::prompt::{Course, text};
use crate::table::{figure, table};
use crate::{Ask, BenchResult, Reply, Say, Target};

/// What is sent and what is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Tokens of the prompts, about.
    pub long: usize,
    /// Tokens of a reply, at most.
    pub reply: usize,
    /// Whether first requests must be cold.
    pub require_cold: bool,
    /// Whether the others must reuse something.
    pub require_reuse: bool,
}

/// What a server says of a prompt's beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It ran whole.
    Cold,
    /// Some of it was restored.
    Reused,
    /// The server does not say, or not in a count from 0 to the prompt's tokens.
    Unverified,
}

impl State {
    pub(crate) fn of(reply: &Reply) -> Self {
        match (reply.cached_tokens, reply.prompt_tokens) {
            (Some(0), _) => Self::Cold,
            (Some(cached), Some(prompt)) if cached <= prompt => Self::Reused,
            _ => Self::Unverified,
        }
    }

    /// As tables and JSON name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Reused => "reused",
            Self::Unverified => "unverified",
        }
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is to those before it.
    pub name: &'static str,
    /// Whether it is the first of its prompt.
    pub first: bool,
    /// Tokens of its prompt, where the server counts them.
    pub prompt_tokens: Option<u64>,
    /// Those of them that were restored, where the server tells.
    pub cached_tokens: Option<u64>,
    /// What follows from that.
    pub state: State,
    /// Seconds to the first piece of the reply.
    pub first_s: Option<f64>,
    /// The same of the request uncached; where the server cannot do that, of the first of its prompt.
    pub cold_s: Option<f64>,
    /// Its reply against that of the same request uncached.
    pub reply: Verdict,
}

impl Row {
    /// How many times sooner than cold its first piece came.
    #[must_use]
    pub fn times_sooner(&self) -> Option<f64> {
        let (first, cold) = (self.first_s?, self.cold_s?);
        (first > 0.0).then(|| cold / first)
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// In the order they were sent.
    pub rows: Vec<Row>,
    /// What this server does not let one verify, a sentence each.
    pub unverified: Vec<String>,
    required: [bool; 2],
}

/// A request, its name, and whether it is the first of its prompt.
type Request = (&'static str, bool, Ask);

/// Sends prompts that `target` has not seen, then others that begin like them, then all of them
/// again uncached.
///
/// # Errors
///
/// The first request that gets no whole reply.
pub fn run(target: &Target, options: &Options, say: Say<'_>) -> BenchResult<Report> {
    let mut course = Course::begin(target, options.long, 13, say)?;
    let [prompt, tail, turn] =
        [course.raw_chars, 1, course.chars].map(|chars| text(&mut course.draw, chars));
    let mut asked: Vec<(Request, Reply)> = Vec::new();
    let mut send = |(name, first, ask): Request| -> BenchResult<String> {
        course.step(name);
        let reply = target.ask(&ask)?;
        let said = reply.text.clone();
        asked.push(((name, first, ask), reply));
        Ok(said)
    };
    let raw = |prompt: &str| Ask::raw(prompt, options.reply, 0.0, 0);
    send(("first", true, raw(&prompt)))?;
    send(("repeat", false, raw(&prompt)))?;
    send(("tail", false, raw(&format!("{prompt} {tail}"))))?;
    let user = |text: &str| json!({"role": "user", "content": text});
    let turn = user(&format!("{turn}\n\nWhat is this text about?"));
    let talk = |messages: Value| Ask::talk(&messages, options.reply);
    let said = send(("first turn", true, talk(json!([turn]))))?;
    // Some templates take no empty message.
    let said = if said.trim().is_empty() { "Of things." } else { &said };
    let said = json!({"role": "assistant", "content": said});
    send(("second turn", false, talk(json!([turn, said, user("Which things does it name?")]))))?;
    send(("edited turn", false, talk(json!([turn, said, user("How long is it?")]))))?;
    // After all of them, as a server without the opt-out would keep these too.
    let mut uncached = Vec::new();
    for ((name, _, ask), _) in &asked {
        course.step(&format!("{name}, uncached"));
        uncached.push(target.ask(&ask.clone().uncached())?);
    }
    let unverified = course.note.into_iter().chain(notes(&asked, &uncached)).collect();
    let rows = rows(&asked, &uncached);
    Ok(Report { rows, unverified, required: [options.require_cold, options.require_reuse] })
}

fn seconds(reply: &Reply) -> Option<f64> {
    Some(reply.first_piece()?.as_secs_f64())
}

fn rows(asked: &[(Request, Reply)], uncached: &[Reply]) -> Vec<Row> {
    let mut first_of_prompt = None;
    let row = |(((name, first, _), reply), alone): (&(Request, Reply), &Reply)| {
        if *first {
            first_of_prompt = seconds(reply);
        }
        // A reply that used what was kept is no reference.
        let reference = (State::of(alone) == State::Cold).then_some(alone);
        let sha = reference.and_then(|alone| alone.token_sha.as_deref());
        Row {
            name,
            first: *first,
            prompt_tokens: reply.prompt_tokens,
            cached_tokens: reply.cached_tokens,
            state: State::of(reply),
            first_s: seconds(reply),
            cold_s: reference.and_then(seconds).or(first_of_prompt),
            reply: judge(reply.token_sha.as_deref(), sha),
        }
    };
    asked.iter().zip(uncached).map(row).collect()
}

fn notes(asked: &[(Request, Reply)], uncached: &[Reply]) -> Vec<String> {
    let total = asked.len();
    let mut notes = Vec::new();
    let untold = asked.iter().filter(|(_, reply)| State::of(reply) == State::Unverified).count();
    if untold > 0 {
        notes.push(format!("{untold} of {total} replies do not say how much was restored"));
    }
    let hashless =
        asked.iter().map(|(_, reply)| reply).chain(uncached).filter(|r| r.token_sha.is_none());
    let hashless = hashless.count();
    if hashless > 0 {
        notes.push(format!(
            "{hashless} of {} replies carry no token_sha: whether their tokens are equal is unknown",
            2 * total
        ));
    }
    let warm = uncached.iter().filter(|reply| State::of(reply) != State::Cold).count();
    if warm > 0 {
        notes.push(format!(
            "{warm} of {total} replies to \"cache\": false do not say that nothing was restored: they \
             are no reference"
        ));
    }
    notes
}

impl Report {
    /// Whether the states are as required and every reply that can be compared is equal.
    #[must_use]
    pub fn qualified(&self) -> bool {
        let [cold, reuse] = self.required;
        self.rows.iter().all(|row| {
            let (required, wanted) =
                if row.first { (cold, State::Cold) } else { (reuse, State::Reused) };
            row.reply != Verdict::Unequal && (!required || row.state == wanted)
        })
    }

    /// One line on what is wrong.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |first: bool, state: State| {
            let of = self.rows.iter().filter(|row| row.first == first);
            let hits = of.clone().filter(|row| row.state == state).count();
            format!("{hits} of {} {}", of.count(), state.name())
        };
        let unequal = self.rows.iter().filter(|row| row.reply == Verdict::Unequal).count();
        format!(
            "first requests: {}; later ones: {}; replies unequal to uncached ones: {unequal}",
            count(true, State::Cold),
            count(false, State::Reused)
        )
    }

    /// The rows as a table, and what is not verified.
    #[must_use]
    pub fn text(&self) -> String {
        let header =
            ["request", "prompt", "cached", "state", "ttft s", "cold s", "x sooner", "reply"];
        let count = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                vec![
                    row.name.to_owned(),
                    count(row.prompt_tokens),
                    count(row.cached_tokens),
                    row.state.name().to_owned(),
                    figure(row.first_s, 3),
                    figure(row.cold_s, 3),
                    figure(row.times_sooner(), 1),
                    row.reply.name().to_owned(),
                ]
            })
            .collect();
        let mut text = table(&header, &rows);
        text.push_str("cold s, reply: against the same request uncached\n");
        for note in &self.unverified {
            text.push_str(&format!("not verified: {note}\n"));
        }
        text.push_str(if self.qualified() { "qualified\n" } else { "not qualified\n" });
        text
    }

    /// Everything, for scripts.
    #[must_use]
    pub fn to_json(&self, target: &Target) -> Value {
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "first": row.first, "prompt_tokens": row.prompt_tokens,
                    "cached_tokens": row.cached_tokens, "state": row.state.name(),
                    "ttft_s": row.first_s, "cold_s": row.cold_s,
                    "times_sooner": row.times_sooner(), "reply": row.reply.name(),
                })
            })
            .collect();
        let [cold, reuse] = self.required;
        json!({
            "bench": "cache", "server": target.to_json(), "qualified": self.qualified(),
            "required": {"cold": cold, "reuse": reuse}, "rows": rows,
            "unverified": self.unverified,
        })
    }
}
