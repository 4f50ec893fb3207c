//! Recorded lists of launches: a list that comes a second time is recorded, and replayed from then on.

use finback_kernels::tape::Tape;

/// Recordings that are kept.
const KEPT: usize = 48;
/// Lists seen once whose hashes are remembered.
const SEEN: usize = 64;

/// What to do with a list.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// Launch it plainly.
    Plain,
    /// Record it, then replay it.
    Record,
    /// Replay the recording at this place.
    Replay(usize),
}

/// The recordings, oldest use first.
#[derive(Debug)]
pub struct Graphs<G> {
    kept: Vec<(u64, Tape, G)>,
    seen: Vec<u64>,
}

impl<G> Default for Graphs<G> {
    fn default() -> Self {
        Self { kept: Vec::new(), seen: Vec::new() }
    }
}

impl<G> Graphs<G> {
    /// What to do with this list, seen now.
    pub fn turn(&mut self, tape: &Tape, hash: u64) -> Turn {
        let found = self.kept.iter().position(|(of, kept, _)| *of == hash && kept.same(tape));
        if let Some(at) = found {
            let used = self.kept.remove(at);
            self.kept.push(used);
            return Turn::Replay(self.kept.len() - 1);
        }
        if self.seen.contains(&hash) {
            self.seen.retain(|of| *of != hash);
            return Turn::Record;
        }
        if self.seen.len() == SEEN {
            self.seen.remove(0);
        }
        self.seen.push(hash);
        Turn::Plain
    }

    /// The recording that [`Turn::Replay`] named.
    pub fn at(&self, place: usize) -> Option<&G> {
        self.kept.get(place).map(|(_, _, graph)| graph)
    }

    /// Keeps a recording, in place of the one that was used longest ago where there are too many.
    pub fn keep(&mut self, tape: &Tape, hash: u64, graph: G) {
        if self.kept.len() == KEPT {
            self.kept.remove(0);
        }
        self.kept.push((hash, tape.clone(), graph));
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.seen.clear();
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use finback_kernels::args::AddArgs;
    use finback_kernels::manifest::kernel;

    fn tape(width: u32) -> Tape {
        let mut tape = Tape::new();
        tape.push(kernel("add_rows").unwrap(), &AddArgs { width, ..Default::default() }, [1, 1]);
        tape
    }

    /// Takes a list's turn as a device does; the word for it.
    fn take(graphs: &mut Graphs<u32>, width: u32) -> &'static str {
        let tape = tape(width);
        match graphs.turn(&tape, tape.hash()) {
            Turn::Plain => "plain",
            Turn::Record => {
                graphs.keep(&tape, tape.hash(), width);
                "record"
            }
            Turn::Replay(at) => {
                assert_eq!(graphs.at(at), Some(&width));
                "replay"
            }
        }
    }

    #[test]
    fn the_second_time_records_and_later_ones_replay() {
        let mut graphs = Graphs::default();
        let turns = [1, 2, 1, 1, 2, 2, 1].map(|width| take(&mut graphs, width));
        assert_eq!(turns, ["plain", "plain", "record", "replay", "record", "replay", "replay"]);
        graphs.clear();
        assert_eq!(take(&mut graphs, 1), "plain");
    }

    #[test]
    fn another_list_of_the_same_hash_is_not_replayed() {
        let mut graphs = Graphs::default();
        graphs.keep(&tape(1), 7, 1);
        assert_eq!(graphs.turn(&tape(2), 7), Turn::Plain);
    }

    #[test]
    fn the_one_used_longest_ago_makes_room() {
        let mut graphs = Graphs::default();
        for width in 0..KEPT as u32 {
            graphs.keep(&tape(width), tape(width).hash(), width);
        }
        assert_eq!(take(&mut graphs, 0), "replay");
        graphs.keep(&tape(900), 900, 900);
        let widths: Vec<u32> = graphs.kept.iter().map(|(_, _, width)| *width).collect();
        assert_eq!((widths.len(), widths[0], &widths[KEPT - 2..]), (KEPT, 2, &[0, 900][..]));
    }
}
