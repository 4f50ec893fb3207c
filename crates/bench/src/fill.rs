//! A long cold prompt beside a short reply: what each costs the other, and whether both replies are
//! those they would be alone.

mod report;

pub use report::{json_of, text_of};

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::cache::State;
use crate::judge::{Tally, judge};
use crate::prompt::{Course, text};
use crate::stats::{largest, median, quantile};
use crate::{Ask, BenchResult, Reply, Say, Target};

/// Tokens of the reply to the long prompt: what is measured is its prompt.
const LONG_REPLY: usize = 8;
/// Characters of the short request's text.
const SHORT_CHARS: usize = 120;
/// With the long prompt first, the short request comes after this share of the prompt's time alone.
const INTO: f64 = 0.25;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Tokens of the long prompt, about.
    pub long: usize,
    /// Tokens of the short request's reply.
    pub reply: usize,
}

/// Who came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// Nobody: each ran by itself.
    Alone,
    /// The short request; the long prompt came while its reply was decoded.
    ReplyFirst,
    /// The long prompt; the short request came while it ran.
    LongFirst,
}

impl Arm {
    /// As tables and JSON name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::ReplyFirst => "reply first",
            Self::LongFirst => "long first",
        }
    }
}

/// Figures of one arm.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Who came first.
    pub arm: Arm,
    /// Tokens of the long prompt, where the server counts them.
    pub long_tokens: Option<u64>,
    /// Whether the long prompt ran whole.
    pub long_state: State,
    /// Seconds to the long prompt's first piece.
    pub long_first_s: Option<f64>,
    /// Seconds to the short reply's first piece.
    pub reply_first_s: Option<f64>,
    /// Seconds to its last piece.
    pub reply_s: Option<f64>,
    /// Seconds between its pieces: the least that 95% of them do not exceed.
    pub gap_s_p95: Option<f64>,
    /// The longest.
    pub gap_s_max: Option<f64>,
    /// Both replies against the same requests alone; `None` where they are alone.
    pub replies: Option<Tally>,
    /// Whether the second request came while the first one still did what it was to be disturbed in.
    pub met: bool,
}

/// What was measured on one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Alone, reply first, long first.
    pub rows: Vec<Row>,
    /// What could not be measured or verified, a sentence each.
    pub unverified: Vec<String>,
}

/// The short request and the long one.
struct Pair<T> {
    short: T,
    long: T,
}

/// Measures `target`. Every prompt begins as none before it did, so that nothing kept shortens it.
///
/// # Errors
///
/// The first request that gets no whole reply.
pub fn run(target: &Target, options: &Options, say: Say<'_>) -> BenchResult<Report> {
    let mut course = Course::begin(target, options.long, 6, say)?;
    let mut asks = || Pair {
        short: Ask::chat(&text(&mut course.draw, SHORT_CHARS), options.reply, 0.0, 0),
        long: Ask::chat(&text(&mut course.draw, course.chars), LONG_REPLY, 0.0, 0),
    };
    let (alone, first, second) = (asks(), asks(), asks());
    course.step("each alone");
    let alone = each(target, &alone)?;
    course.step("reply first");
    let reply_first = beside(target, &first)?;
    course.step("long first");
    let wait = alone.long.first_piece().unwrap_or_default().mul_f64(INTO);
    let long_first = behind(target, &second, wait)?;
    // Once more without what is kept: what the replies are held against, and two more times alone.
    let uncached =
        |asks: Pair<Ask>| Pair { short: asks.short.uncached(), long: asks.long.uncached() };
    course.step("the same requests alone");
    let of_first = each(target, &uncached(first))?;
    course.step("the same requests alone");
    let of_second = each(target, &uncached(second))?;

    let rows = vec![
        alone_row(&alone, [&of_first, &of_second]),
        row(Arm::ReplyFirst, &reply_first, &of_first),
        row(Arm::LongFirst, &long_first, &of_second),
    ];
    let unverified = course.note.into_iter().chain(notes(&rows)).collect();
    Ok(Report { rows, unverified })
}

/// One after the other.
fn each(target: &Target, asks: &Pair<Ask>) -> BenchResult<Pair<Reply>> {
    Ok(Pair { short: target.ask(&asks.short)?, long: target.ask(&asks.long)? })
}

