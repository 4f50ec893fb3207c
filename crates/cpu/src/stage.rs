//! Engram rows of passes to come: addressed, and asked of the system, before the pass begins.

use finback_checkpoint::Advice;
use finback_ops::{Engram, ModelSpec, Span};

/// What a slot's next pass reads.
struct Ahead {
    slot: usize,
    start: usize,
    tokens: Vec<u32>,
    /// Per Engram layer: the table rows of each position.
    rows: Vec<Vec<u64>>,
}

/// Passes that were announced, at most two a slot, and the one that runs.
#[derive(Default)]
pub struct Stage {
    ahead: Vec<Ahead>,
    running: Option<Ahead>,
}

impl Stage {
    /// Addresses the rows of a pass to come and tells the system that they will be read.
    pub fn add(
        &mut self,
        spec: &ModelSpec,
        slot: usize,
        start: usize,
        before: &[u32],
        tokens: &[u32],
    ) {
        let Some(engram) = &spec.engram else { return };
        let mut layers: Vec<_> = spec.layers.iter().filter_map(|l| l.engram.as_ref()).collect();
        layers.sort_by_key(|layer| layer.which);
        let rows = layers.iter().map(|layer| {
            let rows = addresses(engram, layer.which, before, tokens);
            let blocks = engram.dim / 32;
            for &row in &rows {
                let row = row as usize;
                layer.table.advise_part(Advice::WillNeed, row * engram.dim..(row + 1) * engram.dim);
                let scales = row * blocks..(row + 1) * blocks;
                layer.table_scale.advise_part(Advice::WillNeed, scales);
            }
            rows
        });
        let ahead = Ahead { slot, start, tokens: tokens.to_vec(), rows: rows.collect() };
        // The pass that runs next, and the one after it.
        self.ahead.retain(|other| other.slot != slot || other.start != start);
        if self.ahead.iter().filter(|other| other.slot == slot).count() > 1
            && let Some(oldest) = self.ahead.iter().position(|other| other.slot == slot)
        {
            self.ahead.remove(oldest);
        }
        self.ahead.push(ahead);
    }

    /// Forgets what was announced for a slot's stream: another begins in it.
    pub fn clear(&mut self, slot: usize) {
        self.ahead.retain(|other| other.slot != slot);
    }

    /// Begins a pass: what was announced for its very rows is used in it.
    pub fn begin(&mut self, spans: &[Span<'_>]) {
        self.running = None;
        let [span] = spans else { return };
        let same = |ahead: &Ahead| {
            ahead.slot == span.slot && ahead.start == span.start && ahead.tokens == span.tokens
        };
        self.running = self.ahead.iter().position(same).map(|at| self.ahead.remove(at));
    }

    /// Whether the pass that runs was announced.
    pub fn hit(&self) -> bool {
        self.running.is_some()
    }

    /// The table rows of the pass's row `index` in an Engram layer, where they are known.
    pub fn rows(&self, which: usize, index: usize, columns: usize) -> Option<&[u64]> {
        let rows = self.running.as_ref()?.rows.get(which)?;
        rows.get(index * columns..(index + 1) * columns)
    }
}

/// The table rows of each of `tokens`, which follow `before`, in an Engram layer.
fn addresses(engram: &Engram, which: usize, before: &[u32], tokens: &[u32]) -> Vec<u64> {
    let mut rows = Vec::with_capacity(tokens.len() * engram.columns());
    let mut ids = Vec::with_capacity(engram.ngram);
    for at in 0..tokens.len() {
        look_back(engram, before, at, |i| tokens[i], &mut ids);
        engram.rows(which, &ids, &mut rows);
    }
    rows
}

/// The Engram ids of a row's last tokens, its own first, as far back as an n-gram reaches. The row is
/// `at` of a span whose tokens `token` gives; `before` are the ids in front of it.
pub fn look_back(
    engram: &Engram,
    before: &[u32],
    at: usize,
    token: impl Fn(usize) -> u32,
    ids: &mut Vec<Option<u32>>,
) {
    ids.clear();
    ids.extend((0..engram.ngram).map(|back| {
        let id = match at.checked_sub(back) {
            Some(i) => Some(token(i)),
            None => before.len().checked_sub(back - at).map(|i| before[i]),
        };
        id.map(|t| engram.map[t as usize])
    }));
}
