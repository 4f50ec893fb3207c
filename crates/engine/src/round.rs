//! One round: drafts, one window of every decoding slot in one launch, and what is kept of each.

use finback_model::{Choice, DraftRequest, RunnerError, SlotId, Window};

use crate::live::{End, Phase};
use crate::request::Request;
use crate::scheduler::{Fatal, Scheduler};

/// A slot's rows in a round: its newest token, then its drafts.
struct Rows {
    slot: SlotId,
    tokens: Vec<u32>,
}

impl Scheduler {
    /// Runs one window of every decoding slot and says the tokens that stand.
    pub(crate) fn round(&mut self) -> Result<(), Fatal> {
        let mut round = self.plain_rows();
        let ran = self.draft(&mut round).and_then(|()| self.verify(&round));
        match ran {
            Ok(choices) => {
                for (rows, choices) in round.iter().zip(choices) {
                    self.accept(rows, choices)?;
                }
                Ok(())
            }
            Err(error) => self.fail(&round, &error),
        }
    }

    fn plain_rows(&self) -> Vec<Rows> {
        let decoding = |slot: SlotId| {
            let live = self.slots[slot].as_ref()?;
            (live.phase == Phase::Decode).then(|| Rows { slot, tokens: vec![live.newest] })
        };
        (0..self.slots.len()).filter_map(decoding).collect()
    }

    /// Adds drafts to the rows of every slot that can use some.
    fn draft(&mut self, round: &mut [Rows]) -> Result<(), RunnerError> {
        let most = self.options.draft_tokens.min(self.info.draft_tokens);
        let most = most.min(self.info.window_rows - 1);
        let mut wanted = Vec::new();
        let mut requests = Vec::new();
        for rows in round {
            let Some(live) = &self.slots[rows.slot] else { continue };
            // The reply's last token comes from the row before it, so it needs no row of its own.
            let drafts = most.min(live.left() - 1);
            // A draft pass runs at the anchor's position and after it, all within the context.
            if drafts == 0 || live.rows() + self.info.draft_tokens > self.info.context {
                continue;
            }
            let sampling = live.request().sampling;
            requests.push(DraftRequest { slot: rows.slot, anchor: live.newest, sampling });
            wanted.push((rows, drafts));
        }
        if requests.is_empty() {
            return Ok(());
        }
        for ((rows, drafts), draft) in wanted.into_iter().zip(self.runner.draft(&requests)?) {
            rows.tokens.extend(draft.tokens.iter().take(drafts));
        }
        Ok(())
    }

    fn verify(&mut self, round: &[Rows]) -> Result<Vec<Vec<Choice>>, RunnerError> {
        let slots = &self.slots;
        let windows: Vec<Window<'_>> = round
            .iter()
            .filter_map(|rows| {
                let Request { sampling, logits, .. } = *slots[rows.slot].as_ref()?.request();
                Some(Window { slot: rows.slot, tokens: &rows.tokens, sampling, logits })
            })
            .collect();
        self.runner.windows(&windows)
    }

    /// Says the target's choices as far as the drafts before them stand, and keeps their rows.
    ///
    /// The choice at a row is what an undrafted round would have said there, provided that every
    /// draft before it equals the choice before it; the first that does not ends the window.
    fn accept(&mut self, rows: &Rows, choices: Vec<Choice>) -> Result<(), Fatal> {
        let Some(live) = &mut self.slots[rows.slot] else { return Ok(()) };
        let drafts = &rows.tokens[1..];
        let stand = drafts
            .iter()
            .zip(&choices)
            .take_while(|(draft, choice)| choice.token == Some(**draft))
            .count();
        live.timings.rounds += 1;
        live.timings.drafted += drafts.len();
        for (index, choice) in choices.into_iter().take(stand + 1).enumerate() {
            live.timings.accepted += usize::from(index < stand);
            if let Some(end) = live.say(choice) {
                return self.end(rows.slot, end);
            }
        }
        match self.runner.keep(rows.slot, stand + 1) {
            Ok(()) => Ok(()),
            Err(error) => self.end(rows.slot, End::Failed(error.to_string())),
        }
    }

    /// Ends the requests an error concerns: the slot it names, else every slot of the round.
    ///
    /// A refused call changed nothing, so the slots that were not at fault run again next round.
    fn fail(&mut self, round: &[Rows], error: &RunnerError) -> Result<(), Fatal> {
        let at_fault = match error {
            RunnerError::WrongState { slot, .. }
            | RunnerError::SlotTwice { slot }
            | RunnerError::KeepTooMany { slot, .. }
            | RunnerError::NoSuchSlot { slot, .. } => Some(*slot),
            _ => None,
        };
        let known = at_fault.is_some_and(|slot| round.iter().any(|rows| rows.slot == slot));
        for rows in round {
            if !known || at_fault == Some(rows.slot) {
                self.end(rows.slot, End::Failed(error.to_string()))?;
            }
        }
        Ok(())
    }
}