/// The long one once the short one's reply has begun.
fn beside(target: &Target, asks: &Pair<Ask>) -> BenchResult<Pair<Reply>> {
    let (begun, heard) = mpsc::channel();
    thread::scope(|scope| {
        let short = scope.spawn(move || {
            let mut begun = Some(begun);
            target.ask_hearing(&asks.short, |reply| {
                if !reply.pieces.is_empty() {
                    // Dropped, it says so.
                    begun = None;
                }
            })
        });
        // Nothing is sent: an error is the word. A reply that failed has dropped it too.
        let _: Result<(), _> = heard.recv();
        let long = target.ask(&asks.long);
        Ok(Pair { short: join(short)?, long: long? })
    })
}

/// The short one after the long one has run for `wait`.
fn behind(target: &Target, asks: &Pair<Ask>, wait: Duration) -> BenchResult<Pair<Reply>> {
    thread::scope(|scope| {
        let long = scope.spawn(|| target.ask(&asks.long));
        thread::sleep(wait);
        let short = target.ask(&asks.short);
        Ok(Pair { long: join(long)?, short: short? })
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    Some(time?.as_secs_f64())
}

fn row(arm: Arm, replies: &Pair<Reply>, alone: &Pair<Reply>) -> Row {
    let Pair { short, long } = replies;
    let mut tally = Tally::default();
    for (reply, alone) in [(short, &alone.short), (long, &alone.long)] {
        tally.add(judge(reply.token_sha.as_deref(), alone.token_sha.as_deref()));
    }
    let met = match arm {
        Arm::Alone => true,
        Arm::ReplyFirst => short.pieces.last().is_some_and(|last| long.sent < *last),
        Arm::LongFirst => long.pieces.first().is_some_and(|first| short.sent < *first),
    };
    let gaps = short.gaps_s();
    Row {
        arm,
        long_tokens: long.prompt_tokens,
        long_state: State::of(long),
        long_first_s: seconds(long.first_piece()),
        reply_first_s: seconds(short.first_piece()),
        reply_s: seconds(short.last_piece()),
        gap_s_p95: quantile(&gaps, 0.95),
        gap_s_max: largest(gaps.iter().copied()),
        replies: Some(tally),
        met,
    }
}

/// Medians of the first run and of those repetitions that were as cold.
fn alone_row(first: &Pair<Reply>, again: [&Pair<Reply>; 2]) -> Row {
    let cold = |reply: &&Reply| State::of(reply) == State::Cold;
    let shorts = again.map(|pair| &pair.short).into_iter().filter(cold);
    let shorts: Vec<&Reply> = std::iter::once(&first.short).chain(shorts).collect();
    let longs = again.map(|pair| &pair.long).into_iter().filter(cold);
    let longs: Vec<&Reply> = std::iter::once(&first.long).chain(longs).collect();
    let of = |replies: &[&Reply], figure: fn(&Reply) -> Option<f64>| {
        median(&replies.iter().filter_map(|reply| figure(reply)).collect::<Vec<f64>>())
    };
    Row {
        long_first_s: of(&longs, |reply| seconds(reply.first_piece())),
        reply_first_s: of(&shorts, |reply| seconds(reply.first_piece())),
        reply_s: of(&shorts, |reply| seconds(reply.last_piece())),
        gap_s_p95: of(&shorts, |reply| quantile(&reply.gaps_s(), 0.95)),
        gap_s_max: of(&shorts, |reply| largest(reply.gaps_s().into_iter())),
        replies: None,
        ..row(Arm::Alone, first, first)
    }
}

fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes = Vec::new();
    for row in rows {
        let name = row.arm.name();
        match row.long_state {
            State::Cold => {}
            State::Reused => notes.push(format!("{name}: part of the long prompt was restored")),
            State::Unverified => {
                notes.push(format!(
                    "{name}: the server does not say that the long prompt ran whole"
                ));
            }
        }
        if !row.met {
            notes.push(format!("{name}: the second request came too late to meet the first"));
        }
        if row.replies.is_some_and(|tally| tally.failed > 0) {
            notes.push(format!("{name}: replies without token_sha cannot be compared"));
        }
    }
    notes
}
