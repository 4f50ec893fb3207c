//! What could not be verified, told from what the replies had.

use super::{Options, Run};
use crate::{BenchResult, Reply};

/// What the replies had, for saying what could not be verified.
#[derive(Debug, Default)]
pub(super) struct Seen {
    whole: usize,
    without_sha: usize,
    without_tokens: usize,
    drafted: bool,
    undrafted: usize,
    not_said: usize,
}

impl Seen {
    pub(super) fn references(
        &mut self,
        alone: Option<&[BenchResult<Reply>]>,
        serial: Option<&[BenchResult<Reply>]>,
    ) {
        for reply in alone.into_iter().chain(serial).flatten().flatten() {
            self.whole += 1;
            self.without_sha += usize::from(reply.token_sha.is_none());
        }
        for reply in serial.into_iter().flatten().flatten() {
            self.undrafted += 1;
            self.not_said += usize::from(reply.drafts_offered != Some(0));
        }
    }

    pub(super) fn replies(&mut self, runs: &[Run]) {
        for reply in runs.iter().flat_map(|run| run.replies.iter().flatten()) {
            self.whole += 1;
            self.without_sha += usize::from(reply.token_sha.is_none());
            self.without_tokens += usize::from(reply.tokens.is_none());
            self.drafted |= reply.drafts_offered.is_some_and(|offered| offered > 0);
        }
    }

    pub(super) fn unverified(&self, options: &Options) -> Vec<String> {
        let mut notes = Vec::new();
        for (asked, flag) in [(options.alone, "--alone"), (options.serial, "--serial")] {
            if !asked {
                notes.push(format!("{flag} was not given: that comparison was not made"));
            }
        }
        if self.without_sha > 0 {
            notes.push(format!(
                "{} of {} replies carry no token_sha: whether their tokens are equal is unknown",
                self.without_sha, self.whole
            ));
        }
        if self.not_said > 0 {
            notes.push(format!(
                "{} of {} replies to \"draft\": false do not say that no draft was offered: they \
                 are no serial reference",
                self.not_said, self.undrafted
            ));
        } else if options.serial && !self.drafted {
            notes.push(
                "no concurrent reply was drafted: the serial comparison says nothing of drafts"
                    .to_owned(),
            );
        }
        if self.without_tokens > 0 {
            notes.push(format!(
                "{} replies have no usage: their tokens a second are unknown",
                self.without_tokens
            ));
        }
        notes
    }
}
