//! What slots remember, in device memory: rings, open groups, and the pool of compressed rows.
//!
//! Rings lie by layer, slot, place in the ring. A kv source has its rows and its index keys each in one
//! piece by block, with one block more than the pool's, which takes what only fills a launch up. Raw
//! rows, kv then gate, lie by source: first those of the slots' open groups, then the pass's own.

mod bytes;

use finback_kernels::args::CopyArgs;
use finback_numerics::rows::{compressed_bytes, index_key_bytes, window_bytes};
use finback_ops::{BLOCK_POSITIONS, Keep, Limits, ModelSpec, OpsError, OpsResult};

use crate::batch::{PackedBytes, SpanRows};
use crate::memory::{Buf, Memory};
use crate::products::word;
use crate::queue::{Kernels, Queue};

/// A kv source's memory.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Positions of a compressed row.
    pub ratio: usize,
    /// Compressed rows of a block.
    pub per_block: usize,
    /// Compressed rows.
    pub rows: Buf,
    /// Index keys.
    pub keys: Buf,
    /// Raw rows, kv then gate; nothing where the ratio is 1.
    pub raw: Buf,
}

/// Copies of `bytes` each, from and to places behind these addresses.
struct Copies<'a> {
    from: u64,
    to: u64,
    pairs: &'a [(u64, u64)],
    bytes: u64,
}

/// All state.
pub struct State {
    /// By kv source.
    pub sources: Vec<Source>,
    /// Bytes of packed rows.
    pub packed: PackedBytes,
    pub(super) window: usize,
    pub(super) rings: usize,
    slots: usize,
    blocks: usize,
    batch_rows: usize,
    head_dim: usize,
    /// Window rows by layer, slot and place.
    pub(super) ring: Buf,
    /// New window rows by layer and row.
    fresh: Buf,
    /// Where all raw rows begin.
    raw: u64,
    /// Zeros, as many bytes as a ring or a slot's open groups.
    zeros: u64,
    /// Where the pairs of copies lie: sources, then places, for each.
    pairs: u64,
    /// Token ids an Engram looks back to.
    pub(super) look_back: usize,
    /// The last token ids of each slot, oldest first; shorter at the start of a stream.
    pub(super) recent: Vec<Vec<u32>>,
}

impl State {
    /// Zeroed state for these limits.
    pub fn new(
        spec: &ModelSpec,
        limits: &Limits,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let (d, rings) = (&spec.dims, spec.rings());
        let packed =
            PackedBytes { row: compressed_bytes(d.head_dim), key: index_key_bytes(d.index_dim) };
        let raw_rows =
            |ratio: usize| if ratio > 1 { limits.slots * (ratio - 1) + limits.rows } else { 0 };
        let raw_width = 2 * d.head_dim;
        let all_raw: usize = spec.sources.iter().map(|source| raw_rows(source.ratio)).sum();
        let raw = memory.words(all_raw, raw_width)?;
        let (mut sources, mut before) = (Vec::new(), 0);
        for source in &spec.sources {
            let per_block = BLOCK_POSITIONS / source.ratio;
            let rows = (limits.blocks + 1) * per_block;
            sources.push(Source {
                ratio: source.ratio,
                per_block,
                rows: memory.rows(rows, packed.row)?,
                keys: memory.rows(rows, packed.key)?,
                raw: Buf { at: raw.row(before), ..raw },
            });
            before += raw_rows(source.ratio);
        }
        let row = window_bytes(d.head_dim);
        let open = spec.sources.iter().map(|s| (s.ratio - 1) * 4 * raw_width).max().unwrap_or(0);
        let kept = limits.rows.min(limits.slots * d.window) * rings;
        let open_rows: usize = spec.sources.iter().map(|s| limits.slots * (s.ratio - 1)).sum();
        let most_pairs = (kept.max(rings) + open_rows).max(BLOCK_POSITIONS);
        Ok(Self {
            window: d.window,
            rings,
            slots: limits.slots,
            blocks: limits.blocks,
            batch_rows: limits.rows,
            head_dim: d.head_dim,
            ring: memory.rows(rings * limits.slots * d.window, row)?,
            fresh: memory.rows(rings * limits.rows, row)?,
            raw: raw.at,
            zeros: memory.take((d.window * row).max(open) as u64)?,
            pairs: memory.take(16 * most_pairs as u64)?,
            look_back: spec.engram.as_ref().map_or(0, |engram| engram.ngram - 1),
            recent: vec![Vec::new(); limits.slots],
            sources,
            packed,
        })
    }

    /// The rings of a layer, by slot.
    pub fn ring(&self, layer: usize) -> u64 {
        self.ring_of(layer, 0)
    }

    /// The new window rows of a layer.
    pub fn fresh(&self, layer: usize) -> u64 {
        self.fresh.row(layer * self.batch_rows)
    }

    /// The first of the pass's own raw rows of a source.
    pub fn own_raw(&self, source: &Source) -> u64 {
        source.raw.row(self.slots * (source.ratio - 1))
    }

    /// The last token ids of a slot, oldest first.
    pub fn recent(&self, slot: usize) -> &[u32] {
        &self.recent[slot]
    }

    pub(super) fn ring_of(&self, layer: usize, slot: usize) -> u64 {
        self.ring.row((layer * self.slots + slot) * self.window)
    }

