//! A list of launches, made to be filled again and again without allocating.

use std::ops::Range;

use crate::args::Args;
use crate::device::Launch;
use crate::manifest::Kernel;

/// Launches in order, with the bytes of their arguments.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    entries: Vec<Entry>,
    args: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Entry {
    kernel: &'static Kernel,
    args: Range<usize>,
    grid: [u32; 2],
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
        self.entries.push(Entry { kernel, args: start..self.args.len(), grid });
    }

    /// Appends a launch as it is.
    pub fn push_launch(&mut self, launch: &Launch<'_>) {
        let start = self.args.len();
        self.args.extend_from_slice(launch.args);
        let args = start..self.args.len();
        self.entries.push(Entry { kernel: launch.kernel, args, grid: launch.grid });
    }

    /// Number of launches.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every launch in order.
    pub fn launches(&self) -> impl Iterator<Item = Launch<'_>> {
        self.entries
            .iter()
            .map(|entry| Launch::new(entry.kernel, &self.args[entry.args.clone()], entry.grid))
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
        self.entries.iter().fold(hash, |hash, entry| {
            let grid = u64::from(entry.grid[0]) << 32 | u64::from(entry.grid[1]);
            mix(mix(hash, std::ptr::from_ref(entry.kernel).addr() as u64), grid)
        })
    }

    /// Whether the other has the same launches, byte for byte.
    pub fn same(&self, other: &Self) -> bool {
        let alike = |(a, b): (&Entry, &Entry)| {
            std::ptr::eq(a.kernel, b.kernel) && a.args == b.args && a.grid == b.grid
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
        for other in [tape(4, 6), tape(5, 7), one.part(|i, _| i == 0), Tape::new()] {
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
