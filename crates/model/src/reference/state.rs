//! Everything remembered about one sequence, every row kept.

use std::collections::BTreeMap;

/// What a row of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Window rows of a target layer.
    Window,
    /// Projections that a ratio above 1 pools, and their gates.
    Value,
    Gate,
    /// Compressed rows and index keys of a kv source.
    Compressed,
    IndexKey,
    /// Context rows of a draft block.
    Context,
}

/// The rows of one kind and layer; row `i` belongs to the positions from `i * every` on.
#[derive(Debug, Clone, Default)]
struct Table {
    rows: Vec<Vec<f64>>,
    every: usize,
}

/// A sequence's state. A prefix of every table is the state of a shorter sequence.
#[derive(Debug, Clone, Default)]
pub struct State {
    pub(super) length: usize,
    /// Engram ids of the tokens.
    pub(super) ids: Vec<u32>,
    tables: BTreeMap<(Kind, usize), Table>,
}

impl State {
    /// Positions that have run.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no position has run.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Forgets every position from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.ids.truncate(self.length);
        for table in self.tables.values_mut() {
            table.rows.truncate(self.length / table.every);
        }
    }

    pub(super) fn rows(&self, kind: Kind, layer: usize) -> &[Vec<f64>] {
        self.tables.get(&(kind, layer)).map_or(&[], |table| &table.rows)
    }

    pub(super) fn push(&mut self, kind: Kind, layer: usize, every: usize, row: Vec<f64>) {
        let table = self.tables.entry((kind, layer)).or_default();
        table.every = every;
        table.rows.push(row);
    }
}
