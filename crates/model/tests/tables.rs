//! How Engram tables are mapped.
// All of it is test code, helpers included.
#![allow(clippy::unwrap_used)]

use finback_checkpoint::Checkpoint;
use finback_model::spec;
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_ops::Numerics;

/// The flags of the mapping that an address lies in, where the system tells them.
fn flags_of(address: u64) -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut inside = false;
    for line in text.lines() {
        let range = line.split_whitespace().next().and_then(|word| word.split_once('-'));
        let bounds = range.and_then(|(start, end)| {
            let number = |digits| u64::from_str_radix(digits, 16).ok();
            Some(number(start)?..number(end)?)
        });
        if let Some(bounds) = bounds {
            inside = bounds.contains(&address);
        } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| inside) {
            return Some(flags.to_owned());
        }
    }
    None
}

#[test]
fn the_system_reads_nothing_ahead_of_an_engram_row() {
    let dir = tempfile::tempdir().unwrap();
    let config = write(dir.path(), &SynthOptions::default(), &Vocabulary::bare(64)).unwrap();
    let checkpoint = Checkpoint::open(dir.path()).unwrap();
    let map = std::fs::read(dir.path().join("engram_token_map.json")).unwrap();
    let map = serde_json::from_slice(&map).unwrap();
    let spec = spec::load(&checkpoint, &config, Some(map), Numerics::RELEASE).unwrap();
    let table = spec.layers.iter().find_map(|layer| layer.engram.as_ref()).unwrap();
    let Some(flags) = flags_of(table.table.bytes().as_ptr().addr() as u64) else {
        eprintln!("skipped: this system does not say how memory is mapped");
        return;
    };
    assert!(flags.split_whitespace().any(|flag| flag == "rr"), "{flags}");
}
