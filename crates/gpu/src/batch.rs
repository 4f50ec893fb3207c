//! What a pass is about: its spans on the host, and their tables in device memory.
//!
//! All tables of a pass lie in one piece of memory, angles behind the others. Where each begins follows
//! from the number of spans and rows alone, so that a round of the same kind has the same addresses.

use finback_ops::{
    BLOCK_POSITIONS, Frequencies, Limits, ModelSpec, OpsError, Rows, Span, in_parts, share,
};

use crate::memory::Memory;

/// Words of a row in the row table.
pub const ROW_WORDS: usize = 8;

/// Bytes and the address that they go to.
pub type Write = (u64, Vec<u8>);

/// One span of the batch.
#[derive(Debug, Clone)]
pub struct SpanRows {
    /// Its slot.
    pub slot: usize,
    /// Position of its first row.
    pub start: usize,
    /// Index of its first row in the batch.
    pub first: usize,
    /// Its token ids.
    pub tokens: Vec<u32>,
}

impl SpanRows {
    /// Whether all these rows are its own.
    pub fn has(&self, rows: &Rows) -> bool {
        self.first <= rows.start && rows.end <= self.first + self.tokens.len()
    }
}

/// The groups that close in a pass, for the sources of one ratio.
#[derive(Debug, Clone, Default)]
pub struct Closing {
    /// Positions of a group.
    pub ratio: usize,
    /// The row at which each group closes, ascending.
    pub rows: Vec<usize>,
    /// The first position of each group.
    positions: Vec<usize>,
    /// Groups with the ones that only fill up: as many for any pass of this kind.
    pub count: usize,
    /// Members of each group, `ratio` u32.
    pub members: u64,
    /// Where each group's compressed row goes, u64.
    pub row_places: u64,
    /// Where its index key goes, u64.
    pub key_places: u64,
    /// Cosines of its position, `rope_dim / 2`; 0 where a group is a row.
    pub cos: u64,
    /// Sines.
    pub sin: u64,
}

/// Bytes of a packed row and of an index key, for where groups go.
#[derive(Debug, Clone, Copy)]
pub struct PackedBytes {
    /// Of a compressed row.
    pub row: usize,
    /// Of an index key.
    pub key: usize,
}

/// The batch.
pub struct Batch {
    /// Spans in order.
    pub spans: Vec<SpanRows>,
    /// Rows of all spans.
    pub rows: usize,
    /// Eight words a row.
    pub table: u64,
    /// The token ids, u32.
    pub tokens: u64,
    /// Cosines and sines of layers of ratio 0, `rope_dim / 2` each.
    pub window: (u64, u64),
    /// Of the others.
    pub compressed: (u64, u64),
    /// One for each ratio of a kv source.
    pub closing: Vec<Closing>,
    /// Block tables, `stride` words a slot.
    pub blocks: u64,
    /// KV blocks of a slot.
    pub stride: usize,
    /// The block tables that were written.
    known: Vec<Vec<u32>>,
    base: u64,
    bytes: Vec<u8>,
    turned: Vec<u8>,
    half: usize,
    packed: PackedBytes,
    slots: usize,
    trash: usize,
    /// Angles of positions to come, for layers of ratio 0 and for the others.
    ahead: [Turns; 2],
}

/// Bytes of the cosines and sines of consecutive positions, made before they are wanted.
#[derive(Default)]
struct Turns {
    first: usize,
    cos: Vec<u8>,
    sin: Vec<u8>,
}

/// Positions that are worth a thread.
const POSITIONS: usize = 256;

