//! One round: drafts, one window of every decoding slot in one launch, and what is kept of each.

use std::sync::atomic::Ordering::Relaxed;

use finback_model::{Choice, Draft, DraftRequest, RunnerResult, SlotId, Window};

use crate::failure::{Failure, attempt};
use crate::live::{End, Live, Phase};
use crate::profile::Pass;
use crate::scheduler::{Fatal, Scheduler};

/// A slot's rows in a round: its newest token, then its drafts.
struct Rows {
    slot: SlotId,
    tokens: Vec<u32>,
    /// What is added to each row's logits; empty where nothing is.
    adjust: Vec<Vec<(u32, f32)>>,
}

impl Scheduler {
    /// Runs one window of every decoding slot and says the tokens that stand.
    pub(crate) fn round(&mut self) -> Result<(), Fatal> {
        let decoding = |live: &Live| live.phase == Phase::Decode;
        let slots: Vec<SlotId> = (0..self.slots.len())
            .filter(|&slot| self.slots[slot].as_ref().is_some_and(decoding))
            .collect();
        let Some(failure) = self.windows(&slots)? else { return Ok(()) };
        if failure.slot().is_some() || slots.len() == 1 {
            return self.fail(&slots, &failure);
        }
        // A launch that failed changed nothing. Each slot tries again by itself: the one at fault
        // fails alone, and the others say what they would have said.
        tracing::warn!(%failure, "a round failed; its slots go one by one");
        for slot in slots {
            if let Some(failure) = self.windows(&[slot])? {
                self.fail(&[slot], &failure)?;
            }
        }
        Ok(())
    }

    /// Runs one window of each of `slots` in one launch and says what stands; a launch that failed
    /// has changed nothing.
    fn windows(&mut self, slots: &[SlotId]) -> Result<Option<Failure>, Fatal> {
        let mut pass = Pass::begin("round");
        let mut round = self.plain_rows(slots);
        let ran = attempt(|| {
            self.draft(&mut round)?;
            pass.mark("draft");
            let choices = self.verify(&mut round);
            pass.mark("verify");
            choices
        });
        let choices = match ran {
            Ok(choices) => choices,
            Err(failure) => return Ok(Some(failure)),
        };
        self.shared.counters.rounds.fetch_add(1, Relaxed);
        let stands: Vec<usize> =
            round.iter().zip(&choices).map(|(rows, choices)| stand(rows, choices)).collect();
        // All are kept before any is said: a failure here loses rows of several slots at once.
        for ((rows, choices), &stand) in round.iter().zip(&choices).zip(&stands) {
            let rows_kept = self.kept(rows, choices, stand);
            let kept = attempt(|| self.runner.keep(rows.slot, rows_kept));
            if let Err(failure) = kept {
                if failure.slot() != Some(rows.slot) {
                    self.fail(slots, &failure)?;
                    return Ok(None);
                }
                self.end(rows.slot, End::Failed(failure.to_string()))?;
            } else if let Some(live) = &mut self.slots[rows.slot] {
                live.keep(&rows.tokens[..rows_kept]);
            }
        }
        pass.mark("keep");
        for ((rows, choices), stand) in round.iter().zip(choices).zip(stands) {
            self.say(rows, choices, stand)?;
        }
        pass.mark("say");
        if let Some(profile) = &self.profile {
            pass.streams = round.len();
            pass.rows = round.iter().map(|rows| rows.tokens.len()).sum();
            profile.add(pass);
        }
        Ok(None)
    }

    fn plain_rows(&self, slots: &[SlotId]) -> Vec<Rows> {
        let rows = |&slot: &SlotId| {
            let live = self.slots[slot].as_ref()?;
            Some(Rows { slot, tokens: vec![live.newest], adjust: Vec::new() })
        };
        slots.iter().filter_map(rows).collect()
    }

