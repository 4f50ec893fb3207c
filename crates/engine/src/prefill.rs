//! Whose turn it is: which prompt runs its next rows, and when replies go before it.

use std::time::Duration;

use finback_model::SlotId;

/// Pieces of shorter prompts after which a prompt is next, however long it is.
const PASSED_OVER: usize = 8;

/// How prompts take turns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prefill {
    /// Rows of a piece; cut to what the runner takes.
    pub chunk: usize,
    /// Rows of a piece while replies decode, at least 1.
    pub budget: usize,
    /// Which prompt is next.
    pub order: Order,
    /// Share of the time, 0 to under 1, that replies get while prompts wait; at 0 a prompt runs whole
    /// before they go on.
    pub decode_share: f64,
}

impl Default for Prefill {
    fn default() -> Self {
        Self { chunk: usize::MAX, budget: usize::MAX, order: Order::Srpt, decode_share: 0.25 }
    }
}

/// Which of several prompts runs its next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The one with the fewest rows left.
    Srpt,
    /// The one that got its slot first.
    Fcfs,
}

/// A prompt that has rows to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) slot: SlotId,
    pub(crate) left: usize,
    /// Rises with each request that gets a slot.
    pub(crate) arrival: u64,
    /// Pieces of other prompts since its last.
    pub(crate) passed_over: usize,
}

/// Whose turn it is, by the time each side took.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Time that replies are owed before the next piece.
    owed: Duration,
    /// Whether a round is due whatever its time.
    round_due: bool,
    /// The prompt that runs whole.
    whole: Option<u64>,
}

impl Turns {
    /// The prompt whose piece is next; `None` where replies go first. `decoding`: whether any does.
    pub(crate) fn next(
        &mut self,
        prompts: &[Waiting],
        decoding: bool,
        options: &Prefill,
    ) -> Option<Waiting> {
        if !decoding {
            (self.owed, self.round_due) = (Duration::ZERO, false);
        }
        // What was restored whole only has its first token to choose.
        let ready = prompts.iter().find(|prompt| prompt.left == 0);
        if let Some(prompt) = ready {
            return Some(*prompt);
        }
        let whole = options.decode_share == 0.0;
        if decoding && !whole && (self.round_due || self.owed > Duration::ZERO) {
            return None;
        }
        let running = prompts.iter().find(|prompt| whole && Some(prompt.arrival) == self.whole);
        let first = |passed: usize| {
            let prompts = prompts.iter().filter(move |prompt| prompt.passed_over >= passed);
            prompts.min_by_key(|prompt| prompt.arrival)
        };
        let prompt = running.or_else(|| match options.order {
            Order::Fcfs => first(0),
            Order::Srpt => {
                let shortest = || prompts.iter().min_by_key(|p| (p.left, p.arrival));
                first(PASSED_OVER).or_else(shortest)
            }
        })?;
        self.whole = Some(prompt.arrival);
        Some(*prompt)
    }

    /// A piece took this long.
    pub(crate) fn piece(&mut self, took: Duration, options: &Prefill) {
        let share = options.decode_share;
        let owed = Duration::try_from_secs_f64(took.as_secs_f64() * share / (1.0 - share));
        // A share next to 1 owes longer than any time there is.
        self.owed = self.owed.saturating_add(owed.unwrap_or(Duration::MAX));
        self.round_due = true;
    }

    /// A round took this long.
    pub(crate) fn round(&mut self, took: Duration) {
        self.owed = self.owed.saturating_sub(took);
        self.round_due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(slot: SlotId, left: usize, arrival: u64) -> Waiting {
        Waiting { slot, left, arrival, passed_over: 0 }
    }

    #[test]
    fn the_shortest_is_next_until_another_was_passed_over_too_often() {
        let mut prompts = [waiting(0, 900, 1), waiting(1, 20, 2), waiting(2, 20, 3)];
        let (mut turns, srpt) = (Turns::default(), Prefill::default());
        let fcfs = Prefill { order: Order::Fcfs, ..srpt };
        assert_eq!(turns.next(&prompts, false, &srpt).map(|p| p.slot), Some(1));
        assert_eq!(turns.next(&prompts, false, &fcfs).map(|p| p.slot), Some(0));
        prompts[0].passed_over = 7;
        assert_eq!(turns.next(&prompts, false, &srpt).map(|p| p.slot), Some(1));
        prompts[0].passed_over = 8;
        assert_eq!(turns.next(&prompts, false, &srpt).map(|p| p.slot), Some(0));
        prompts[2].left = 0;
        assert_eq!(turns.next(&prompts, true, &srpt).map(|p| p.slot), Some(2));
    }

    #[test]
    fn a_piece_owes_replies_their_share_of_the_time() {
        let (prompts, ms) = ([waiting(0, 900, 1)], Duration::from_millis);
        for (share, rounds) in [(0.25, 4), (0.5, 10), (0.75, 30), (0.001, 1)] {
            let options = Prefill { decode_share: share, ..Prefill::default() };
            let mut turns = Turns::default();
            let mut taken = 0;
            assert!(turns.next(&prompts, true, &options).is_some());
            turns.piece(ms(100), &options);
            while turns.next(&prompts, true, &options).is_none() {
                turns.round(ms(10));
                taken += 1;
            }
            assert_eq!(taken, rounds, "{share}");
        }
        // The largest share there is owes replies all time, and no arithmetic fails.
        let options = Prefill { decode_share: 1.0 - f64::EPSILON / 2.0, ..Prefill::default() };
        let mut turns = Turns::default();
        for took in [ms(100), Duration::from_secs(1 << 20)] {
            turns.piece(took, &options);
            turns.round(Duration::from_secs(1 << 40));
            assert!(turns.next(&prompts, true, &options).is_none());
        }
        assert!(turns.next(&prompts, false, &options).is_some());
        // What is owed to replies that have ended is owed no more.
        let (options, mut turns) = (Prefill::default(), Turns::default());
        turns.piece(ms(100), &options);
        assert!(turns.next(&prompts, true, &options).is_none());
        assert!(turns.next(&prompts, false, &options).is_some());
        assert!(turns.next(&prompts, true, &options).is_some());
    }

    #[test]
    fn without_a_share_a_prompt_runs_whole() {
        let options = Prefill { decode_share: 0.0, ..Prefill::default() };
        let (mut turns, mut prompts) = (Turns::default(), vec![waiting(0, 900, 1)]);
        for _ in 0..3 {
            assert_eq!(turns.next(&prompts, true, &options).map(|p| p.slot), Some(0));
            turns.piece(Duration::from_secs(9), &options);
            // A shorter one waits until the first has ended.
            prompts.push(waiting(1, 5, 2));
        }
        prompts.remove(0);
        assert_eq!(turns.next(&prompts, true, &options).map(|p| p.slot), Some(1));
    }
}
