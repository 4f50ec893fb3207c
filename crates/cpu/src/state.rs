//! What a slot remembers: window rings, compressed rows in blocks, open groups, token ids.

use finback_numerics::rows::{compressed_bytes, index_key_bytes, window_bytes};
use finback_ops::{BLOCK_POSITIONS, Limits, ModelSpec};

/// Byte sizes of a slot's state and of a KV block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Positions of a ring.
    pub window: usize,
    /// Rings of a slot.
    pub rings: usize,
    /// Bytes of one window row.
    pub window_row: usize,
    /// Bytes of one compressed row.
    pub compressed_row: usize,
    /// Bytes of one index key.
    pub index_key: usize,
    /// Per kv source: positions of a row, and where its rows and its keys start in a block.
    pub sources: Vec<SourceLayout>,
    /// Bytes of one KV block.
    pub block: usize,
    /// Channels of a raw row of an open group.
    pub head_dim: usize,
    /// Token ids an Engram looks back to.
    pub recent: usize,
}

/// Where a kv source's rows live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceLayout {
    /// Positions of a compressed row.
    pub ratio: usize,
    /// Byte offset of compressed rows in a block.
    pub rows: usize,
    /// Byte offset of index keys in a block.
    pub keys: usize,
    /// Index of the slot's first raw value of this source; each of `ratio - 1` raw rows is a kv row
    /// and a gate row.
    pub open: usize,
}

impl Layout {
    /// The layout a model needs.
    pub fn new(spec: &ModelSpec) -> Self {
        let dims = &spec.dims;
        let compressed_row = compressed_bytes(dims.head_dim);
        let index_key = index_key_bytes(dims.index_dim);
        let (mut block, mut open, mut sources) = (0, 0, Vec::new());
        for source in &spec.sources {
            let count = BLOCK_POSITIONS / source.ratio;
            let keys = block + count * compressed_row;
            sources.push(SourceLayout { ratio: source.ratio, rows: block, keys, open });
            block = keys + count * index_key;
            open += (source.ratio - 1) * 2 * dims.head_dim;
        }
        Self {
            window: dims.window,
            rings: spec.rings(),
            window_row: window_bytes(dims.head_dim),
            compressed_row,
            index_key,
            sources,
            block,
            head_dim: dims.head_dim,
            recent: spec.engram.as_ref().map_or(0, |e| e.ngram - 1),
        }
    }

    /// f32 values of a slot's open groups.
    pub fn open_values(&self) -> usize {
        self.sources.last().map_or(0, |s| s.open + (s.ratio - 1) * 2 * self.head_dim)
    }

    /// Bytes of a slot's rings.
    pub fn ring_bytes(&self) -> usize {
        self.rings * self.window * self.window_row
    }
}

/// The state of one slot outside the pool.
pub struct SlotState {
    rings: Vec<u8>,
    /// Raw kv and gate rows of open groups, by [`SourceLayout::open`].
    pub open: Vec<f32>,
    /// The last token ids, oldest first; shorter at the start of a stream.
    pub recent: Vec<u32>,
}

/// The rows of a span in the workspace, of which the first are kept.
pub struct NewRows<'a> {
    /// The slot.
    pub slot: usize,
    /// Position of the span's first row.
    pub start: usize,
    /// Its index in the batch.
    pub first: usize,
    /// Rows kept.
    pub rows: usize,
    /// Per ring: packed window rows of the batch.
    pub window_rows: &'a [Vec<u8>],
    /// Per kv source of ratio above 1: raw kv rows of the batch, then as many gate rows.
    pub raw: &'a [Vec<f32>],
}

/// All state: the slots' own, and the pool their block tables point into.
pub struct State {
    /// The sizes.
    pub layout: Layout,
    slots: Vec<SlotState>,
    pool: Vec<u8>,
}

impl State {
    /// Zeroed state for these limits.
    pub fn new(layout: Layout, limits: &Limits) -> Self {
        let slots = (0..limits.slots)
            .map(|_| SlotState {
                rings: vec![0; layout.ring_bytes()],
                open: vec![0.0; layout.open_values()],
                recent: Vec::with_capacity(layout.recent),
            })
            .collect();
        let pool = vec![0; limits.blocks * layout.block];
        Self { layout, slots, pool }
    }

