//! A list of launches, made to be filled again and again without allocating.

use std::ops::Range;

use crate::args::Args;
use crate::device::{Gather, Launch};
use crate::manifest::Kernel;

/// Launches in order, with the bytes of their arguments.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    entries: Vec<Entry>,
    args: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Entry {
    Launch { kernel: &'static Kernel, args: Range<usize>, grid: [u32; 2] },
    Gather(Gather),
}

/// What a list has a device do.
#[derive(Debug, Clone, Copy)]
pub enum Work<'a> {
    /// A kernel.
    Launch(Launch<'a>),
    /// A meeting of the devices that share a model.
    Gather(Gather),
}

impl Tape {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it empty and keeps its memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.args.clear();
    }

    /// Appends a launch. The arguments are the kernel's own struct.
    pub fn push<A: Args>(&mut self, kernel: &'static Kernel, args: &A, grid: [u32; 2]) {
        debug_assert_eq!(kernel.args, A::NAME, "{}", kernel.name);
        let start = self.args.len();
        args.put(&mut self.args);
        self.entries.push(Entry::Launch { kernel, args: start..self.args.len(), grid });
    }

    /// Appends a launch as it is.
    pub fn push_launch(&mut self, launch: &Launch<'_>) {
        let start = self.args.len();
        self.args.extend_from_slice(launch.args);
        let args = start..self.args.len();
        self.entries.push(Entry::Launch { kernel: launch.kernel, args, grid: launch.grid });
    }

    /// Appends a gather.
    pub fn push_gather(&mut self, gather: Gather) {
        self.entries.push(Entry::Gather(gather));
    }

    /// Number of launches and gathers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Everything in order.
    pub fn works(&self) -> impl Iterator<Item = Work<'_>> {
        self.entries.iter().map(|entry| match entry {
            Entry::Launch { kernel, args, grid } => {
                Work::Launch(Launch::new(kernel, &self.args[args.clone()], *grid))
            }
            Entry::Gather(gather) => Work::Gather(*gather),
        })
    }

    /// Every launch in order.
    pub fn launches(&self) -> impl Iterator<Item = Launch<'_>> {
        self.works().filter_map(|work| match work {
            Work::Launch(launch) => Some(launch),
            Work::Gather(_) => None,
        })
    }

    /// Whether other devices must come to it.
    pub fn has_gathers(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Gather(_)))
    }

    /// The launches that `wanted` says of their place and their kernel, as a tape of their own.
    pub fn part(&self, mut wanted: impl FnMut(usize, &'static Kernel) -> bool) -> Self {
        let mut part = Self::new();
        for (i, launch) in self.launches().enumerate() {
            if wanted(i, launch.kernel) {
                part.push_launch(&launch);
            }
        }
        part
    }

    /// A hash of all of it, the same for the same launches.
    pub fn hash(&self) -> u64 {
        const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(PRIME);
        let (words, rest) = self.args.as_chunks::<8>();
        let hash = words.iter().fold(PRIME, |hash, word| mix(hash, u64::from_ne_bytes(*word)));
        let hash = rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)));
        self.entries.iter().fold(hash, |hash, entry| match entry {
            Entry::Launch { kernel, grid, .. } => {
                let grid = u64::from(grid[0]) << 32 | u64::from(grid[1]);
                mix(mix(hash, std::ptr::from_ref(*kernel).addr() as u64), grid)
            }
            Entry::Gather(Gather { from, to, bytes }) => {
                mix(mix(mix(hash, *from), *to), *bytes as u64)
            }
        })
    }

    /// Whether the other has the same launches, byte for byte.
    pub fn same(&self, other: &Self) -> bool {
        let alike = |(a, b): (&Entry, &Entry)| match (a, b) {
            (
                Entry::Launch { kernel: a, args: a_args, grid: a_grid },
                Entry::Launch { kernel: b, args: b_args, grid: b_grid },
            ) => std::ptr::eq(*a, *b) && a_args == b_args && a_grid == b_grid,
            (Entry::Gather(a), Entry::Gather(b)) => a == b,
            _ => false,
        };
        self.entries.len() == other.entries.len()
            && self.args == other.args
            && self.entries.iter().zip(&other.entries).all(alike)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{AddArgs, RmsnormArgs};
    use crate::manifest::kernel;

    fn tape(width: u32, grid: u32) -> Tape {
        let mut tape = Tape::new();
        tape.push(
            kernel("rmsnorm").unwrap(),
            &RmsnormArgs { width: 3, ..Default::default() },
            [2, 1],
        );
        tape.push(kernel("add_rows").unwrap(), &AddArgs { width, ..Default::default() }, [grid, 1]);
        tape
    }

    #[test]
    fn the_same_launches_have_the_same_hash_and_others_another() {
        let one = tape(5, 6);
        assert!(one.same(&tape(5, 6)) && one.hash() == tape(5, 6).hash());
        let mut gathers = one.clone();
        gathers.push_gather(Gather { from: 1, to: 2, bytes: 3 });
        let mut further = one.clone();
        further.push_gather(Gather { from: 1, to: 2, bytes: 4 });
        assert!(gathers.has_gathers() && !one.has_gathers());
        assert!(!gathers.same(&further) && gathers.hash() != further.hash());
        for other in [tape(4, 6), tape(5, 7), one.part(|i, _| i == 0), Tape::new(), gathers] {
            assert!(!one.same(&other) && one.hash() != other.hash());
        }
    }

    #[test]
    fn launches_come_back_as_they_went_in_and_parts_keep_them() {
        let one = tape(5, 6);
        let last = one.launches().last().unwrap();
        assert_eq!((last.kernel.name, last.grid), ("add_rows", [6, 1]));
        assert_eq!(last.args, AddArgs { width: 5, ..Default::default() }.bytes());
        let part = one.part(|_, kernel| kernel.name == "add_rows");
        assert_eq!((part.len(), part.launches().next().unwrap().args), (1, last.args));
        let mut again = one.clone();
        again.clear();
        assert!(again.is_empty());
    }
}
