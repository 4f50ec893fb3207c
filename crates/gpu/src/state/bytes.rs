//! A slot's state as bytes, the same as the CPU backend's.

use finback_ops::{OpsError, OpsResult};

use super::{Source, State};
use crate::queue::Queue;

impl State {
    /// Appends what a slot holds outside the pool: rings, open groups, then the token ids.
    pub fn read_slot(&self, queue: &mut Queue, slot: usize, out: &mut Vec<u8>) -> OpsResult {
        for layer in 0..self.rings {
            append(queue, self.ring_of(layer, slot), self.window * self.ring.width as usize, out)?;
        }
        for (at, bytes) in self.opens(slot) {
            append(queue, at, bytes as usize, out)?;
        }
        out.extend(self.recent[slot].iter().flat_map(|id| id.to_le_bytes()));
        Ok(())
    }

    /// Takes what [`State::read_slot`] gave; `false`, and nothing is changed, where other bytes come.
    /// `vocab` bounds the token ids.
    pub fn write_slot(
        &mut self,
        queue: &mut Queue,
        slot: usize,
        bytes: &[u8],
        vocab: usize,
    ) -> Result<bool, OpsError> {
        let ring = self.window * self.ring.width as usize;
        let opens: Vec<(u64, u64)> = self.opens(slot).collect();
        let open: u64 = opens.iter().map(|open| open.1).sum();
        let Some((rings, rest)) = bytes.split_at_checked(self.rings * ring) else {
            return Ok(false);
        };
        let Some((mut open, recent)) = rest.split_at_checked(open as usize) else {
            return Ok(false);
        };
        let (ids, tail) = recent.as_chunks();
        let ids: Vec<u32> = ids.iter().map(|id| u32::from_le_bytes(*id)).collect();
        let known = ids.iter().all(|&id| (id as usize) < vocab);
        if !tail.is_empty() || ids.len() > self.look_back || !known {
            return Ok(false);
        }
        queue.flush()?;
        for (layer, rows) in rings.chunks_exact(ring).enumerate() {
            queue.write(self.ring_of(layer, slot), rows)?;
        }
        for (at, bytes) in opens {
            let (own, others) = open.split_at(bytes as usize);
            queue.write(at, own)?;
            open = others;
        }
        self.recent[slot] = ids;
        Ok(true)
    }

    /// Bytes of the rows and keys that `length` positions have closed.
    pub fn rows_bytes(&self, length: usize) -> usize {
        let pair = self.packed.row + self.packed.key;
        self.sources.iter().map(|source| length / source.ratio * pair).sum()
    }

    /// Appends the rows and keys that `length` positions have closed.
    pub fn read_rows(
        &self,
        queue: &mut Queue,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult {
        for source in &self.sources {
            self.read_source(queue, source, length, blocks, out)?;
        }
        Ok(())
    }

    fn read_source(
        &self,
        queue: &mut Queue,
        source: &Source,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult {
        let (mut rows, mut keys) = (Vec::new(), Vec::new());
        for (block, count) in parts(source, length, blocks) {
            rows.clear();
            keys.clear();
            append(queue, source.rows.row(block), count * self.packed.row, &mut rows)?;
            append(queue, source.keys.row(block), count * self.packed.key, &mut keys)?;
            let rows = rows.chunks_exact(self.packed.row);
            for (row, key) in rows.zip(keys.chunks_exact(self.packed.key)) {
                out.extend_from_slice(row);
                out.extend_from_slice(key);
            }
        }
        Ok(())
    }

    /// Stores what [`State::read_rows`] gave; the caller has checked the size.
    pub fn write_rows(
        &self,
        queue: &mut Queue,
        length: usize,
        blocks: &[u32],
        bytes: &[u8],
    ) -> OpsResult {
        queue.flush()?;
        let (row, key) = (self.packed.row, self.packed.key);
        let mut rest = bytes;
        for source in &self.sources {
            for (block, count) in parts(source, length, blocks) {
                let (own, others) = rest.split_at(count * (row + key));
                rest = others;
                let pairs = || own.chunks_exact(row + key);
                let rows: Vec<u8> = pairs().flat_map(|pair| pair[..row].iter().copied()).collect();
                let keys: Vec<u8> = pairs().flat_map(|pair| pair[row..].iter().copied()).collect();
                queue.write(source.rows.row(block), &rows)?;
                queue.write(source.keys.row(block), &keys)?;
            }
        }
        Ok(())
    }

    /// Appends the bytes of a slot's state of `length` positions.
    pub fn read(
        &self,
        queue: &mut Queue,
        slot: usize,
        length: usize,
        blocks: &[u32],
        out: &mut Vec<u8>,
    ) -> OpsResult {
        let width = self.ring.width as usize;
        let mut ring = Vec::new();
        for layer in 0..self.rings {
            ring.clear();
            append(queue, self.ring_of(layer, slot), self.window * width, &mut ring)?;
            for position in length.saturating_sub(self.window)..length {
                let at = position % self.window * width;
                out.extend_from_slice(&ring[at..at + width]);
            }
        }
        for source in &self.sources {
            let open = length % source.ratio;
            if open > 0 {
                let at = source.raw.row(slot * (source.ratio - 1));
                append(queue, at, open * self.raw_row() as usize, out)?;
            }
            self.read_source(queue, source, length, blocks, out)?;
        }
        out.extend(self.recent[slot].iter().flat_map(|id| id.to_le_bytes()));
        Ok(())
    }
}

/// The first row of each block that `length` positions have rows in, and how many.
fn parts(source: &Source, length: usize, blocks: &[u32]) -> impl Iterator<Item = (usize, usize)> {
    let (closed, per_block) = (length / source.ratio, source.per_block);
    blocks
        .iter()
        .take(closed.div_ceil(per_block))
        .enumerate()
        .map(move |(i, &block)| (block as usize * per_block, per_block.min(closed - i * per_block)))
}

fn append(queue: &mut Queue, at: u64, bytes: usize, out: &mut Vec<u8>) -> OpsResult {
    let from = out.len();
    out.resize(from + bytes, 0);
    queue.read(at, &mut out[from..])
}