    /// One slot.
    pub fn slot(&self, slot: usize) -> &SlotState {
        &self.slots[slot]
    }

    /// The window row of a layer at a position.
    pub fn ring_row(&self, slot: usize, layer: usize, position: usize) -> &[u8] {
        &self.slots[slot].rings[self.layout.ring_at(layer, position)]
    }

    /// Stores a window row.
    pub fn set_ring_row(&mut self, slot: usize, layer: usize, position: usize, row: &[u8]) {
        let at = self.layout.ring_at(layer, position);
        self.slots[slot].rings[at].copy_from_slice(row);
    }

    /// Compressed row `j` of a source, through a block table.
    pub fn compressed(&self, source: usize, j: usize, blocks: &[u32]) -> &[u8] {
        let at = self.layout.row_at(source, j, blocks);
        &self.pool[at..at + self.layout.compressed_row]
    }

    /// Index key `j` of a source, through a block table.
    pub fn key(&self, source: usize, j: usize, blocks: &[u32]) -> &[u8] {
        let at = self.layout.key_at(source, j, blocks);
        &self.pool[at..at + self.layout.index_key]
    }

    /// Compressed row and index key `j` of a source, to write.
    pub fn pair_mut(&mut self, source: usize, j: usize, blocks: &[u32]) -> (&mut [u8], &mut [u8]) {
        let l = &self.layout;
        let (row, key) = (l.row_at(source, j, blocks), l.key_at(source, j, blocks));
        // A block's keys lie behind its rows.
        let (rows, keys) = self.pool.split_at_mut(key);
        (&mut rows[row..row + l.compressed_row], &mut keys[..l.index_key])
    }

    /// Takes the kept rows of a span: window rows, and the raw rows of the groups left open.
    pub fn keep(&mut self, new: &NewRows<'_>, computed_from: &[usize]) {
        let Layout { window, window_row, head_dim, .. } = self.layout;
        for (layer, (packed, &from)) in new.window_rows.iter().zip(computed_from).enumerate() {
            // `from` counts rows of the batch; older rows than a window are overwritten anyway.
            let oldest = new.rows.saturating_sub(window).max(from.saturating_sub(new.first));
            for i in oldest..new.rows {
                let at = (new.first + i) * window_row;
                let row = &packed[at..at + window_row];
                self.set_ring_row(new.slot, layer, new.start + i, row);
            }
        }
        let length = new.start + new.rows;
        for (source, raw) in self.layout.sources.iter().zip(new.raw) {
            let (kv, gate) = raw.split_at(raw.len() / 2);
            let open = &mut self.slots[new.slot].open[source.open..];
            let group = length - length % source.ratio;
            for position in group.max(new.start)..length {
                let from = (new.first + position - new.start) * head_dim;
                let to = position % source.ratio * 2 * head_dim;
                open[to..to + head_dim].copy_from_slice(&kv[from..from + head_dim]);
                open[to + head_dim..to + 2 * head_dim]
                    .copy_from_slice(&gate[from..from + head_dim]);
            }
        }
    }

    /// Appends kept token ids to what an Engram looks back to.
    pub fn remember(&mut self, slot: usize, tokens: impl Iterator<Item = u32>) {
        let recent = &mut self.slots[slot].recent;
        for token in tokens {
            if recent.len() == self.layout.recent {
                if recent.is_empty() {
                    return;
                }
                recent.remove(0);
            }
            recent.push(token);
        }
    }

    /// Makes a slot's state a fresh one's.
    pub fn reset(&mut self, slot: usize) {
        let s = &mut self.slots[slot];
        s.rings.fill(0);
        s.open.fill(0.0);
        s.recent.clear();
    }

    /// Copies a block over another.
    pub fn copy_block(&mut self, from: u32, to: u32) {
        let (from, size) = (from as usize * self.layout.block, self.layout.block);
        self.pool.copy_within(from..from + size, to as usize * size);
    }

    /// Appends what a slot holds outside the pool: rings, open groups, then the token ids.
    pub fn read_slot(&self, slot: usize, out: &mut Vec<u8>) {
        let s = &self.slots[slot];
        out.extend_from_slice(&s.rings);
        out.extend(s.open.iter().flat_map(|v| v.to_le_bytes()));
        out.extend(s.recent.iter().flat_map(|id| id.to_le_bytes()));
    }

