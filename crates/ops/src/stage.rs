//! Engram rows of passes to come: addressed, and asked of the system, before the pass begins.

use finback_checkpoint::{Advice, Tensor};

use crate::batch::{Limits, Span};
use crate::spec::{Engram, EngramLayer, ModelSpec};
use crate::threads::{in_parts, share};

/// Bytes that are advised together; a tensor may begin within a page, so this need not be the
/// system's.
const PAGE: usize = 4096;

/// What a slot's next pass reads.
struct Ahead {
    slot: usize,
    start: usize,
    /// The ids in front of it, as far back as an n-gram reaches.
    before: Vec<u32>,
    tokens: Vec<u32>,
    /// Per Engram layer: the table rows of each position, where they were addressed.
    rows: Vec<Vec<u64>>,
    /// Per Engram layer: those rows' bytes, where they were read.
    read: Vec<TableRows>,
}

impl Ahead {
    /// Addresses the rows and tells the system that they will be read.
    fn address(&mut self, spec: &ModelSpec, engram: &Engram) {
        let rows = engrams(spec).into_iter().map(|layer| {
            let each = share(self.tokens.len(), ROWS / engram.columns().max(1) + 1);
            let rows = addresses(engram, layer.which, &self.before, &self.tokens, each);
            advise(&layer.table, &rows, engram.dim);
            advise(&layer.table_scale, &rows, engram.dim / 32);
            rows
        });
        self.rows = rows.collect();
    }
}

/// Bytes of table rows, as they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableRows {
    /// E4M3 codes.
    pub codes: Vec<u8>,
    /// Their E8M0 scales.
    pub scales: Vec<u8>,
}

/// Table rows that are worth a thread.
const ROWS: usize = 4096;

impl TableRows {
    /// Reads the rows of a table whose rows have `dim` channels.
    pub fn read(&mut self, layer: &EngramLayer, dim: usize, rows: &[u64]) {
        let tables = [layer.table.bytes(), layer.table_scale.bytes()];
        self.gather(tables, dim, rows, share(rows.len(), ROWS));
    }

    /// Reads rows of codes and scales, `each` rows by one thread.
    fn gather(&mut self, [codes, scales]: [&[u8]; 2], dim: usize, rows: &[u64], each: usize) {
        let blocks = dim / 32;
        self.codes.resize(rows.len() * dim, 0);
        self.scales.resize(rows.len() * blocks, 0);
        let to = self.codes.chunks_mut(each * dim).zip(self.scales.chunks_mut(each * blocks));
        in_parts(rows.chunks(each).zip(to), |(rows, (to_codes, to_scales))| {
            copy_rows(codes, dim, rows, to_codes);
            copy_rows(scales, blocks, rows, to_scales);
        });
    }
}

/// Copies rows of `width` bytes one behind another.
fn copy_rows(table: &[u8], width: usize, rows: &[u64], to: &mut [u8]) {
    for (&row, to) in rows.iter().zip(to.chunks_exact_mut(width)) {
        to.copy_from_slice(&table[row as usize * width..][..width]);
    }
}

/// Passes that were announced, at most two a slot, and the one that runs.
#[derive(Default)]
pub struct Stage {
    ahead: Vec<Ahead>,
    running: Option<Ahead>,
    /// What earlier passes read, to be filled again.
    spare: Vec<TableRows>,
}

impl Stage {
    /// Bytes of what is announced and addressed, at most: two passes a slot.
    pub fn bytes(spec: &ModelSpec, limits: &Limits) -> usize {
        let Some(engram) = &spec.engram else { return 0 };
        let row = size_of::<u32>() + size_of::<u64>() * engram.columns() * engrams(spec).len();
        2 * limits.slots * limits.rows * row
    }

    /// Addresses the rows of a pass to come and tells the system that they will be read; where `later`, and another pass of
    /// the slot is to come before it, the next [`Stage::read`] does so.
    pub fn add(
        &mut self,
        spec: &ModelSpec,
        slot: usize,
        start: usize,
        before: &[u32],
        tokens: &[u32],
        later: bool,
    ) {
        let Some(engram) = &spec.engram else { return };
        // The pass that runs next, and the one after it.
        self.ahead.retain(|other| other.slot != slot || other.start != start);
        if self.ahead.iter().filter(|other| other.slot == slot).count() > 1
            && let Some(oldest) = self.ahead.iter().position(|other| other.slot == slot)
        {
            self.ahead.remove(oldest);
        }
        let before = before[before.len().saturating_sub(engram.ngram.saturating_sub(1))..].to_vec();
        let (tokens, rows, read) = (tokens.to_vec(), Vec::new(), Vec::new());
        let mut ahead = Ahead { slot, start, before, tokens, rows, read };
        if !(later && self.ahead.iter().any(|other| other.slot == slot)) {
            ahead.address(spec, engram);
        }
        self.ahead.push(ahead);
    }

    /// Forgets what was announced for a slot's stream: another begins in it.
    pub fn clear(&mut self, slot: usize) {
        self.ahead.retain(|other| other.slot != slot);
    }