    /// Adds drafts to the rows of every slot that can use some.
    fn draft(&mut self, round: &mut [Rows]) -> RunnerResult<()> {
        if round.len() >= self.options.plain_streams {
            return Ok(());
        }
        let most = self.options.draft_tokens.min(self.info.draft_tokens);
        let most = most.min(self.info.window_rows - 1);
        let mut wanted = Vec::new();
        for rows in round {
            let Some(live) = &self.slots[rows.slot] else { continue };
            // The reply's last token comes from the row before it, so it needs no row of its own.
            let drafts = most.min(live.left() - 1);
            // A draft pass runs at the anchor's position and after it, all within the context.
            let room = live.rows() + self.info.draft_tokens <= self.info.context;
            if drafts > 0 && room && live.request().drafts {
                wanted.push((rows, drafts, live, live.adds(&[])));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let requests: Vec<DraftRequest<'_>> = wanted
            .iter()
            .map(|(rows, _, live, adjust)| DraftRequest {
                slot: rows.slot,
                anchor: live.newest,
                sampling: live.request().sampling,
                adjust,
                penalties: live.request().penalties,
            })
            .collect();
        let drafts = self.runner.draft(&requests)?;
        drop(requests);
        for ((rows, most, ..), draft) in wanted.into_iter().zip(drafts) {
            rows.tokens.extend(confident(&draft, self.options.draft_confidence).take(most));
        }
        Ok(())
    }

    fn verify(&mut self, round: &mut [Rows]) -> RunnerResult<Vec<Vec<Choice>>> {
        let mut windows = Vec::new();
        for rows in round {
            let Some(live) = &self.slots[rows.slot] else { continue };
            // Row i is chosen after the drafts up to it, as if they had been said.
            rows.adjust = match live.adjusts() {
                true => (0..rows.tokens.len()).map(|i| live.adds(&rows.tokens[1..=i])).collect(),
                false => Vec::new(),
            };
            windows.push(Window {
                slot: rows.slot,
                tokens: &rows.tokens,
                sampling: live.request().sampling,
                adjust: &rows.adjust,
                logits: live.wants_logits(),
            });
        }
        self.runner.windows(&windows)
    }

    /// Rows that become state: those that stand, and none after the reply's end, so that the state
    /// is that of the reply.
    fn kept(&self, rows: &Rows, choices: &[Choice], stand: usize) -> usize {
        let Some(live) = &self.slots[rows.slot] else { return stand + 1 };
        let ends = |&row: &usize| live.ends_with(row + 1, choices[row].token);
        (0..stand).find(ends).unwrap_or(stand) + 1
    }

    /// Says the target's choices as far as the drafts before them stand.
    fn say(&mut self, rows: &Rows, choices: Vec<Choice>, stand: usize) -> Result<(), Fatal> {
        let Some(live) = &mut self.slots[rows.slot] else { return Ok(()) };
        let offered = rows.tokens.len() - 1;
        live.timings.rounds += 1;
        live.timings.drafted += offered;
        for count in live.timings.drafts.iter_mut().take(offered) {
            count.offered += 1;
        }
        for (index, choice) in choices.into_iter().take(stand + 1).enumerate() {
            if index < stand {
                live.timings.accepted += 1;
                live.timings.drafts[index].accepted += 1;
            }
            let said = u64::from(choice.token.is_some());
            self.shared.counters.reply_tokens.fetch_add(said, Relaxed);
            if let Some(end) = live.say(choice) {
                self.shared.counters.window(offered, stand.min(index + 1));
                return self.end(rows.slot, end);
            }
        }
        self.shared.counters.window(offered, stand);
        Ok(())
    }

    /// Ends the requests a failure concerns: the slot it names, else all of `slots`.
    ///
    /// A refused call changed nothing, so the slots that were not at fault run again next round.
    fn fail(&mut self, slots: &[SlotId], failure: &Failure) -> Result<(), Fatal> {
        let at_fault = failure.slot().filter(|slot| slots.contains(slot));
        for &slot in slots {
            if at_fault.is_none_or(|fault| fault == slot) {
                self.end(slot, End::Failed(failure.to_string()))?;
            }
        }
        Ok(())
    }
}

/// How many drafts stand.
///
/// The choice at a row is what an undrafted round would have said there, provided that every draft
/// before it equals the choice before it; the first that does not ends the window.
fn stand(rows: &Rows, choices: &[Choice]) -> usize {
    let drafts = &rows.tokens[1..];
    drafts.iter().zip(choices).take_while(|(draft, choice)| choice.token == Some(**draft)).count()
}

/// The drafts before the first whose probability of being right, as the drafter sees it, is below
/// `least`.
fn confident(draft: &Draft, least: f32) -> impl Iterator<Item = u32> {
    let sure = move |confidence: f32| 1.0 / (1.0 + (-confidence).exp()) >= least;
    let drafts = draft.tokens.iter().zip(&draft.confidence);
    // At 0 nothing is cut, not even a drafter's NaN.
    drafts.take_while(move |(_, c)| least == 0.0 || sure(**c)).map(|(id, _)| *id)
}
