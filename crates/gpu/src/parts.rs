//! Outputs that lie on several devices, put together on each.

use std::ops::Range;

use finback_kernels::args::JoinArgs;
use finback_kernels::device::Gather;
use finback_kernels::manifest::Kernel;
use finback_ops::{OpsError, OpsResult};

use crate::linear::{Grouped, Weight};
use crate::memory::Memory;
use crate::ops::GpuOps;
use crate::products::{Products, word};
use crate::queue::Queue;
use crate::rows::{Out, Ready};

/// Bytes of all devices' parts that one gather may bring.
const ROOM: usize = 128 << 20;

/// Words of a row that a group of `join_parts` moves.
const JOIN_WORDS: usize = 512;

/// Room for a device's own outputs, and for those of all.
#[derive(Debug, Clone, Copy)]
pub struct Parts {
    count: usize,
    join: &'static Kernel,
    own: u64,
    all: u64,
    room: usize,
}

impl Parts {
    /// Room for gathers of up to `most` bytes of `count` devices, or for turns of them; none where
    /// there is one device.
    pub fn new(
        memory: &mut Memory<'_>,
        join: &'static Kernel,
        count: usize,
        most: usize,
    ) -> Result<Self, OpsError> {
        Self::with_room(memory, join, count, most.min(ROOM))
    }

    fn with_room(
        memory: &mut Memory<'_>,
        join: &'static Kernel,
        count: usize,
        room: usize,
    ) -> Result<Self, OpsError> {
        if count == 1 {
            return Ok(Self { count, join, own: 0, all: 0, room: 0 });
        }
        let own = memory.take(room.div_ceil(count) as u64)?;
        Ok(Self { count, join, own, all: memory.take(room as u64)?, room })
    }

    /// The rows, in turns whose gathers have room; a device's part of a row has `width` words.
    pub fn turns(&self, rows: usize, width: usize) -> impl Iterator<Item = Range<usize>> {
        let turn = (self.room / (4 * width * self.count).max(1)).max(1);
        (0..rows).step_by(turn).map(move |first| first..rows.min(first + turn))
    }

    /// Where a device's own outputs of a turn may lie.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Brings `rows` rows of `width` words, which each device has at `from`, to rows of all widths at
    /// `out`, `stride` words apart.
    pub fn gather(
        &self,
        queue: &mut Queue,
        from: u64,
        (rows, width): (usize, usize),
        (out, stride): (u64, usize),
    ) -> OpsResult {
        // The parts of one row lie as they are wanted.
        if rows == 1 {
            return queue.gather(Gather { from, to: out, bytes: 4 * width });
        }
        for turn in self.turns(rows, width) {
            let bytes = 4 * turn.len() * width;
            let skip = |words: usize| (4 * turn.start * words) as u64;
            queue.gather(Gather { from: from + skip(width), to: self.all, bytes })?;
            let args = JoinArgs {
                parts: self.all,
                out: out + skip(stride),
                rows: word(turn.len()),
                count: word(self.count),
                width: word(width),
                stride: word(stride),
            };
            let groups = (self.count * width).div_ceil(JOIN_WORDS);
            queue.push(self.join, &args, [word(turn.len()), word(groups)])?;
        }
        Ok(())
    }
}

impl GpuOps {
    /// Every row times a weight of `whole` outputs, of which this device may have a part: all outputs
    /// come out.
    pub(crate) fn dense_whole(
        &mut self,
        ready: &Ready,
        weight: &Weight,
        whole: usize,
        out: Out,
    ) -> OpsResult {
        self.whole(ready, weight.out, whole, out, |products, queue, ready, out| {
            products.dense(queue, ready, weight, out)
        })
    }

    /// The same of a weight in groups.
    pub(crate) fn grouped_whole(
        &mut self,
        ready: &Ready,
        weight: &Grouped,
        whole: usize,
        out: Out,
    ) -> OpsResult {
        self.whole(ready, weight.whole.out, whole, out, |products, queue, ready, out| {
            products.grouped(queue, ready, weight, out)
        })
    }

    /// All `whole` outputs of a product that gives `width` of them here.
    fn whole(
        &mut self,
        ready: &Ready,
        width: usize,
        whole: usize,
        out: Out,
        product: impl Fn(&Products, &mut Queue, &Ready, Out) -> OpsResult,
    ) -> OpsResult {
        let (queue, parts) = (&mut self.queue, self.parts);
        if width == whole {
            return product(&self.products, queue, ready, out);
        }
        for turn in parts.turns(ready.input.rows, width) {
            let own = Out { at: parts.own(), stride: width, round: out.round };
            product(&self.products, queue, &ready.part(turn.start, turn.len()), own)?;
            let to = (out.at + (4 * turn.start * out.stride) as u64, out.stride);
            parts.gather(queue, own.at, (turn.len(), width), to)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_kernels::manifest::kernel;
    use finback_kernels::seated::emu_group;

    #[test]
    fn rows_that_do_not_fit_come_in_turns_and_one_row_as_it_lies() {
        let (count, rows, width, stride) = (2, 5, 3, 8);
        let threads: Vec<_> = emu_group(count)
            .unwrap()
            .into_iter()
            .map(|mut device| {
                std::thread::spawn(move || {
                    let rank = device.seat().unwrap().rank as u32;
                    let mut memory = Memory::Device(device.as_mut());
                    // Two rows of both parts at a time.
                    let join = kernel("join_parts").unwrap();
                    let parts = Parts::with_room(&mut memory, join, count, 50).unwrap();
                    let from = memory.words(rows, width).unwrap().at;
                    let out = memory.words(rows + 1, stride).unwrap();
                    let turns: Vec<_> = parts.turns(rows, width).collect();
                    assert_eq!(turns, [0..2, 2..4, 4..5]);
                    let mut queue = Queue::new(device);
                    let own: Vec<u8> = (0..(rows * width) as u32)
                        .flat_map(|i| (100 * (rank + 1) + i).to_ne_bytes())
                        .collect();
                    queue.write(from, &own).unwrap();
                    parts.gather(&mut queue, from, (rows, width), (out.at, stride)).unwrap();
                    let last = out.row(rows);
                    parts.gather(&mut queue, from, (1, width), (last, stride)).unwrap();
                    queue.read_words(out.at, (rows + 1) * stride).unwrap()
                })
            })
            .collect();
        let mut wanted = Vec::new();
        for row in [0, 1, 2, 3, 4, 0] {
            let part = |rank: u32| (0..3).map(move |k| 100 * (rank + 1) + 3 * row + k);
            wanted.extend(part(0).chain(part(1)).chain([0, 0]));
        }
        for thread in threads {
            assert_eq!(thread.join().unwrap(), wanted);
        }
    }
}
