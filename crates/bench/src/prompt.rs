//! Long prompts that no server has seen, sized by the server's own counting.

use crate::draw::Draw;
use crate::{Ask, BenchResult, Say, Step, Target};

/// Characters a token where the server does not count.
const USUAL: f64 = 4.0;
/// Characters of the longer of the two texts that are counted, at most and at least.
const COUNTED: std::ops::RangeInclusive<usize> = 1200..=4000;

pub(crate) const ADJECTIVES: &[&str] = &[
    "small", "big", "old", "new", "round", "heavy", "light", "strange", "quiet", "bright", "dark",
    "broken", "wooden", "shiny", "soft", "tall", "cold", "warm", "lucky", "hidden",
];
pub(crate) const THINGS: &[&str] = &[
    "book", "box", "lamp", "ring", "coin", "map", "letter", "cup", "hat", "bag", "clock", "pen",
    "ticket", "stone", "watch", "camera", "basket", "bottle", "knife", "chair", "table", "mirror",
    "drum", "flute", "rope", "candle", "shell", "brush", "ladder", "wallet",
];
const DOES: &[&str] = &["stands", "lies", "rests", "waits", "shines", "sleeps", "falls", "turns"];
const WHERE: &[&str] = &["near", "under", "behind", "beside", "above", "before"];

/// Sentences of `chars` characters in all, or a few more; the first tells this text from all others.
pub(crate) fn sentences(draw: &mut Draw, chars: usize) -> Vec<String> {
    let mut number = || 10_000_000 + draw.below(90_000_000);
    let mut all = vec![format!("Book {} of shelf {}.", number(), number())];
    let mut length = all[0].len();
    while length < chars {
        let mut thing = || format!("the {} {}", draw.pick(ADJECTIVES), draw.pick(THINGS));
        let (this, that) = (thing(), thing());
        let (does, place) = (draw.pick(DOES), draw.pick(WHERE));
        // Only its first letter differs from a thing inside a sentence.
        let sentence = format!("T{} {does} {place} {that}.", &this[1..]);
        length += 1 + sentence.len();
        all.push(sentence);
    }
    all
}

/// [`sentences`] as one text.
pub(crate) fn text(draw: &mut Draw, chars: usize) -> String {
    sentences(draw, chars).join(" ")
}

/// How many tokens a server makes of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizing {
    /// Tokens around the text of a chat message.
    around: f64,
    per_char: f64,
    /// Whether the server counts prompt tokens.
    pub(crate) counted: bool,
}

impl Sizing {
    /// Has the server count two texts, for prompts of about `tokens`.
    ///
    /// # Errors
    ///
    /// A request that gets no whole reply.
    pub(crate) fn of(target: &Target, draw: &mut Draw, tokens: usize) -> BenchResult<Self> {
        let long = (4 * tokens).clamp(*COUNTED.start(), *COUNTED.end());
        let mut count = |chars: usize| -> BenchResult<(f64, Option<f64>)> {
            let text = text(draw, chars);
            let reply = target.ask(&Ask::chat(&text, 1, 0.0, 0).uncached())?;
            Ok((text.len() as f64, reply.prompt_tokens.map(|tokens| tokens as f64)))
        };
        let ((short, few), (long, many)) = (count(long / 4)?, count(long)?);
        let slope = few.zip(many).map(|(few, many)| (many - few) / (long - short));
        Ok(match slope.zip(few).filter(|(slope, _)| *slope > 0.0) {
            Some((per_char, few)) => {
                Self { around: (few - per_char * short).max(0.0), per_char, counted: true }
            }
            None => Self { around: 0.0, per_char: 1.0 / USUAL, counted: false },
        })
    }

    /// Characters of a text that makes a prompt of about `tokens`.
    pub(crate) fn chars(&self, tokens: usize) -> usize {
        ((tokens as f64 - self.around) / self.per_char).max(1.0) as usize
    }

    /// The same of a text that is the whole prompt.
    pub(crate) fn raw_chars(&self, tokens: usize) -> usize {
        (tokens as f64 / self.per_char).max(1.0) as usize
    }

    /// What a report says where the server does not count.
    pub(crate) fn note(&self) -> Option<String> {
        (!self.counted).then(|| {
            format!(
                "the server counts no prompt tokens: prompts are sized at {USUAL} characters a token"
            )
        })
    }
}

/// A benchmark on prompts of one size that no server has seen, as it goes through its steps.
pub(crate) struct Course<'a> {
    say: Say<'a>,
    done: u64,
    total: u64,
    pub(crate) draw: Draw,
    /// Characters of a long text in a chat message.
    pub(crate) chars: usize,
    /// Characters of a long text that is the whole prompt.
    pub(crate) raw_chars: usize,
    /// What the report says of the size.
    pub(crate) note: Option<String>,
}

impl<'a> Course<'a> {
    /// The first of `total` steps: has the server count what `tokens` are.
    ///
    /// # Errors
    ///
    /// A request that gets no whole reply.
    pub(crate) fn begin(
        target: &Target,
        tokens: usize,
        total: u64,
        say: Say<'a>,
    ) -> BenchResult<Self> {
        say(Step { done: 0, total, now: "counting tokens" });
        let mut draw = Draw::new(Draw::fresh_seed());
        let sizing = Sizing::of(target, &mut draw, tokens)?;
        let (chars, raw_chars) = (sizing.chars(tokens), sizing.raw_chars(tokens));
        Ok(Self { say, done: 1, total, draw, chars, raw_chars, note: sizing.note() })
    }

    /// The next step.
    pub(crate) fn step(&mut self, now: &str) {
        (self.say)(Step { done: self.done, total: self.total, now });
        self.done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_length_and_begin_apart() {
        let mut draw = Draw::new(1);
        for chars in [1, 100, 5000] {
            let text = text(&mut draw, chars);
            assert!(text.len() >= chars && text.len() < chars + 80, "{}", text.len());
            assert!(text.starts_with("Book ") && text.ends_with('.'), "{text}");
        }
        let first = |seed| sentences(&mut Draw::new(seed), 100).swap_remove(0);
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn a_size_undoes_the_line_it_is_taken_from() {
        let sizing = Sizing { around: 12.0, per_char: 0.25, counted: true };
        assert_eq!(sizing.chars(1012), 4000);
        assert_eq!(sizing.raw_chars(1000), 4000);
        assert_eq!(sizing.chars(3), 1);
    }
}
