//! Two GPUs at the release's widths of a head, where products run on tensor cores: the bits of one.

use std::sync::Arc;

use finback_cuda::Options;
use finback_gpu::{GpuOps, Ranks, Setup};
use finback_model::{ModelRunner, Runner, Window};
use finback_ops::{ModelSpec, Sampling};

use crate::load::{devices, prompt};
use crate::wide::{ids, limits, spec};

/// One GPU, attention by the kernels that several take.
fn one(spec: &Arc<ModelSpec>) -> ModelRunner {
    let kernels = std::env::temp_dir().join("finback-test-kernels");
    let options =
        Options { kernels: Some(kernels), tensor_attention: false, every_lane_signals: false };
    let device = Box::new(finback_cuda::open(&options).unwrap());
    let ops = GpuOps::new(spec.clone(), limits(1), device, &mut |_| ()).unwrap();
    ModelRunner::new(Box::new(ops), spec.clone())
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn two_devices_have_the_bits_of_one_in_long_pieces_and_in_rounds_that_are_replayed() {
    let spec = spec();
    let Some(devices) = devices(2) else { return };
    let two = Ranks::new(&spec, limits(1), Setup::default(), devices, &mut |_| ()).unwrap();
    let two = ModelRunner::new(Box::new(two), spec.clone());
    let ids = ids(600);
    let [a, b] = [one(&spec), two].map(|mut r| {
        let mut rows = bits(&prompt(&mut r, 0, &ids, 300, 4));
        let first = r.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
        let mut tokens = vec![first];
        for rows_of_window in [1, 1, 1, 1, 6, 6, 6, 16, 16, 16, 1] {
            let mut window = vec![*tokens.last().unwrap()];
            window.extend_from_slice(&ids[..rows_of_window - 1]);
            let sampling = Sampling::GREEDY;
            let asked = Window { slot: 0, tokens: &window, sampling, adjust: &[], logits: true };
            let choices = r.windows(&[asked]).unwrap().remove(0);
            rows.extend(choices.iter().flat_map(|c| bits(&[c.logits.clone().unwrap()])));
            tokens.push(choices[0].token.unwrap());
            r.keep(0, 1).unwrap();
        }
        (rows, tokens, r.state(0).unwrap())
    });
    assert!(a.1 == b.1, "tokens {:?} and {:?}", a.1, b.1);
    assert!(a == b);
}
