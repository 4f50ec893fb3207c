//! The release's widths of a head, of the indexer and of hyper-connections, around small layers: the
//! kernels that only such widths take, held to the row rule and to the CPU backend.

use std::sync::Arc;

use finback_cpu::simd::Isa;
use finback_cpu::{CpuOps, CpuOptions};
use finback_gpu::GpuOps;
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_model::{ModelRunner, Runner, Window};
use finback_ops::{Limits, ModelSpec, Numerics, Sampling};

use tempfile::TempDir;

use crate::load::{device, prompt, spec_of, step};
use crate::noise::{Apart, with_other_last_bits};

const VOCAB: usize = 512;
/// More positions than a query picks.
const LONG: usize = 900;

pub fn spec() -> Arc<ModelSpec> {
    spec_of(written().path(), Numerics::RELEASE)
}

fn written() -> TempDir {
    let dir = finback_testkit::temp_dir();
    let options = SynthOptions {
        seed: 3,
        hidden: 512,
        heads: 64,
        head_dim: 512,
        rope_dim: 64,
        q_rank: 128,
        o_groups: 8,
        o_rank: 64,
        window: 128,
        index_heads: 32,
        index_dim: 128,
        index_topk: 512,
        experts: 16,
        experts_per_token: 4,
        intermediate: 128,
        ..SynthOptions::default()
    };
    write(dir.path(), &options, &Vocabulary::bare(VOCAB)).unwrap();
    dir
}

pub fn limits(slots: usize) -> Limits {
    let (rows, context) = (LONG, 2048);
    Limits { slots, rows, logit_rows: ModelRunner::logit_rows(slots), context, blocks: slots * 8 }
}

fn runner(spec: &Arc<ModelSpec>, slots: usize) -> ModelRunner {
    let ops = GpuOps::new(spec.clone(), limits(slots), device(), &mut |_| ()).unwrap();
    ModelRunner::new(Box::new(ops), spec.clone())
}

pub fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 7 + i * 13 + i / 9 + 5) % (VOCAB as u32 - 4) + 3).collect()
}

/// Bits of the last rows' logits, and the state, after a prompt in pieces.
fn outcome(r: &mut ModelRunner, ids: &[u32], piece: usize) -> (Vec<Vec<u32>>, Vec<u8>) {
    let rows = prompt(r, 0, ids, piece, 4);
    let bits = rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect();
    (bits, r.state(0).unwrap())
}

#[test]
fn pieces_and_single_rows_equal_the_whole_prompt() {
    let spec = spec();
    let (mut r, ids) = (runner(&spec, 1), ids(LONG));
    let whole = outcome(&mut r, &ids, LONG);
    for piece in [5, 24, 33, 64, 129, 500] {
        assert!(outcome(&mut r, &ids, piece) == whole, "pieces of {piece}");
    }
    // As many positions as are run one by one.
    r.release(0).unwrap();
    r.begin(0, &ids[..1], LONG, 1).unwrap();
    r.piece(0, 1).unwrap();
    r.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let mut last = Vec::new();
    for &id in &ids[1..] {
        last = step(&mut r, 0, id).logits.unwrap();
    }
    let bits: Vec<u32> = last.iter().map(|x| x.to_bits()).collect();
    assert!(r.state(0).unwrap() == whole.1, "single rows: state");
    assert!(Some(&bits) == whole.0.last(), "single rows: logits");
}

#[test]
fn windows_in_company_equal_single_rows_alone() {
    let spec = spec();
    let (mut r, ids) = (runner(&spec, 3), ids(LONG));
    let start = 700;
    for slot in 0..3 {
        prompt(&mut r, slot, &ids[..start - 100 * slot], LONG, 1);
        r.finish(slot, Sampling::GREEDY, &[], false).unwrap();
    }
    let mut alone = runner(&spec, 1);
    prompt(&mut alone, 0, &ids[..start], LONG, 1);
    alone.finish(0, Sampling::GREEDY, &[], false).unwrap();
    let (mut at, mut turn) = (start, 0);
    while at + 16 < start + 120 {
        turn += 1;
        let rows = turn * 5 % 8 + 1;
        let windows: Vec<Window<'_>> = (0..3)
            .map(|slot| Window {
                slot,
                tokens: &ids[at - 100 * slot..at - 100 * slot + rows],
                sampling: Sampling::GREEDY,
                adjust: &[],
                logits: true,
            })
            .collect();
        let choices = r.windows(&windows).unwrap();
        for slot in 0..3 {
            r.keep(slot, rows).unwrap();
        }
        for (i, choice) in choices[0].iter().enumerate() {
            let want = step(&mut alone, 0, ids[at + i]).logits.unwrap();
            let got = choice.logits.as_ref().unwrap();
            let same = got.iter().zip(&want).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "row {at} + {i}");
        }
        at += rows;
    }
    assert!(r.state(0).unwrap() == alone.state(0).unwrap());
}

#[test]
fn rows_are_the_cpu_backends_but_for_rounding() {
    drop(device());
    let dir = written();
    let other = with_other_last_bits(dir.path());
    let [spec, other] = [&dir, &other].map(|dir| spec_of(dir.path(), Numerics::RELEASE));
    let on_the_cpu = |spec: &Arc<ModelSpec>| {
        let threads = std::thread::available_parallelism().unwrap().get();
        let options = CpuOptions { threads, isa: Isa::detect() };
        let cpu = CpuOps::new(spec.clone(), limits(1), options).unwrap();
        ModelRunner::new(Box::new(cpu), spec.clone())
    };
    let (ids, mut cpu) = (ids(LONG), on_the_cpu(&spec));
    let mut others = [runner(&spec, 1), on_the_cpu(&other)];
    let mut apart = [Apart::default(), Apart::default()];
    for n in [30, 300, LONG] {
        let rows = prompt(&mut cpu, 0, &ids[..n], LONG, 16);
        for (apart, r) in apart.iter_mut().zip(&mut others) {
            let theirs = prompt(r, 0, &ids[..n], LONG, 16);
            theirs.iter().zip(&rows).for_each(|(a, b)| apart.add(a, b));
        }
    }
    let [device, noise] = apart;
    println!("{device}; by rounding alone: {noise}");
    assert!(device.is_rounding(&noise), "{device}; by rounding alone: {noise}");
}
