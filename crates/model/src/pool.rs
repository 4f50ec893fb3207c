//! Who holds the blocks of the KV pool.
//!
//! A block has one writer: the slot that took it free, later one that found a single snapshot alone
//! holding it. Others may hold it too, to read the rows that were in it by then; the writer only adds
//! rows behind those. A slot that must write where others hold rows takes a block of its own and copies.

/// What holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// A slot, in its block table.
    Slot,
    /// A snapshot.
    Snapshot,
}

/// Blocks of a pool, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Blocks nothing holds.
    pub free: usize,
    /// Blocks that a slot holds, whatever else does.
    pub used: usize,
    /// Blocks that snapshots alone hold.
    pub kept: usize,
}

/// Counts the holders of each block.
#[derive(Debug)]
pub struct Pool {
    /// Taken from the end.
    free: Vec<u32>,
    /// Slots and snapshots that hold each block.
    holders: Vec<[u32; 2]>,
    used: usize,
}

impl Pool {
    /// A pool of free blocks; the lowest go first.
    #[must_use]
    pub fn new(blocks: usize) -> Self {
        Self { free: (0..blocks as u32).rev().collect(), holders: vec![[0; 2]; blocks], used: 0 }
    }

    /// What holds how much.
    #[must_use]
    pub fn usage(&self) -> PoolUse {
        let (free, used) = (self.free.len(), self.used);
        PoolUse { free, used, kept: self.holders.len() - free - used }
    }

    /// Takes free blocks for a slot, which may write them; `None` where there are fewer.
    pub fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        let rest = self.free.len().checked_sub(count)?;
        let mut blocks = self.free.split_off(rest);
        blocks.reverse();
        for &block in &blocks {
            self.holders[block as usize] = [1, 0];
        }
        self.used += count;
        Some(blocks)
    }

    /// Those of a snapshot's blocks that a slot may start with: the first `full`, and one behind them
    /// that nothing else holds, where it may write behind the snapshot's rows.
    #[must_use]
    pub fn usable<'a>(&self, blocks: &'a [u32], full: usize) -> &'a [u32] {
        let alone = blocks.get(full).is_some_and(|&block| self.holders[block as usize] == [0, 1]);
        &blocks[..full + usize::from(alone)]
    }

    /// One more holder of blocks that are held already.
    pub fn share(&mut self, holder: Holder, blocks: &[u32]) {
        for &block in blocks {
            let counts = &mut self.holders[block as usize];
            debug_assert!(*counts != [0; 2], "block {block} is free");
            self.used += usize::from(holder == Holder::Slot && counts[0] == 0);
            counts[holder as usize] += 1;
        }
    }

    /// One holder less; blocks that nothing holds then are free.
    pub fn give(&mut self, holder: Holder, blocks: &[u32]) {
        for &block in blocks.iter().rev() {
            let counts = &mut self.holders[block as usize];
            debug_assert!(counts[holder as usize] > 0, "block {block} has no such holder");
            counts[holder as usize] -= 1;
            self.used -= usize::from(holder == Holder::Slot && counts[0] == 0);
            if *counts == [0; 2] {
                self.free.push(block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_free_once_nothing_holds_it() {
        let mut pool = Pool::new(3);
        let a = pool.take(2).unwrap();
        assert_eq!(a, [0, 1]);
        assert_eq!(pool.take(2), None);
        pool.share(Holder::Snapshot, &a);
        pool.share(Holder::Slot, &a[..1]);
        assert_eq!(pool.usage(), PoolUse { free: 1, used: 2, kept: 0 });
        pool.give(Holder::Slot, &a);
        assert_eq!(pool.usage(), PoolUse { free: 1, used: 1, kept: 1 });
        pool.give(Holder::Snapshot, &a);
        assert_eq!(pool.usage(), PoolUse { free: 2, used: 1, kept: 0 });
        pool.give(Holder::Slot, &a[..1]);
        assert_eq!(pool.usage(), PoolUse { free: 3, used: 0, kept: 0 });
    }

    #[test]
    fn a_block_that_one_snapshot_alone_holds_gets_a_new_writer() {
        let mut pool = Pool::new(3);
        let a = pool.take(2).unwrap();
        pool.share(Holder::Snapshot, &a);
        assert_eq!(pool.usable(&a, 1), &a[..1], "its writer is there");
        pool.give(Holder::Slot, &a);
        assert_eq!(pool.usable(&a, 1), a);
        assert_eq!(pool.usable(&a, 2), a);
        pool.share(Holder::Snapshot, &a[1..]);
        assert_eq!(pool.usable(&a, 1), &a[..1], "another's rows lie behind");
        pool.give(Holder::Snapshot, &a);
        pool.give(Holder::Snapshot, &a[1..]);
        assert_eq!(pool.take(3).unwrap().len(), 3);
    }
}
