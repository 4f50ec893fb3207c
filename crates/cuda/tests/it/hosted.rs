//! Experts that stay in the mapped checkpoint, which the driver locks and the device reads: the bits of
//! those on the device.

use std::sync::Arc;

use finback_gpu::{ExpertsOn, GpuOps, Setup};
use finback_model::synth::{SynthOptions, Vocabulary, write};
use finback_model::{ModelRunner, Runner, Window};
use finback_ops::{ModelSpec, Numerics, Sampling};

use crate::load::{device, limits, prompt, spec_of, step};

const VOCAB: usize = 512;

/// Experts whose linears all run as tiles.
fn spec(numerics: Numerics) -> Arc<ModelSpec> {
    let dir = finback_testkit::temp_dir();
    let options = SynthOptions {
        seed: 6,
        hidden: 512,
        heads: 4,
        head_dim: 64,
        q_rank: 64,
        experts: 16,
        experts_per_token: 4,
        intermediate: 256,
        ..SynthOptions::default()
    };
    write(dir.path(), &options, &Vocabulary::bare(VOCAB)).unwrap();
    spec_of(dir.path(), numerics)
}

fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * i * 7 + i * 13 + i / 9 + 5) % (VOCAB as u32 - 4) + 3).collect()
}

/// Logits, tokens and states of a piece of forty rows, rounds of one row, which are replayed from the
/// third on, and one of six.
fn outcome(spec: &Arc<ModelSpec>, experts: ExpertsOn) -> (Vec<Vec<u32>>, Vec<u32>, Vec<u8>) {
    let setup = Setup { experts, ..Setup::default() };
    let ops = GpuOps::with(spec.clone(), limits(1), setup, device(), &mut |_| ()).unwrap();
    let mut r = ModelRunner::new(Box::new(ops), spec.clone());
    let ids = ids(46);
    let mut rows = prompt(&mut r, 0, &ids[..40], 40, 3);
    let mut tokens = vec![r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap()];
    for _ in 0..16 {
        let choice = step(&mut r, 0, tokens[tokens.len() - 1]);
        rows.extend(choice.logits);
        tokens.push(choice.token.unwrap());
    }
    let (sampling, six) = (Sampling::GREEDY, &ids[40..]);
    let window = Window { slot: 0, tokens: six, sampling, adjust: &[], logits: true };
    let choices = r.windows(&[window]).unwrap().remove(0);
    rows.extend(choices.into_iter().filter_map(|choice| choice.logits));
    r.keep(0, 6).unwrap();
    let bits = rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect();
    (bits, tokens, r.state(0).unwrap())
}

#[test]
fn experts_on_the_host_have_the_bits_of_those_on_the_device() {
    drop(device());
    for numerics in [Numerics::RELEASE, Numerics::PLAIN] {
        let spec = spec(numerics);
        let resident = outcome(&spec, ExpertsOn::Device);
        // All at once, and a few at a time.
        for experts in [ExpertsOn::HOST, ExpertsOn::Host { scratch: 1 << 20 }] {
            assert!(outcome(&spec, experts) == resident, "{numerics:?} {experts:?}");
        }
    }
}
