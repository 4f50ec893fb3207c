//! A list of launches, made to be filled again and again without allocating.

use std::ops::Range;

use crate::args::Args;
use crate::device::{Gather, Launch, Place};
use crate::manifest::Kernel;

/// Launches in order, with the bytes of their arguments.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    entries: Vec<Entry>,
    args: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Entry {
    Launch { kernel: &'static Kernel, args: Range<usize>, grid: [u32; 2], place: Place },
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
        self.push_at(Place::Main, kernel, args, grid);
    }

    /// The same with its place among the others.
    pub fn push_at<A: Args>(
        &mut self,
        place: Place,
        kernel: &'static Kernel,
        args: &A,
        grid: [u32; 2],
    ) {
        debug_assert_eq!(kernel.args, A::NAME, "{}", kernel.name);
        let start = self.args.len();
        args.put(&mut self.args);
        self.entries.push(Entry::Launch { kernel, args: start..self.args.len(), grid, place });
    }

    /// Appends a launch as it is.
    pub fn push_launch(&mut self, launch: &Launch<'_>) {
        let start = self.args.len();
        self.args.extend_from_slice(launch.args);
        let args = start..self.args.len();
        let Launch { kernel, grid, place, .. } = *launch;
        self.entries.push(Entry::Launch { kernel, args, grid, place });
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
            Entry::Launch { kernel, args, grid, place } => Work::Launch(Launch {
                place: *place,
                ..Launch::new(kernel, &self.args[args.clone()], *grid)
            }),
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

    /// The launches that `wanted` says of their number and their kernel, as a tape of their own. What was
    /// behind those aside still is.
    pub fn part(&self, mut wanted: impl FnMut(usize, &'static Kernel) -> bool) -> Self {
        let mut part = Self::new();
        let mut joins = false;
        for (i, mut launch) in self.launches().enumerate() {
            joins |= launch.place == Place::Joined;
            if !wanted(i, launch.kernel) {
                continue;
            }
            if launch.place != Place::Aside && std::mem::take(&mut joins) {
                launch.place = Place::Joined;
            }
            part.push_launch(&launch);
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
            Entry::Launch { kernel, grid, place, .. } => {
                let grid = u64::from(grid[0]) << 32 | u64::from(grid[1]);
                let kernel = std::ptr::from_ref(*kernel).addr() as u64;
                mix(mix(mix(hash, kernel), grid), *place as u64)
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
                Entry::Launch { kernel: a, args: a_args, grid: a_grid, place: a_place },
                Entry::Launch { kernel: b, args: b_args, grid: b_grid, place: b_place },
            ) => std::ptr::eq(*a, *b) && a_args == b_args && a_grid == b_grid && a_place == b_place,
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
    fn a_launch_aside_is_another_list_and_a_part_waits_where_the_whole_did() {
        let at = |places: [Place; 4]| {
            let mut tape = Tape::new();
            for place in places {
                tape.push_at(place, kernel("add_rows").unwrap(), &AddArgs::default(), [1, 1]);
            }
            tape
        };
        let places = |tape: &Tape| tape.launches().map(|one| one.place).collect::<Vec<_>>();
        let (main, aside, joined) = (Place::Main, Place::Aside, Place::Joined);
        let (plain, whole) = (at([main; 4]), at([main, aside, joined, main]));
        assert!(!plain.same(&whole) && plain.hash() != whole.hash());
        assert_eq!(places(&whole), [main, aside, joined, main]);
        assert_eq!(places(&whole.part(|i, _| i != 2)), [main, aside, joined]);
        assert_eq!(places(&whole.part(|i, _| i < 2)), [main, aside]);
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
