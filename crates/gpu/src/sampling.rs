//! Tables of what tokens are chosen with: parameters, positions, and what is added to logits.

use finback_ops::{Adjust, Limits, ModelSpec, OpsError, Penalties, Sampling};

use crate::memory::Memory;
use crate::queue::Queue;

/// One row that is chosen from.
pub struct Chosen<'a> {
    /// How.
    pub sampling: Sampling,
    /// Position of the chosen token.
    pub position: usize,
    /// What is added to its logits.
    pub adds: &'a [(u32, f32)],
    /// What drafts before it in a chain cost.
    pub penalties: Penalties,
}

/// Where the parts of a table lie.
#[derive(Debug, Clone, Copy)]
pub struct Places {
    /// u64 a row.
    pub seeds: u64,
    /// u64 a row, for each link of a chain.
    pub positions: u64,
    /// Four words a row.
    pub params: u64,
    /// Where each row's additions begin, and where the last one's end.
    pub starts: u64,
    /// Presence and frequency of a row.
    pub penalties: u64,
    /// Token ids of the additions.
    pub ids: u64,
    /// Their values.
    pub adds: u64,
    /// Whether nothing is added to any row.
    pub plain: bool,
    /// Whether no row leaves tokens out.
    pub unfiltered: bool,
    /// Whether every row takes its likeliest token.
    pub greedy: bool,
}

/// Device memory for one table at a time.
pub struct Tables {
    at: u64,
    /// What logits were before something was added, by addition.
    pub saved: u64,
    /// The same for the drafts of a chain.
    pub saved_chain: u64,
    /// Additions that fit.
    most: usize,
    /// The pass whose launches read the table that is there.
    read_by: u64,
}

impl Tables {
    /// Room for every logit row, and for a row of every slot that names every token.
    pub fn new(
        spec: &ModelSpec,
        limits: &Limits,
        memory: &mut Memory<'_>,
    ) -> Result<Self, OpsError> {
        let most = limits.slots * spec.dims.vocab;
        let block = spec.drafter.as_ref().map_or(0, |drafter| drafter.block);
        let rows = limits.logit_rows.max(limits.slots);
        Ok(Self {
            at: memory.take((44 * rows + 8 * limits.slots * block + 8 * most + 64) as u64)?,
            saved: memory.take(4 * most as u64)?,
            saved_chain: memory.take((4 * limits.slots * block) as u64)?,
            most,
            read_by: u64::MAX,
        })
    }

    /// How many of the rows go into one table: those whose additions fit.
    pub fn rows_that_fit(&self, first: usize, count: usize, adjust: &Adjust) -> usize {
        let mut room = self.most;
        (first..count)
            .take_while(|&row| {
                let wanted = adjust.row(row).len();
                let fits = wanted <= room;
                room = room.saturating_sub(wanted);
                fits
            })
            .count()
            .max(1)
    }

    /// Copies a table for these rows to the device; `links` are the drafts of a chain, each at the
    /// position after the one before, or 1.
    ///
    /// # Errors
    /// More additions than fit, or the device's failure.
    pub fn write(
        &mut self,
        queue: &mut Queue,
        rows: &[Chosen<'_>],
        links: u64,
    ) -> Result<Places, OpsError> {
        let entries: usize = rows.iter().map(|row| row.adds.len()).sum();
        if entries > self.most {
            let reason = format!("{entries} additions to logits; {} fit", self.most);
            let backend = queue.name();
            return Err(OpsError::Unsupported { backend, step: "a choice", reason });
        }
        // A launch that waits may read the table that is there.
        if self.read_by == queue.pass() {
            queue.flush()?;
        }
        self.read_by = queue.pass();
        let mut bytes: Vec<u8> = Vec::new();
        let mut part = |values: &mut dyn Iterator<Item = u32>| {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let at = self.at + bytes.len() as u64;
            values.for_each(|word| bytes.extend_from_slice(&word.to_ne_bytes()));
            at
        };
        let long = |x: u64| [x as u32, (x >> 32) as u32];
        let places = Places {
            seeds: part(&mut rows.iter().flat_map(|row| long(row.sampling.seed))),
            positions: part(&mut (0..links).flat_map(|link| {
                rows.iter().flat_map(move |row| long(row.position as u64 + link))
            })),
            params: part(&mut rows.iter().flat_map(|row| {
                let Sampling { temperature, top_k, top_p, min_p, .. } = row.sampling;
                [temperature.to_bits(), top_k, top_p.to_bits(), min_p.to_bits()]
            })),
            starts: part(
                &mut (0..=rows.len())
                    .map(|end| rows[..end].iter().map(|row| row.adds.len() as u32).sum()),
            ),
            penalties: part(&mut rows.iter().flat_map(|row| {
                [row.penalties.presence.to_bits(), row.penalties.frequency.to_bits()]
            })),
            ids: part(&mut rows.iter().flat_map(|row| row.adds.iter().map(|add| add.0))),
            adds: part(&mut rows.iter().flat_map(|row| row.adds.iter().map(|add| add.1.to_bits()))),
            plain: entries == 0 && rows.iter().all(|row| row.penalties.is_none()),
            unfiltered: rows.iter().all(|row| {
                let Sampling { top_k, top_p, min_p, .. } = row.sampling;
                is_greedy(row) || (top_k == 0 && top_p >= 1.0 && min_p <= 0.0)
            }),
            greedy: rows.iter().all(is_greedy),
        };
        queue.write(self.at, &bytes)?;
        Ok(places)
    }
}

fn is_greedy(row: &Chosen<'_>) -> bool {
    row.sampling.temperature == 0.0
}