    /// Begins a pass: what was announced for its very rows is used in it.
    pub fn begin(&mut self, spans: &[Span<'_>]) {
        if let Some(ran) = self.running.take().filter(|ran| !ran.read.is_empty()) {
            self.spare = ran.read;
        }
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

impl Stage {
    /// Addresses and reads the rows of every pass that was announced, so that it need not wait for them.
    pub fn read(&mut self, spec: &ModelSpec) {
        let Some(engram) = &spec.engram else { return };
        for ahead in self.ahead.iter_mut().filter(|ahead| ahead.read.is_empty()) {
            if ahead.rows.is_empty() {
                ahead.address(spec, engram);
            }
            let tables = engrams(spec).into_iter().zip(&ahead.rows);
            ahead.read = tables
                .map(|(layer, rows)| {
                    let mut table = self.spare.pop().unwrap_or_default();
                    table.read(layer, engram.dim, rows);
                    table
                })
                .collect();
        }
    }

    /// What was read ahead for the pass that runs, of an Engram layer; all its rows in order.
    pub fn table(&self, which: usize) -> Option<&TableRows> {
        self.running.as_ref()?.read.get(which)
    }

    /// First position and rows of every pass that was announced.
    pub fn announced(&self) -> impl Iterator<Item = (usize, usize)> {
        self.ahead.iter().map(|ahead| (ahead.start, ahead.tokens.len()))
    }
}

/// The Engram layers in order.
fn engrams(spec: &ModelSpec) -> Vec<&EngramLayer> {
    let mut layers: Vec<_> = spec.layers.iter().filter_map(|l| l.engram.as_ref()).collect();
    layers.sort_by_key(|layer| layer.which);
    layers
}

/// Tells the system that `rows` of `width` bytes will be read, each thread's runs of pages once.
fn advise(table: &Tensor, rows: &[u64], width: usize) {
    let pages = |&row: &u64| {
        let start = row as usize * width;
        start / PAGE..=(start + width - 1) / PAGE
    };
    in_parts(rows.chunks(share(rows.len(), ROWS)), |rows| {
        let mut pages: Vec<usize> = rows.iter().flat_map(pages).collect();
        pages.sort_unstable();
        pages.dedup();
        for run in pages.chunk_by(|a, b| a + 1 == *b) {
            table.advise_part(Advice::WillNeed, run[0] * PAGE..(run[0] + run.len()) * PAGE);
        }
    });
}

/// The table rows of each of `tokens`, which follow `before`, in an Engram layer; `each` tokens by one thread.
fn addresses(
    engram: &Engram,
    which: usize,
    before: &[u32],
    tokens: &[u32],
    each: usize,
) -> Vec<u64> {
    let columns = engram.columns();
    let mut rows = vec![0; tokens.len() * columns];
    let parts = (0..tokens.len()).step_by(each).zip(rows.chunks_mut(each * columns));
    in_parts(parts, |(first, to)| {
        let (mut ids, mut own) = (Vec::with_capacity(engram.ngram), Vec::with_capacity(columns));
        for (at, to) in (first..).zip(to.chunks_exact_mut(columns)) {
            look_back(engram, before, at, |i| tokens[i], &mut ids);
            own.clear();
            engram.rows(which, &ids, &mut own);
            to.copy_from_slice(&own);
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_same_however_many_threads_read_them() {
        let codes: Vec<u8> = (0..40 * 64).map(|i| (i * 7 % 251) as u8).collect();
        let scales: Vec<u8> = (0..40 * 2).map(|i| i as u8).collect();
        let rows: Vec<u64> = (0..23).map(|i| i * 17 % 40).collect();
        let wanted = |table: &[u8], width: usize| -> Vec<u8> {
            rows.iter().flat_map(|&row| table[row as usize * width..][..width].to_vec()).collect()
        };
        let mut read = TableRows::default();
        for each in [100, 23, 5, 1] {
            read.gather([&codes, &scales], 64, &rows, each);
            let wanted = TableRows { codes: wanted(&codes, 64), scales: wanted(&scales, 2) };
            assert!(read == wanted, "{each} a thread");
        }
        read.gather([&codes, &scales], 64, &rows[..3], 2);
        assert_eq!(read.codes, wanted(&codes, 64)[..3 * 64]);
        read.gather([&codes, &scales], 64, &[], 2);
        assert_eq!(read, TableRows::default());
    }
    #[test]
    fn addresses_are_the_same_however_many_threads_make_them() {
        let engram = Engram {
            ngram: 3,
            heads: 2,
            dim: 32,
            pad: 1,
            map: (0..50).map(|id| id * 7 % 41).collect(),
            primes: vec![vec![101, 103, 107, 109]],
            multipliers: vec![vec![3, 5, 7]],
        };
        let ids: Vec<u32> = (0..30).map(|i| i * 11 % 50).collect();
        let whole = addresses(&engram, 0, &[], &ids, 30);
        assert_eq!(whole.len(), 30 * engram.columns());
        for each in [1, 4, 29] {
            assert_eq!(addresses(&engram, 0, &[], &ids, each), whole, "{each} a thread");
            // A pass that begins within: what is in front of it counts as far as an n-gram reaches.
            let part = addresses(&engram, 0, &ids[10..12], &ids[12..], each);
            assert_eq!(part, whole[12 * engram.columns()..], "{each} a thread");
        }
    }
}
