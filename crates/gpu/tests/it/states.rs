//! State out and in again, and schedules of all calls.

use finback_model::{ModelRunner, Runner, SnapshotId, Start, Window};
use finback_ops::{Numerics, Sampling};

use crate::load::{bits, ids, on_the_cpu, prompt, runner, step, tiny};

/// Runs the rest of a prompt that starts from a snapshot; the last row's logits and the state.
fn resumed(r: &mut ModelRunner, slot: usize, ids: &[u32], from: SnapshotId) -> (Vec<u32>, Vec<u8>) {
    r.release(slot).unwrap();
    r.start(slot, ids, ids.len() + 32, &Start { from: Some(from), ..Start::default() }).unwrap();
    while r.piece(slot, 160).unwrap() > 0 {}
    let row = r.finish(slot, Sampling::GREEDY, &[], true).unwrap().logits.unwrap();
    (bits(&[row]).remove(0), r.state(slot).unwrap())
}

#[test]
fn a_kept_state_goes_on_as_the_fresh_one_does() {
    let spec = tiny(Numerics::RELEASE);
    let mut r = runner(&spec, 2);
    let (ids, kept) = (ids(32), 23);
    let want = {
        prompt(&mut r, 0, &ids, 160, 1);
        let row = r.finish(0, Sampling::GREEDY, &[], true).unwrap().logits.unwrap();
        (bits(&[row]).remove(0), r.state(0).unwrap())
    };
    prompt(&mut r, 0, &ids[..kept], 160, 1);
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let snapshot = r.save(0).unwrap();
    // What the slot does then is its own: the kept rows are not written over.
    step(&mut r, 0, 7);
    assert!(resumed(&mut r, 1, &ids, snapshot.id) == want, "resumed in another slot");
    assert!(resumed(&mut r, 0, &ids, snapshot.id) == want, "resumed in the same slot");
    let mut bytes = Vec::new();
    r.export(snapshot.id, &mut bytes).unwrap();
    r.release(0).unwrap();
    r.forget(snapshot.id).unwrap();
    let again = r.import(&ids[..kept], &bytes).unwrap();
    assert!(resumed(&mut r, 0, &ids, again.id) == want, "imported");
}

#[test]
fn states_have_the_cpus_bytes() {
    let spec = tiny(Numerics::RELEASE);
    let (mut ours, mut theirs) = (runner(&spec, 1), on_the_cpu(&spec, 1));
    let ids = ids(27);
    prompt(&mut theirs, 0, &ids, 160, 1);
    theirs.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let snapshot = theirs.save(0).unwrap();
    let mut bytes = Vec::new();
    theirs.export(snapshot.id, &mut bytes).unwrap();
    let taken = ours.import(&ids, &bytes).unwrap();
    let mut back = Vec::new();
    ours.export(taken.id, &mut back).unwrap();
    assert!(back == bytes, "out as it came in");
    let longer: Vec<u32> = ids.iter().copied().chain([8, 9]).collect();
    let start = Start { from: Some(taken.id), ..Start::default() };
    ours.start(0, &longer, 64, &start).unwrap();
    assert!(ours.state(0).unwrap() == theirs.state(0).unwrap());
}

/// Numbers that look random, the same every time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

#[test]
fn a_schedule_of_all_calls_leaves_what_single_rows_leave() {
    let spec = tiny(Numerics::RELEASE);
    let slots = 3;
    let mut r = runner(&spec, slots);
    let mut draw = Draw(12);
    // What each slot has kept so far.
    let mut streams: Vec<Vec<u32>> = vec![Vec::new(); slots];
    let mut snapshots: Vec<(Vec<u32>, SnapshotId)> = Vec::new();
    for _ in 0..16 {
        let slot = draw.below(slots);
        match draw.below(4) {
            // A prompt, from a kept state where there is one.
            0 => {
                let from = snapshots.last().cloned();
                let mut prompt = from.as_ref().map_or(Vec::new(), |(ids, _)| ids.clone());
                let more = 2 + draw.below(14);
                prompt.extend((0..more).map(|_| draw.below(60) as u32 + 3));
                r.release(slot).unwrap();
                let start = Start { from: from.map(|f| f.1), ..Start::default() };
                r.start(slot, &prompt, 200, &start).unwrap();
                let piece = 1 + draw.below(9);
                while r.piece(slot, piece).unwrap() > 0 {}
                r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
                streams[slot] = prompt;
            }
            // Windows of every stream that runs, of which a part is kept.
            1 | 2 => {
                let running: Vec<usize> = (0..slots).filter(|&s| !streams[s].is_empty()).collect();
                let tokens: Vec<Vec<u32>> = running
                    .iter()
                    .map(|_| (0..1 + draw.below(5)).map(|_| draw.below(60) as u32 + 3).collect())
                    .collect();
                let windows: Vec<Window<'_>> = running
                    .iter()
                    .zip(&tokens)
                    .map(|(&slot, tokens)| Window {
                        slot,
                        tokens,
                        sampling: Sampling::GREEDY,
                        adjust: &[],
                        logits: false,
                    })
                    .collect();
                r.windows(&windows).unwrap();
                for (&slot, tokens) in running.iter().zip(&tokens) {
                    let rows = draw.below(tokens.len() + 1);
                    r.keep(slot, rows).unwrap();
                    streams[slot].extend_from_slice(&tokens[..rows]);
                }
            }
            _ if !streams[slot].is_empty() && streams[slot].len() < 60 => {
                let kept = r.save(slot).unwrap();
                snapshots.push((streams[slot].clone(), kept.id));
            }
            _ => {}
        }
    }
    let mut alone = runner(&spec, 1);
    let mut compared = 0;
    for (slot, stream) in streams.iter().enumerate().filter(|(_, s)| !s.is_empty()) {
        prompt(&mut alone, 0, &stream[..1], 160, 1);
        alone.finish(0, Sampling::GREEDY, &[], false).unwrap();
        for &id in &stream[1..] {
            step(&mut alone, 0, id);
        }
        assert!(alone.state(0).unwrap() == r.state(slot).unwrap(), "slot {slot}");
        compared += stream.len();
    }
    assert!(compared > 15 && !snapshots.is_empty(), "{compared} rows");
}