impl Turns {
    /// Takes `count` positions from `first` on, `each` of them by one thread; `write` makes one's.
    fn fill(
        &mut self,
        first: usize,
        count: usize,
        each: usize,
        half: usize,
        write: impl Fn(usize, &mut [f32], &mut [f32]) + Sync,
    ) {
        self.first = first;
        let row = 4 * half;
        self.cos.resize(count * row, 0);
        self.sin.resize(count * row, 0);
        let parts = self.cos.chunks_mut(each * row).zip(self.sin.chunks_mut(each * row));
        in_parts(parts.enumerate(), |(part, (cos, sin))| {
            let rows = cos.chunks_exact_mut(row).zip(sin.chunks_exact_mut(row));
            let mut own = vec![0.0; 2 * half];
            let (own_cos, own_sin) = own.split_at_mut(half);
            for (position, (cos, sin)) in (first + part * each..).zip(rows) {
                write(position, own_cos, own_sin);
                put(cos, own_cos);
                put(sin, own_sin);
            }
        });
    }

    /// Whether all these positions are here.
    fn has(&self, first: usize, count: usize, half: usize) -> bool {
        self.first <= first && 4 * half * (first + count - self.first) <= self.cos.len()
    }

    /// Those of a position, where they are here.
    fn of(&self, position: usize, half: usize) -> Option<[&[u8]; 2]> {
        let at = position.checked_sub(self.first)? * 4 * half;
        Some([self.cos.get(at..at + 4 * half)?, self.sin.get(at..at + 4 * half)?])
    }
}

/// Where the angles of a kind of layers come from.
#[derive(Clone, Copy)]
struct Angles<'a> {
    frequencies: &'a Frequencies,
    ahead: &'a Turns,
}

impl Batch {
    /// Room for the largest pass.
    pub fn new(
        spec: &ModelSpec,
        limits: &Limits,
        packed: PackedBytes,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let half = spec.dims.rope_dim / 2;
        let mut ratios: Vec<usize> = spec.sources.iter().map(|source| source.ratio).collect();
        ratios.sort_unstable();
        ratios.dedup();
        // A row closes one group of each ratio at most.
        let row = 4 * (ROW_WORDS + 1 + 4 * half);
        let group = |ratio: usize| 4 * ratio + 16 + 8 * half;
        let most = row + ratios.iter().map(|&ratio| group(ratio)).sum::<usize>();
        let tables = 6 + 5 * ratios.len();
        let stride = limits.context.div_ceil(BLOCK_POSITIONS).max(1);
        Ok(Self {
            spans: Vec::new(),
            rows: 0,
            table: 0,
            tokens: 0,
            window: (0, 0),
            compressed: (0, 0),
            closing: ratios.iter().map(|&ratio| Closing { ratio, ..Closing::default() }).collect(),
            blocks: memory.take((4 * limits.slots * stride) as u64)?,
            stride,
            known: vec![Vec::new(); limits.slots],
            base: memory.take((limits.rows * most + 8 * tables) as u64)?,
            bytes: Vec::new(),
            turned: Vec::new(),
            half,
            packed,
            slots: limits.slots,
            trash: limits.blocks,
            ahead: Default::default(),
        })
    }

    /// The groups of a ratio.
    pub fn closing(&self, ratio: usize) -> Option<&Closing> {
        self.closing.iter().find(|closing| closing.ratio == ratio)
    }

    /// Makes the angles of `count` positions from `first` on, for a pass to come.
    pub fn turn_ahead(
        &mut self,
        first: usize,
        count: usize,
        window: &Frequencies,
        compressed: Option<&Frequencies>,
    ) {
        for (turns, frequencies) in self.ahead.iter_mut().zip([Some(window), compressed]) {
            if let Some(frequencies) = frequencies {
                let write =
                    |at: usize, cos: &mut [f32], sin: &mut [f32]| frequencies.write(at, cos, sin);
                turns.fill(first, count, share(count, POSITIONS), self.half, write);
            }
        }
    }

