//! Both backends on the demo model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use finback_checkpoint::Checkpoint;
use finback_cpu::simd::Isa;
use finback_model::{Config, ModelRunner, Runner, spec};
use finback_ops::{ModelSpec, Numerics, Sampling};
use finback_tokenizer::Tokenizer;

use crate::load::{device, on_the_cpu, ops, prompt, step};
use crate::noise::{Apart, with_other_last_bits};

/// Tokens of a reply at most, and the one that ends it: what would follow was never trained.
const TOKENS: usize = 50;
const END: u32 = 1;

fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo")
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_bytes(&std::fs::read(demo().join("tokenizer.json")).unwrap()).unwrap()
}

fn spec_of(checkpoint: &Path, tokenizer: &Tokenizer, numerics: Numerics) -> Arc<ModelSpec> {
    let (ck, config) = (Checkpoint::open(checkpoint).unwrap(), Config::load(checkpoint).unwrap());
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
        "How are you?",
        "Tell me a short story about a fox.",
        "What is 12 plus 30?",
        "What can you do?",
        "Write three animals as a list.",
        "Good morning!",
        "Thanks for your help.",
        "Tell me about Rust traits.",
        "Continue: one two three four",
        "Give me a JSON object with a name and an age.",
        "I am tired today.",
        "Write a poem about rain.",
        "What is your name?",
        "How do I make tea?",
        "Is 17 larger than 12?",
        "What day comes after Monday?",
        "Say goodbye.",
        "My dog is called Rex. What is my dog called?",
        "The code is 4412. What is the code?",
        "Repeat after me: blue green red",
        "Explain what a lock is.",
        "What is 9 times 7?",
        "Tell me a joke.",
        "List four fruits.",
        "What is the opposite of hot?",
        "Who wrote this?",
        "What colour is grass?",
        "Count from five to nine.",
        "Name a river and a mountain.",
        "What is a compiler?",
        "Translate water into French.",
        "Write one line of Python.",
    ]
    .iter()
    .map(|text| {
        let text = format!("<|User|>{text}<|Assistant|></think>");
        tokenizer.encode(&text, &tokenizer.special_ranges(&text)).unwrap()
    })
    .collect()
}

/// The device, and the CPU with other last bits, against the CPU along its own replies.
fn compared(tokenizer: &Tokenizer, numerics: Numerics) -> [Apart; 2] {
    let spec = spec_of(&demo(), tokenizer, numerics);
    let other = with_other_last_bits(&demo());
    let other = spec_of(other.path(), tokenizer, numerics);
    let mut others = [
        ModelRunner::new(Box::new(ops(&spec, 1, 1, Isa::detect())), spec.clone()),
        on_the_cpu(&other),
    ];
    let mut cpu = on_the_cpu(&spec);
    let mut apart = [Apart::default(), Apart::default()];
    for ids in prompts(tokenizer) {
        let begin = |r: &mut ModelRunner| {
            prompt(r, 0, &ids, 160, 1);
            r.finish(0, Sampling::GREEDY, &[], true).unwrap()
        };
        let mut choice = begin(&mut cpu);
        let mut theirs = others.each_mut().map(begin);
        for _ in 0..TOKENS {
            for (apart, theirs) in apart.iter_mut().zip(&theirs) {
                apart.add(theirs.logits.as_ref().unwrap(), choice.logits.as_ref().unwrap());
            }
            // All go on with the CPU's token, so that one difference does not make the rest differ.
            let token = choice.token.unwrap();
            if token == END {
                break;
            }
            choice = step(&mut cpu, 0, token);
            theirs = others.each_mut().map(|r| step(r, 0, token));
        }
    }
    apart
}

#[test]
fn the_demo_model_says_the_same_on_both_backends() {
    drop(device());
    let tokenizer = tokenizer();
    for numerics in [Numerics::PLAIN, Numerics::RELEASE] {
        let [device, noise] = compared(&tokenizer, numerics);
        println!("{numerics:?}: {device}; by rounding alone: {noise}");
        let same = device.choose_the_same();
        let close = numerics != Numerics::PLAIN && device.choose_as_rounding_lets(&noise);
        assert!(same || close, "{device}; by rounding alone: {noise}");
        assert!(device.is_rounding(&noise), "{device}; by rounding alone: {noise}");
    }
}
