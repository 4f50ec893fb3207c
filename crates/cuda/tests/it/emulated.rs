//! The device against the host's emulation of it. Products on tensor cores have sums of their own; where
//! numerics leave the dialect's kernels alone, every bit is the same.

use std::sync::Arc;

use finback_gpu::GpuOps;
use finback_kernels::device::{Device, emu};
use finback_model::{DraftRequest, ModelRunner, Runner, Window};
use finback_ops::{ModelSpec, Numerics, Penalties, Sampling};

use crate::load::{device, limits, prompt, spec_of};
use crate::shared::shareable;

/// What was seen, in order, and its bits.
type Story = Vec<(String, Vec<u32>)>;

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

fn ids(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 7 + i * 13 + seed) % 124 + 3).collect()
}

/// Prompts whole and in pieces, windows of both slots of which a part is kept, drafts, and rounds of a
/// kind that come often enough to be replayed.
fn story(spec: &Arc<ModelSpec>, device: Box<dyn Device>) -> Story {
    let ops = GpuOps::new(spec.clone(), limits(2), device, &mut |_| ()).unwrap();
    let (mut r, mut seen) = (ModelRunner::new(Box::new(ops), spec.clone()), Story::new());
    for (slot, length, piece) in [(0, 43, 7), (1, 21, 160)] {
        let rows = prompt(&mut r, slot, &ids(length, 5), piece, 8);
        let rows = rows.iter().enumerate();
        seen.extend(rows.map(|(i, row)| (format!("slot {slot}, row {i} of 8"), bits(row))));
        r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
        seen.push((format!("slot {slot}, after its prompt"), state(&mut r, slot)));
    }
    let sampling = Sampling { temperature: 1.0, seed: 9, ..Sampling::GREEDY };
    for (round, (rows, kept)) in
        [(4, 2), (4, 4), (4, 3), (4, 1), (1, 1), (1, 1), (1, 1), (6, 4)].into_iter().enumerate()
    {
        let tokens = [0, 1].map(|slot| ids(rows + slot, (round * 3 + slot) as u32));
        let window = |slot: usize| Window {
            slot,
            tokens: &tokens[slot],
            sampling,
            adjust: &[],
            logits: true,
        };
        for (slot, choices) in r.windows(&[window(0), window(1)]).unwrap().iter().enumerate() {
            for (i, choice) in choices.iter().enumerate() {
                let mut words = bits(choice.logits.as_ref().unwrap());
                words.push(choice.token.unwrap());
                seen.push((format!("round {round}, slot {slot}, row {i}"), words));
            }
        }
        for slot in [0, 1] {
            r.keep(slot, kept).unwrap();
        }
        if spec.drafter.is_some() {
            let penalties = Penalties::default();
            let request = |slot: usize| {
                let anchor = tokens[slot][0];
                DraftRequest { slot, anchor, sampling, adjust: &[], penalties }
            };
            for (slot, draft) in r.draft(&[0, 1].map(request)).unwrap().into_iter().enumerate() {
                let words = [draft.tokens, bits(&draft.confidence)].concat();
                seen.push((format!("drafts of round {round}, slot {slot}"), words));
            }
        }
    }
    for slot in [0, 1] {
        seen.push((format!("slot {slot}, at the end"), state(&mut r, slot)));
    }
    seen
}

fn state(r: &mut ModelRunner, slot: usize) -> Vec<u32> {
    r.state(slot).unwrap().into_iter().map(u32::from).collect()
}

#[test]
fn the_dialects_kernels_have_the_bits_of_their_emulation() {
    drop(device());
    let inputs = Numerics { round_inputs: true, ..Numerics::PLAIN };
    let stores = Numerics { round_inputs: false, ..Numerics::RELEASE };
    let full = finback_testkit::checkpoint("full");
    let specs = [Numerics::PLAIN, inputs, stores]
        .map(|numerics| [spec_of(&full, numerics), shareable(numerics)])
        .concat();
    // Emulation takes its time, so all of it goes on at once.
    std::thread::scope(|scope| {
        let emulated: Vec<_> =
            specs.iter().map(|spec| scope.spawn(|| story(spec, emu().unwrap()))).collect();
        for (spec, theirs) in specs.iter().zip(emulated) {
            let (ours, theirs) = (story(spec, device()), theirs.join().unwrap());
            assert_eq!(ours.len(), theirs.len());
            for ((what, a), (_, b)) in ours.iter().zip(&theirs) {
                let other = a.iter().zip(b).position(|(a, b)| a != b);
                assert!(a == b, "{:?}, {what}: other from word {other:?} on", spec.numerics);
            }
        }
    });
}