    /// Takes the spans of a pass; `compressed` are the frequencies of layers with a ratio, where the
    /// pass has such layers. What is to be written where comes back: the angles, and all else.
    pub fn begin(
        &mut self,
        spans: &[Span<'_>],
        window: &Frequencies,
        compressed: Option<&Frequencies>,
    ) -> (Write, Vec<Write>) {
        let mut writes = Vec::new();
        self.spans.clear();
        self.rows = 0;
        for span in spans {
            let (slot, first) = (span.slot, self.rows);
            self.rows += span.tokens.len();
            self.spans.push(SpanRows {
                slot,
                start: span.start,
                first,
                tokens: span.tokens.to_vec(),
            });
            if self.known[slot] != span.blocks {
                self.known[slot] = span.blocks.to_vec();
                let at = self.blocks + (4 * slot * self.stride) as u64;
                writes.push((at, span.blocks.iter().flat_map(|b| b.to_ne_bytes()).collect()));
            }
        }
        if let [span] = spans
            && span.tokens.len() > POSITIONS
            && !self.ahead[0].has(span.start, span.tokens.len(), self.half)
        {
            self.turn_ahead(span.start, span.tokens.len(), window, compressed);
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut table = Table { base: self.base, bytes: &mut bytes };
        self.table = table.words(self.spans.iter().flat_map(|span| {
            (0..span.tokens.len()).flat_map(move |i| {
                let words = [span.slot, span.start + i, span.start, span.first, span.tokens.len()];
                words.into_iter().chain([0; 3]).map(|word| word as u32)
            })
        }));
        self.tokens = table.words(self.spans.iter().flat_map(|span| span.tokens.iter().copied()));
        let positions =
            || self.spans.iter().flat_map(|span| (0..span.tokens.len()).map(|i| span.start + i));
        if compressed.is_some() {
            let (slots, trash, packed) = (self.slots, self.trash, self.packed);
            let pool = Pool { slots, trash, known: &self.known, packed };
            for closing in &mut self.closing {
                closing.fill(&self.spans, &mut table, &pool);
            }
        }
        let behind = table.here();
        let mut turned = std::mem::take(&mut self.turned);
        turned.clear();
        let mut table = Table { base: behind, bytes: &mut turned };
        let [ahead, ahead_compressed] = &self.ahead;
        let from = Angles { frequencies: window, ahead };
        self.window = table.angles(positions, from, self.half);
        if let Some(compressed) = compressed {
            let from = Angles { frequencies: compressed, ahead: ahead_compressed };
            self.compressed = table.angles(positions, from, self.half);
            for closing in self.closing.iter_mut().filter(|closing| closing.ratio > 1) {
                let positions = || closing.positions.iter().copied();
                (closing.cos, closing.sin) = table.angles(positions, from, self.half);
            }
        }
        writes.push((self.base, bytes));
        ((behind, turned), writes)
    }

    /// Takes back what [`Batch::begin`] gave, to fill it again.
    pub fn reuse(&mut self, mut writes: Vec<Write>) {
        self.bytes = writes.pop().unwrap_or_default().1;
    }

    /// Takes back the angles that [`Batch::begin`] gave.
    pub fn reuse_angles(&mut self, (_, angles): Write) {
        self.turned = angles;
    }

    /// Forgets which block tables were written, after a copy that failed.
    pub fn forget(&mut self) {
        self.known.iter_mut().for_each(Vec::clear);
    }
}

/// Where groups are read from and go.
struct Pool<'a> {
    slots: usize,
    /// The block that takes what only fills up.
    trash: usize,
    known: &'a [Vec<u32>],
    packed: PackedBytes,
}

impl Closing {
    fn fill(&mut self, spans: &[SpanRows], table: &mut Table<'_>, pool: &Pool<'_>) {
        let (ratio, per_block) = (self.ratio, BLOCK_POSITIONS / self.ratio);
        // Raw rows of open groups lie in front of the pass's own.
        let open = pool.slots * (ratio - 1);
        self.rows.clear();
        self.positions.clear();
        self.count = 0;
        let (mut members, mut places) = (Vec::new(), Vec::new());
        for span in spans {
            self.count += span.tokens.len().div_ceil(ratio);
            for i in 0..span.tokens.len() {
                let position = span.start + i;
                if !(position + 1).is_multiple_of(ratio) {
                    continue;
                }
                self.rows.push(span.first + i);
                let group = position / ratio;
                self.positions.push(group * ratio);
                members.extend((group * ratio..=position).map(|member| {
                    let row = match member.checked_sub(span.start) {
                        Some(own) => open + span.first + own,
                        None => span.slot * (ratio - 1) + member % ratio,
                    };
                    row as u32
                }));
                let block = pool.known[span.slot][group / per_block] as usize;
                places.push((block * per_block + group % per_block) as u64);
            }
        }
        members.resize(self.count * ratio, 0);
        places.resize(self.count, (pool.trash * per_block) as u64);
        self.positions.resize(self.count, 0);
        self.members = table.words(members.into_iter());
        let bytes = |of: usize| places.iter().map(move |place| place * of as u64);
        self.row_places = table.longs(bytes(pool.packed.row));
        self.key_places = table.longs(bytes(pool.packed.key));
    }
}

/// Tables behind one another, each at a multiple of 8.
struct Table<'a> {
    base: u64,
    bytes: &'a mut Vec<u8>,
}