    /// Takes what [`State::read_slot`] gave; `false`, and nothing is changed, where other bytes come.
    /// `vocab` bounds the token ids.
    pub fn write_slot(&mut self, slot: usize, bytes: &[u8], vocab: usize) -> bool {
        let (rings, open) = (self.layout.ring_bytes(), self.layout.open_values());
        let Some((rings, rest)) = bytes.split_at_checked(rings) else { return false };
        let Some((open, recent)) = rest.split_at_checked(4 * open) else { return false };
        let (ids, tail) = recent.as_chunks();
        let id = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let known = ids.iter().all(|bytes| (id(bytes) as usize) < vocab);
        if !tail.is_empty() || ids.len() > self.layout.recent || !known {
            return false;
        }
        let s = &mut self.slots[slot];
        s.rings.copy_from_slice(rings);
        for (value, bytes) in s.open.iter_mut().zip(open.as_chunks().0) {
            *value = f32::from_le_bytes(*bytes);
        }
        s.recent.clear();
        s.recent.extend(ids.iter().map(id));
        true
    }

    /// Bytes of the rows and keys that `length` positions have closed.
    pub fn rows_bytes(&self, length: usize) -> usize {
        let pair = self.layout.compressed_row + self.layout.index_key;
        self.layout.sources.iter().map(|source| length / source.ratio * pair).sum()
    }

    /// Appends the rows and keys that `length` positions have closed.
    pub fn read_rows(&self, length: usize, blocks: &[u32], out: &mut Vec<u8>) {
        for (i, source) in self.layout.sources.iter().enumerate() {
            for j in 0..length / source.ratio {
                out.extend_from_slice(self.compressed(i, j, blocks));
                out.extend_from_slice(self.key(i, j, blocks));
            }
        }
    }

    /// Stores what [`State::read_rows`] gave; the caller has checked the size.
    pub fn write_rows(&mut self, length: usize, blocks: &[u32], bytes: &[u8]) {
        let (row, key) = (self.layout.compressed_row, self.layout.index_key);
        let mut pairs = bytes.chunks_exact(row + key);
        for i in 0..self.layout.sources.len() {
            for (j, pair) in (0..length / self.layout.sources[i].ratio).zip(&mut pairs) {
                let (to_row, to_key) = self.pair_mut(i, j, blocks);
                to_row.copy_from_slice(&pair[..row]);
                to_key.copy_from_slice(&pair[row..]);
            }
        }
    }

    /// Appends the bytes of a slot's state of `length` positions.
    pub fn read(&self, slot: usize, length: usize, blocks: &[u32], out: &mut Vec<u8>) {
        let s = &self.slots[slot];
        for layer in 0..self.layout.rings {
            for position in length.saturating_sub(self.layout.window)..length {
                out.extend_from_slice(self.ring_row(slot, layer, position));
            }
        }
        for (i, source) in self.layout.sources.iter().enumerate() {
            let (closed, width) = (length / source.ratio, 2 * self.layout.head_dim);
            let raw = &s.open[source.open..][..(length % source.ratio) * width];
            out.extend(raw.iter().flat_map(|v| v.to_le_bytes()));
            for j in 0..closed {
                out.extend_from_slice(self.compressed(i, j, blocks));
                out.extend_from_slice(self.key(i, j, blocks));
            }
        }
        out.extend(s.recent.iter().flat_map(|id| id.to_le_bytes()));
    }
}

impl Layout {
    fn ring_at(&self, layer: usize, position: usize) -> std::ops::Range<usize> {
        let at = (layer * self.window + position % self.window) * self.window_row;
        at..at + self.window_row
    }

    fn row_at(&self, source: usize, j: usize, blocks: &[u32]) -> usize {
        let (s, per_block) = (&self.sources[source], BLOCK_POSITIONS / self.sources[source].ratio);
        blocks[j / per_block] as usize * self.block + s.rows + (j % per_block) * self.compressed_row
    }

    fn key_at(&self, source: usize, j: usize, blocks: &[u32]) -> usize {
        let (s, per_block) = (&self.sources[source], BLOCK_POSITIONS / self.sources[source].ratio);
        blocks[j / per_block] as usize * self.block + s.keys + (j % per_block) * self.index_key
    }
}

#[cfg(test)]
mod tests;
