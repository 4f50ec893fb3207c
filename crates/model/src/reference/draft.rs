//! The draft blocks: their context rows, and one draft pass (section 8).

use super::linear::Linear;
use super::load::Drafter;
use super::state::{Kind, State};
use super::trace::LayerTrace;
use super::{Reference, Row, argmax, dot};

/// What a draft pass proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct DraftRound {
    /// The proposed tokens, for the positions after the anchor's.
    pub tokens: Vec<u32>,
    /// Their logit rows `[vocab]`.
    pub logits: Vec<Vec<f64>>,
    /// The raw confidence of each, a logit.
    pub confidence: Vec<f64>,
}

/// The Markov head and the confidence head.
#[derive(Debug)]
pub(super) struct Heads {
    /// `[vocab][rank]`.
    pub(super) markov_embed: Vec<Vec<f64>>,
    /// `[vocab][rank]`.
    pub(super) markov_head: Linear,
    /// `[hidden + rank]`.
    pub(super) confidence: Vec<f64>,
}

impl Reference {
    /// Whether the draft blocks look at this target layer's input.
    pub(super) fn taps(&self, layer: usize) -> bool {
        self.config.drafts.as_ref().is_some_and(|d| d.target_layer_ids.contains(&layer))
    }

    /// The plain mean of the streams.
    pub(super) fn tap(&self, streams: &[Vec<f64>]) -> Vec<f64> {
        let mean = |d: usize| streams.iter().map(|s| s[d]).sum::<f64>() / streams.len() as f64;
        self.store((0..streams[0].len()).map(mean).collect())
    }

    /// Adds the context row of `position` to every draft block.
    pub(super) fn append_context(&self, taps: &[f64], position: usize, state: &mut State) {
        let Some(d) = &self.drafter else { return };
        let main = self.rms(&self.linear(&d.main_proj, taps), &d.main_norm);
        for block in &d.blocks {
            let row = self.window_row(block, &main, position);
            state.push(Kind::Context, block.layer, 1, row);
        }
    }

    /// The greedy drafts after `anchor`, the token at the position after `state`'s last; `None`
    /// where the checkpoint has no draft blocks.
    pub fn draft(&self, state: &State, anchor: u32) -> Option<DraftRound> {
        let (d, config) = (self.drafter.as_ref()?, self.config.drafts.as_ref()?);
        let mut ids = vec![config.noise_token_id; config.block_size];
        ids[0] = anchor;
        let mut rows: Vec<Row> = ids.iter().map(|&id| self.first(id)).collect();
        for block in &d.blocks {
            let attend = |x: &[Vec<f64>], _: &mut LayerTrace| self.attend_block(block, x, state);
            self.layer(block, &mut rows, attend, &mut LayerTrace::default());
        }
        let hidden: Vec<_> = rows.iter().map(|row| self.collapse(&row.streams, &row.pre)).collect();
        Some(self.propose(d, &hidden, anchor))
    }

    /// Every row sees the same keys: the last context rows, and all rows of the block.
    fn attend_block(
        &self,
        block: &super::load::Block,
        x: &[Vec<f64>],
        state: &State,
    ) -> Vec<Vec<f64>> {
        let base = state.len();
        let context = state.rows(Kind::Context, block.layer);
        let context = &context[base.saturating_sub(self.config.sliding_window)..];
        let own: Vec<_> =
            x.iter().enumerate().map(|(i, x)| self.window_row(block, x, base + i)).collect();
        let keys: Vec<&[f64]> = context.iter().chain(&own).map(Vec::as_slice).collect();
        let row = |(i, x): (usize, &Vec<f64>)| {
            let (_, queries) = self.queries(block, x, base + i);
            self.attend(block, &queries, &keys, base + i)
        };
        x.iter().enumerate().map(row).collect()
    }

    /// Token after token: the Markov head adds what the token before says.
    fn propose(&self, d: &Drafter, hidden: &[Vec<f64>], anchor: u32) -> DraftRound {
        let mut round = DraftRound { tokens: vec![], logits: vec![], confidence: vec![] };
        let mut previous = anchor;
        for h in hidden {
            let embed = &d.heads.markov_embed[previous as usize];
            let base = self.head.exact(&self.rms(h, &d.norm));
            let markov = d.heads.markov_head.exact(embed);
            let logits: Vec<f64> = base.iter().zip(markov).map(|(b, m)| b + m).collect();
            round.confidence.push(dot(&d.heads.confidence, &[h.as_slice(), embed].concat()));
            previous = argmax(&logits);
            round.tokens.push(previous);
            round.logits.push(logits);
        }
        round
    }
}
