//! The prefix cache: which states are kept, which one a prompt starts from, which one goes.

mod disk;
mod tree;

use finback_model::{Snapshot, SnapshotId};

pub use disk::DiskOptions;
#[cfg(feature = "testing")]
pub use disk::reread_prefix;
pub(crate) use disk::{Disk, DiskCounts, Reading};
use tree::{NodeId, Tree};

/// Waiting requests whose best prefix is spared.
pub(crate) const SPARED: usize = 16;

/// What was known of a prompt when it began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Tokens at its beginning that were restored instead of run.
    pub restored: usize,
    /// Tokens at its beginning that kept prefixes have too: at this index it first differs.
    pub matched: usize,
    /// Ends of the kept prefixes along those tokens, the longest [`Prefix::SHOWN`] of them.
    pub kept: Vec<usize>,
}

impl Prefix {
    /// Ends that are named.
    pub const SHOWN: usize = 8;
}

/// A kept state and what it is worth.
#[derive(Debug)]
struct Entry {
    snapshot: Snapshot,
    /// Prompts that started from it.
    hits: u64,
    /// [`PrefixCache::floor`] when it was last of use.
    floor: u64,
}

/// Kept states by the tokens they hold.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    tree: Tree<Entry>,
    /// Bytes that snapshots and their tokens may take outside the pool; 0 keeps nothing.
    limit: usize,
    bytes: usize,
    entries: usize,
    /// Worth of the last entry that was dropped: what is of use later starts above it, so that what
    /// once was of much use does not stay for ever.
    floor: u64,
}

/// Where a prompt may start.
#[derive(Debug, Default)]
pub(crate) struct Found {
    node: NodeId,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) prefix: Prefix,
}

impl Found {
    /// Where it is in the cache.
    pub(crate) fn node(&self) -> Option<NodeId> {
        self.snapshot.map(|_| self.node)
    }
}

