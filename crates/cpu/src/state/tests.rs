//! The pool's blocks under takes, shares, copies and gives, against each holder's own copy of its rows.

use finback_model::pool::{Holder, Pool};
use finback_ops::{BLOCK_POSITIONS, Limits};
use proptest::prelude::*;

use super::{Layout, SourceLayout, State};

const BLOCKS: usize = 12;

/// Two sources, of ratio 2 and 1, with rows and keys of a few bytes.
fn layout() -> Layout {
    let (compressed_row, index_key) = (5, 3);
    let first = BLOCK_POSITIONS / 2 * (compressed_row + index_key);
    let source = |ratio, rows: usize| SourceLayout {
        ratio,
        rows,
        keys: rows + BLOCK_POSITIONS / ratio * compressed_row,
        open: 0,
    };
    Layout {
        window: 4,
        rings: 1,
        window_row: 2,
        compressed_row,
        index_key,
        sources: vec![source(2, 0), source(1, first)],
        block: first + BLOCK_POSITIONS * (compressed_row + index_key),
        head_dim: 2,
        recent: 3,
    }
}

/// A stream or a snapshot: its blocks, and what it must read through them.
#[derive(Clone)]
struct Held {
    holder: Holder,
    blocks: Vec<u32>,
    /// Per source: its rows with their keys.
    rows: [Vec<[u8; 8]>; 2],
    length: usize,
}

impl Held {
    fn check(&self, state: &State) {
        let mut found = Vec::new();
        state.read_rows(self.length, &self.blocks, &mut found);
        let wanted: Vec<u8> = self.rows.iter().flatten().flatten().copied().collect();
        assert!(found == wanted, "{:?} of {} positions", self.holder, self.length);
    }
}

#[derive(Debug, Clone)]
enum Act {
    Take { blocks: usize },
    Grow { which: usize, positions: usize },
    Keep { which: usize },
    Share { which: usize, blocks: usize },
    Give { which: usize },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (1..4usize).prop_map(|blocks| Act::Take { blocks }),
        6 => (0..99usize, 1..200usize).prop_map(|(which, positions)| Act::Grow { which, positions }),
        2 => (0..99usize).prop_map(|which| Act::Keep { which }),
        3 => (0..99usize, 0..3usize).prop_map(|(which, blocks)| Act::Share { which, blocks }),
        3 => (0..99usize).prop_map(|which| Act::Give { which }),
    ]
}

struct Model {
    state: State,
    pool: Pool,
    held: Vec<Held>,
    /// Makes every row's bytes its own.
    written: u64,
}

impl Model {
    fn new() -> Self {
        let limits = Limits { slots: 1, rows: 1, logit_rows: 1, context: 1024, blocks: BLOCKS };
        let state = State::new(layout(), &limits);
        Self { state, pool: Pool::new(BLOCKS), held: Vec::new(), written: 0 }
    }

    fn nth(&self, holder: Holder, which: usize) -> Option<usize> {
        let of: Vec<usize> =
            (0..self.held.len()).filter(|&at| self.held[at].holder == holder).collect();
        (!of.is_empty()).then(|| of[which % of.len()])
    }

    fn run(&mut self, act: &Act) {
        match *act {
            Act::Take { blocks } => {
                if let Some(blocks) = self.pool.take(blocks) {
                    let (holder, rows) = (Holder::Slot, [Vec::new(), Vec::new()]);
                    self.held.push(Held { holder, blocks, rows, length: 0 });
                }
            }
            Act::Grow { which, positions } => {
                let Some(at) = self.nth(Holder::Slot, which) else { return };
                self.grow(at, positions);
            }
            Act::Keep { which } => {
                let Some(at) = self.nth(Holder::Slot, which) else { return };
                let mut kept = self.held[at].clone();
                kept.holder = Holder::Snapshot;
                kept.blocks.truncate(kept.length.div_ceil(BLOCK_POSITIONS));
                self.pool.share(Holder::Snapshot, &kept.blocks);
                self.held.push(kept);
            }
            Act::Share { which, blocks } => {
                let Some(at) = self.nth(Holder::Snapshot, which) else { return };
                let mut stream = self.held[at].clone();
                let full = stream.length / BLOCK_POSITIONS;
                let Some(fresh) = self.pool.take(blocks + stream.blocks.len() - full) else {
                    return;
                };
                if let (Some(&from), Some(&to)) = (stream.blocks.get(full), fresh.first()) {
                    self.state.copy_block(from, to);
                }
                stream.holder = Holder::Slot;
                stream.blocks.truncate(full);
                self.pool.share(Holder::Slot, &stream.blocks);
                stream.blocks.extend(fresh);
                self.held.push(stream);
            }
            Act::Give { which } => {
                if !self.held.is_empty() {
                    let gone = self.held.swap_remove(which % self.held.len());
                    self.pool.give(gone.holder, &gone.blocks);
                }
            }
        }
    }

    fn grow(&mut self, at: usize, positions: usize) {
        let stream = &mut self.held[at];
        let most = stream.blocks.len() * BLOCK_POSITIONS;
        stream.length = (stream.length + positions).min(most);
        for (source, ratio) in [2, 1].into_iter().enumerate() {
            while stream.rows[source].len() < stream.length / ratio {
                self.written += 1;
                let bytes = self.written.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                let j = stream.rows[source].len();
                let (row, key) = self.state.pair_mut(source, j, &stream.blocks);
                row.copy_from_slice(&bytes[..5]);
                key.copy_from_slice(&bytes[5..]);
                stream.rows[source].push(bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn every_holder_reads_its_own_rows_whatever_the_pool_does(
        acts in prop::collection::vec(act(), 4000),
    ) {
        let mut model = Model::new();
        for (n, act) in acts.iter().enumerate() {
            model.run(act);
            if let Some(held) = model.held.get(n % model.held.len().max(1)) {
                held.check(&model.state);
            }
            let slots = model.held.iter().filter(|held| held.holder == Holder::Slot);
            let mut used: Vec<u32> = slots.flat_map(|held| held.blocks.clone()).collect();
            let mut all: Vec<u32> =
                model.held.iter().flat_map(|held| held.blocks.clone()).collect();
            for list in [&mut used, &mut all] {
                list.sort_unstable();
                list.dedup();
            }
            let found = model.pool.usage();
            prop_assert_eq!((found.used, found.free), (used.len(), BLOCKS - all.len()));
        }
        model.held.iter().for_each(|held| held.check(&model.state));
    }

    /// A slot's bytes outside the pool come back as they went, and no others are taken.
    #[test]
    fn slots_take_their_own_bytes_and_no_others(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut model = Model::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        model.state.set_ring_row(0, 0, 2, &[7, 9]);
        model.state.remember(0, [1, 2, 3, 4].into_iter());
        model.state.read_slot(0, &mut before);
        let taken = model.state.write_slot(0, &bytes, 50);
        model.state.read_slot(0, &mut after);
        prop_assert_eq!(&after, if taken { &bytes } else { &before });
        prop_assert!(model.state.write_slot(0, &before, 50));
        after.clear();
        model.state.read_slot(0, &mut after);
        prop_assert_eq!(&after, &before);
        // An id outside the vocabulary would index past the token map.
        prop_assert!(!model.state.write_slot(0, &before, 4));
    }
}