impl Table<'_> {
    fn here(&mut self) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.base + self.bytes.len() as u64
    }

    fn words(&mut self, words: impl Iterator<Item = u32>) -> u64 {
        let at = self.here();
        words.for_each(|word| self.bytes.extend_from_slice(&word.to_ne_bytes()));
        at
    }

    fn longs(&mut self, longs: impl Iterator<Item = u64>) -> u64 {
        let at = self.here();
        longs.for_each(|long| self.bytes.extend_from_slice(&long.to_ne_bytes()));
        at
    }

    /// Cosines of each position, then their sines.
    fn angles<I: Iterator<Item = usize>>(
        &mut self,
        positions: impl Fn() -> I,
        from: Angles<'_>,
        half: usize,
    ) -> (u64, u64) {
        let mut own = vec![0.0; 2 * half];
        let mut bytes = vec![0; 4 * half];
        let [cos, sin] = [0, 1].map(|which| {
            let at = self.here();
            for position in positions() {
                if let Some(made) = from.ahead.of(position, half) {
                    self.bytes.extend_from_slice(made[which]);
                    continue;
                }
                let (cos, sin) = own.split_at_mut(half);
                from.frequencies.write(position, cos, sin);
                put(&mut bytes, &own[which * half..][..half]);
                self.bytes.extend_from_slice(&bytes);
            }
            at
        });
        (cos, sin)
    }
}

fn put(to: &mut [u8], from: &[f32]) {
    for (to, x) in to.as_chunks_mut().0.iter_mut().zip(from) {
        *to = x.to_ne_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_are_the_same_however_many_threads_make_them() {
        let write = |position: usize, cos: &mut [f32], sin: &mut [f32]| {
            for (i, (cos, sin)) in cos.iter_mut().zip(sin).enumerate() {
                (*cos, *sin) = ((position * 8 + i) as f32, -((position * 8 + i) as f32));
            }
        };
        let mut turns = Turns::default();
        assert!(!turns.has(0, 1, 4) && turns.of(0, 4).is_none());
        for each in [50, 20, 7, 1] {
            turns.fill(30, 20, each, 4, write);
            for position in 30..50 {
                let (mut cos, mut sin) = ([0.0; 4], [0.0; 4]);
                write(position, &mut cos, &mut sin);
                let bytes = |x: [f32; 4]| x.map(f32::to_ne_bytes).concat();
                let wanted = [bytes(cos), bytes(sin)];
                let found = turns.of(position, 4).unwrap();
                assert_eq!(found, [&wanted[0][..], &wanted[1][..]], "{each} a thread");
            }
            assert!(turns.of(29, 4).is_none() && turns.of(50, 4).is_none());
            assert!(turns.has(30, 20, 4) && !turns.has(29, 2, 4) && !turns.has(49, 2, 4));
        }
    }
}