    /// Takes the kept rows of spans: window rows, the raw rows of the groups left open, ids.
    pub fn keep(
        &mut self,
        queue: &mut Queue,
        kernels: &Kernels,
        spans: &[SpanRows],
        keeps: &[Keep],
        computed_from: &[usize],
    ) -> OpsResult {
        let (mut rows, mut raws) = (Vec::new(), Vec::new());
        for keep in keeps {
            let span = &spans[keep.span];
            // Older rows than a window are overwritten anyway.
            let oldest = keep.rows.saturating_sub(self.window);
            for (layer, &from) in computed_from.iter().enumerate().take(self.rings) {
                for i in oldest.max(from.saturating_sub(span.first))..keep.rows {
                    let place = self.ring_of(layer, span.slot) - self.ring.at
                        + ((span.start + i) % self.window) as u64 * self.ring.width;
                    let row = layer * self.batch_rows + span.first + i;
                    rows.push((row as u64 * self.fresh.width, place));
                }
            }
            let length = span.start + keep.rows;
            for source in self.sources.iter().filter(|source| source.ratio > 1) {
                let own = self.own_raw(source) - self.raw;
                for position in (length - length % source.ratio).max(span.start)..length {
                    let row = span.first + position - span.start;
                    let open = span.slot * (source.ratio - 1) + position % source.ratio;
                    raws.push((
                        own + row as u64 * source.raw.width,
                        source.raw.row(open) - self.raw,
                    ));
                }
            }
        }
        let raw = Copies { from: self.raw, to: self.raw, pairs: &raws, bytes: self.raw_row() };
        let bytes = self.ring.width;
        let ring = Copies { from: self.fresh.at, to: self.ring.at, pairs: &rows, bytes };
        self.copy(queue, kernels, &[ring, raw])?;
        for keep in keeps {
            let span = &spans[keep.span];
            self.remember(span.slot, &span.tokens[..keep.rows]);
        }
        Ok(())
    }

    fn remember(&mut self, slot: usize, tokens: &[u32]) {
        let recent = &mut self.recent[slot];
        recent.extend_from_slice(tokens);
        let over = recent.len().saturating_sub(self.look_back);
        recent.drain(..over);
    }

    /// Makes copies at once.
    fn copy(&self, queue: &mut Queue, kernels: &Kernels, copies: &[Copies<'_>]) -> OpsResult {
        // The table is free once what waits has run.
        queue.flush()?;
        let table: Vec<u8> = copies
            .iter()
            .flat_map(|copies| {
                let sources = copies.pairs.iter().map(|pair| pair.0);
                sources.chain(copies.pairs.iter().map(|pair| pair.1))
            })
            .flat_map(u64::to_ne_bytes)
            .collect();
        queue.write(self.pairs, &table)?;
        let mut sources = self.pairs;
        for Copies { from, to, pairs, bytes } in copies {
            let places = sources + 8 * pairs.len() as u64;
            let args =
                CopyArgs { from: *from, sources, to: *to, places, bytes: *bytes as u32, pad: 0 };
            queue.push(kernels.copy_rows, &args, [word(pairs.len()), 1])?;
            sources = places + 8 * pairs.len() as u64;
        }
        queue.flush()
    }

    /// Makes a slot's state a fresh one's.
    pub fn reset(&mut self, queue: &mut Queue, kernels: &Kernels, slot: usize) -> OpsResult {
        self.recent[slot].clear();
        let ring = self.window as u64 * self.ring.width;
        let rings: Vec<(u64, u64)> =
            (0..self.rings).map(|layer| (0, self.ring_of(layer, slot) - self.ring.at)).collect();
        let rings = Copies { from: self.zeros, to: self.ring.at, pairs: &rings, bytes: ring };
        let opens: Vec<(u64, u64)> = self
            .opens(slot)
            .flat_map(|(at, bytes)| (0..bytes / self.raw_row()).map(move |i| (at, i)))
            .map(|(at, i)| (0, at - self.raw + i * self.raw_row()))
            .collect();
        let bytes = self.raw_row();
        let opens = Copies { from: self.zeros, to: self.raw, pairs: &opens, bytes };
        self.copy(queue, kernels, &[rings, opens])
    }

    pub(super) fn raw_row(&self) -> u64 {
        8 * self.head_dim as u64
    }

    /// Address and bytes of a slot's open groups, source after source.
    pub(super) fn opens(&self, slot: usize) -> impl Iterator<Item = (u64, u64)> {
        let row = self.raw_row();
        self.sources.iter().filter(|source| source.ratio > 1).map(move |source| {
            let rows = source.ratio - 1;
            (source.raw.row(slot * rows), rows as u64 * row)
        })
    }

    /// Copies a block over another.
    pub fn copy_block(
        &self,
        queue: &mut Queue,
        kernels: &Kernels,
        from: u32,
        to: u32,
    ) -> OpsResult {
        for source in &self.sources {
            for buf in [source.rows, source.keys] {
                // Rows are copied side by side.
                let first = |block: u32| u64::from(block) * source.per_block as u64 * buf.width;
                let row = |i: usize| i as u64 * buf.width;
                let pairs: Vec<(u64, u64)> = (0..source.per_block)
                    .map(|i| (first(from) + row(i), first(to) + row(i)))
                    .collect();
                let copies = Copies { from: buf.at, to: buf.at, pairs: &pairs, bytes: buf.width };
                self.copy(queue, kernels, &[copies])?;
            }
        }
        Ok(())
    }

    /// Blocks of the pool.
    pub fn blocks(&self) -> usize {
        self.blocks
    }
}
