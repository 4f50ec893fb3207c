//! The kernels against the CPU backend, whose sums have another order.

use finback_model::Runner;
use finback_ops::{Numerics, Sampling};

use crate::load::{ids, on_the_cpu, prompt, runner, step, tiny};

#[test]
fn logits_are_close_to_the_cpus_and_greedy_tokens_the_same() {
    for (numerics, bound) in [(Numerics::PLAIN, 1e-4), (Numerics::RELEASE, 0.05)] {
        let spec = tiny(numerics);
        let (mut ours, mut theirs) = (runner(&spec, 1), on_the_cpu(&spec, 1));
        let prompt_ids = ids(24);
        let mut worst = 0.0f32;
        let mut compare = |a: &[f32], b: &[f32]| {
            let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            worst = worst.max(far);
        };
        let a = prompt(&mut ours, 0, &prompt_ids, 160, 4);
        let b = prompt(&mut theirs, 0, &prompt_ids, 160, 4);
        a.iter().zip(&b).for_each(|(a, b)| compare(a, b));
        let mut token = ours.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
        let other = theirs.finish(0, Sampling::GREEDY, &[], false).unwrap().token.unwrap();
        assert_eq!(token, other);
        for _ in 0..4 {
            let (a, b) = (step(&mut ours, 0, token), step(&mut theirs, 0, token));
            compare(&a.logits.unwrap(), &b.logits.unwrap());
            assert_eq!(a.token, b.token);
            token = a.token.unwrap();
        }
        assert!(worst < bound, "{numerics:?}: {worst}");
    }
}