impl PrefixCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self { tree: Tree::new(), limit, bytes: 0, entries: 0, floor: 0 }
    }

    /// Whether anything is ever kept.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// Kept states, and the bytes they take outside the pool.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.entries, self.bytes + 4 * self.tree.ids())
    }

    /// The longest kept prefix that `prompt` may start from.
    pub(crate) fn find(&self, prompt: &[u32]) -> Found {
        let walk = self.tree.walk(prompt);
        let snapshots =
            || walk.values.iter().filter_map(|&n| Some((n, self.tree.get(n)?.snapshot)));
        let best = snapshots().rfind(|(_, s)| s.serves(prompt.len()));
        let ends: Vec<usize> = snapshots().map(|(_, snapshot)| snapshot.at).collect();
        let prefix = Prefix {
            restored: best.map_or(0, |(_, snapshot)| snapshot.at),
            matched: walk.matched,
            kept: ends[ends.len().saturating_sub(Prefix::SHOWN)..].to_vec(),
        };
        let (node, snapshot) = best.map_or((0, None), |(node, snapshot)| (node, Some(snapshot)));
        Found { node, snapshot, prefix }
    }

    /// Counts a prompt that started from what was found.
    pub(crate) fn used(&mut self, found: &Found) {
        let floor = self.floor;
        if let (Some(_), Some(entry)) = (found.snapshot, self.tree.get_mut(found.node)) {
            entry.hits += 1;
            entry.floor = floor;
        }
    }

    /// Whether a state of these tokens is kept that serves all that one with this `least` would.
    pub(crate) fn has(&self, ids: &[u32], exact: bool) -> bool {
        let walk = self.tree.walk(ids);
        let last = walk.values.last().and_then(|&node| self.tree.get(node));
        last.is_some_and(|entry| {
            let Snapshot { at, least, exact: own, .. } = entry.snapshot;
            at == ids.len() && least <= at && own >= exact
        })
    }

    /// Keeps a state of `ids`. What must be forgotten for it comes back, itself where it is too
    /// large; `spared` nodes stay.
    pub(crate) fn insert(
        &mut self,
        ids: &[u32],
        snapshot: Snapshot,
        spared: &[NodeId],
    ) -> Vec<SnapshotId> {
        let entry = Entry { snapshot, hits: 0, floor: self.floor };
        let (node, before) = self.tree.insert(ids, entry);
        self.bytes += snapshot.bytes;
        self.entries += 1;
        let mut gone = Vec::new();
        if let Some(before) = before {
            self.bytes -= before.snapshot.bytes;
            self.entries -= 1;
            gone.push(before.snapshot.id);
            if let Some(entry) = self.tree.get_mut(node) {
                entry.hits = before.hits;
            }
        }
        while self.size().1 > self.limit {
            // It is dropped too where everything else is spared.
            let dropped = self.drop_one(spared).or_else(|| self.drop_one(&[]));
            let Some(dropped) = dropped else { break };
            gone.push(dropped);
        }
        gone
    }

    /// Drops the entry of the least worth but those in `spared`.
    pub(crate) fn drop_one(&mut self, spared: &[NodeId]) -> Option<SnapshotId> {
        let nodes = self.tree.values().filter(|(node, _)| !spared.contains(node));
        let (worth, node) = nodes.map(|(node, entry)| (self.worth(node, entry), node)).min()?;
        self.floor = self.floor.max(worth);
        self.take(node)
    }

    /// Drops the entries whose snapshots `stays` does not name.
    fn retain(&mut self, stays: impl Fn(SnapshotId) -> bool) {
        let gone = self.tree.values().filter(|(_, entry)| !stays(entry.snapshot.id));
        let gone: Vec<NodeId> = gone.map(|(node, _)| node).collect();
        for node in gone {
            self.take(node);
        }
    }

    /// Drops what was found.
    pub(crate) fn drop_found(&mut self, found: &Found) -> Option<SnapshotId> {
        found.node().and_then(|node| self.take(node))
    }

    /// The nodes that these prompts would start from.
    pub(crate) fn wanted<'a>(&self, prompts: impl Iterator<Item = &'a [u32]>) -> Vec<NodeId> {
        let found = prompts.take(SPARED).map(|prompt| self.find(prompt));
        found.filter_map(|found| found.node()).collect()
    }

    fn take(&mut self, node: NodeId) -> Option<SnapshotId> {
        let entry = self.tree.remove(node)?;
        self.bytes -= entry.snapshot.bytes;
        self.entries -= 1;
        Some(entry.snapshot.id)
    }

    /// Reuse times the rows it saves over the next shorter one.
    fn worth(&self, node: NodeId, entry: &Entry) -> u64 {
        let shorter = self.tree.above(node).map_or(0, |above| above.snapshot.at);
        entry.floor + (1 + entry.hits) * (entry.snapshot.at - shorter) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(id: SnapshotId, at: usize) -> Snapshot {
        Snapshot { id, at, least: at, exact: false, bytes: 1000 }
    }

    fn ids(first: u32, count: usize) -> Vec<u32> {
        (first..).take(count).collect()
    }

    /// Room for `entries` states and their tokens.
    fn cache(entries: usize) -> PrefixCache {
        PrefixCache::new(entries * 1000 + 999)
    }

    #[test]
    fn a_prompt_starts_from_the_longest_prefix_that_serves_it() {
        let mut cache = cache(9);
        assert!(cache.insert(&ids(0, 10), snapshot(1, 10), &[]).is_empty());
        let early = Snapshot { least: 50, ..snapshot(2, 20) };
        assert!(cache.insert(&ids(0, 20), early, &[]).is_empty());
        let found = cache.find(&ids(0, 40));
        assert_eq!(found.snapshot.map(|s| s.id), Some(1));
        assert_eq!(found.prefix, Prefix { restored: 10, matched: 20, kept: vec![10, 20] });
        assert_eq!(cache.find(&ids(0, 50)).prefix.restored, 20);
        // At its very end there is no row left to choose from.
        assert_eq!(cache.find(&ids(0, 10)).prefix.restored, 0);
        let exact = Snapshot { exact: true, ..snapshot(3, 10) };
        assert_eq!(cache.insert(&ids(0, 10), exact, &[]), [1]);
        assert_eq!(cache.find(&ids(0, 10)).prefix.restored, 10);
        let other = cache.find(&ids(7, 10));
        assert_eq!((other.snapshot, other.prefix), (None, Prefix::default()));
    }

    #[test]
    fn what_is_reused_outlives_what_is_long_and_what_is_wanted_stays() {
        let mut cache = cache(2);
        cache.insert(&ids(0, 30), snapshot(1, 30), &[]);
        for _ in 0..3 {
            cache.used(&cache.find(&ids(0, 31)));
        }
        cache.insert(&ids(100, 90), snapshot(2, 90), &[]);
        assert_eq!(cache.insert(&ids(300, 50), snapshot(3, 50), &[]), [3]);
        let wanted = cache.wanted([&ids(300, 60)[..], &ids(100, 91)].into_iter());
        assert_eq!(wanted.len(), 1);
        assert_eq!(cache.insert(&ids(400, 50), snapshot(4, 50), &wanted), [4]);
        assert_eq!(cache.drop_one(&wanted), Some(1));
        assert_eq!(cache.drop_one(&wanted), None);
        assert_eq!(cache.drop_one(&[]), Some(2));
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn what_was_of_use_long_ago_goes_at_last() {
        let mut cache = cache(2);
        cache.insert(&ids(0, 30), snapshot(0, 30), &[]);
        cache.used(&cache.find(&ids(0, 31)));
        let gone: Vec<SnapshotId> = (1..20)
            .flat_map(|n| cache.insert(&ids(1000 * n as u32, 20), snapshot(n, 20), &[]))
            .collect();
        assert!(gone.contains(&0), "{gone:?}");
    }
}
