//! Both backends on the demo model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_model::{Config, ModelRunner, Runner, spec};
use finback_ops::{ModelSpec, Numerics, Sampling};
use finback_tokenizer::Tokenizer;

use crate::load::{device, on_the_cpu, ops, prompt, step};

/// Tokens after each prompt.
const TOKENS: usize = 40;

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(&std::fs::read(demo().join("tokenizer.json")).unwrap()).unwrap()
}

fn spec_of(tokenizer: &Tokenizer, numerics: Numerics) -> Arc<ModelSpec> {
    let (ck, config) = (Checkpoint::open(&demo()).unwrap(), Config::load(&demo()).unwrap());
    let map = config.engram.as_ref().map(|_| tokenizer.engram_token_map().unwrap());
    Arc::new(spec::load(&ck, &config, map, numerics).unwrap())
}

fn prompts(tokenizer: &Tokenizer) -> Vec<Vec<u32>> {
    [
        "Hello! Who are you?",
        "What is the capital of France?",
        "Write a short list of three fruits as JSON.",
        "How many legs does a spider have, and how many do two spiders have?",
        "Tell me about the sea.",
        "My name is Ada and I live in Rome. What is my name?",
        "Why is the sky blue?",
        "Say the days of the week.",
    ]
    .iter()
    .map(|text| {
        let text = format!("<|User|>{text}<|Assistant|></think>");
        tokenizer.encode(&text, &tokenizer.special_ranges(&text)).unwrap()
    })
    .collect()
}

/// Of positions along the CPU's own replies: how many choose the same token, of how many; and how far
/// a logit is from the CPU's at most.
fn compared(spec: &Arc<ModelSpec>, prompts: &[Vec<u32>]) -> (usize, usize, f32) {
    let mut ours = ModelRunner::new(Box::new(ops(spec, 1, 1, Isa::detect())), spec.clone());
    let mut theirs = on_the_cpu(spec);
    let (mut same, mut all, mut far) = (0, 0, 0.0f32);
    for ids in prompts {
        prompt(&mut ours, 0, ids, 160, 1);
        prompt(&mut theirs, 0, ids, 160, 1);
        let finish = |r: &mut ModelRunner| r.finish(0, Sampling::GREEDY, &[], true).unwrap();
        let (mut a, mut b) = (finish(&mut ours), finish(&mut theirs));
        for _ in 0..TOKENS {
            let (own, other) = (a.logits.as_ref().unwrap(), b.logits.as_ref().unwrap());
            far = own.iter().zip(other).map(|(a, b)| (a - b).abs()).fold(far, f32::max);
            same += usize::from(a.token == b.token);
            all += 1;
            // Both go on with the CPU's token, so that one difference does not make the rest differ.
            let token = b.token.unwrap();
            (a, b) = (step(&mut ours, 0, token), step(&mut theirs, 0, token));
        }
    }
    (same, all, far)
}

#[test]
fn the_demo_model_says_the_same_on_both_backends() {
    drop(device());
    let tokenizer = tokenizer();
    let prompts = prompts(&tokenizer);
    // KV rows are FP8 and FP4 in any numerics: where sums of another order round to another code, logits
    // are far apart for a while. So the bound is on tokens, and a wide one on logits.
    for (numerics, percent) in [(Numerics::PLAIN, 100), (Numerics::RELEASE, 99)] {
        let (same, all, far) = compared(&spec_of(&tokenizer, numerics), &prompts);
        println!("{numerics:?}: {same} of {all} tokens, logits within {far}");
        assert!(100 * same >= percent * all && far < 3.0, "{same} of {all} tokens, within {far}");
    }
}
