//! Changed copies of good inputs, for tests that hold a parser to its word on any bytes.

use std::path::Path;

/// Calls `run` with every file of `seeds`, then with `count` changed copies of them.
///
/// Always the same copies: a failure repeats.
pub fn replay(seeds: &Path, count: usize, run: impl Fn(&[u8])) {
    let mut files: Vec<_> = std::fs::read_dir(seeds)
        .unwrap_or_else(|e| panic!("{}: {e}", seeds.display()))
        .map(|entry| super::read(&entry.expect("a directory entry").path()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{}: no seeds", seeds.display());
    files.iter().for_each(|seed| run(seed));
    let mut random = Random(0x5eed);
    for _ in 0..count {
        let mut bytes = files[random.below(files.len())].clone();
        for _ in 0..1 + random.below(3) {
            let other = &files[random.below(files.len())];
            change(&mut bytes, other, &mut random);
        }
        run(&bytes);
    }
}

/// One change of a kind that finds faults in parsers.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let some = at..(at + 1 + random.below(8)).min(bytes.len());
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(some)),
        2 => bytes.insert(at, random.next() as u8),
        3 => some.for_each(|i| bytes[i] ^= 1 << random.below(8)),
        // Digits and the signs of JSON in place of each other keep the text nearly whole.
        4 => some.for_each(|i| bytes[i] = b"0123456789-.e\",:[]{}"[random.below(20)]),
        5 => {
            let copy = bytes[some].repeat(1 + random.below(3));
            drop(bytes.splice(at..at, copy));
        }
        _ => {
            bytes.truncate(at);
            bytes.extend(&other[at.min(other.len())..]);
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
