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

/// Frames of prompts in the words that the model knows, and what goes into each.
const PROMPTS: [(&str, &[&str]); 13] = [
    (
        "{}",
        &[
            "Hello! Who are you?",
            "How are you?",
            "Good morning!",
            "Thanks for your help.",
            "I am tired today.",
            "What can you do?",
            "What is your name?",
            "Say goodbye.",
            "Tell me a joke.",
            "Why is the sky blue?",
            "What colour is grass?",
            "Say the days of the week.",
            "Who wrote this?",
            "How many legs does a spider have, and how many do two spiders have?",
            "Continue: one two three four",
            "Count from five to nine.",
            "Name a river and a mountain.",
            "Write one line of Python.",
            "Write a short list of three fruits as JSON.",
            "Translate water into French.",
        ],
    ),
    (
        "Tell me about {}.",
        &[
            "the sea",
            "Rust traits",
            "the moon",
            "bread",
            "Paris",
            "dogs",
            "the weather",
            "music",
            "trains",
            "your day",
            "winter",
            "computers",
            "horses",
            "the sun",
            "chess",
        ],
    ),
    (
        "What is the capital of {}?",
        &[
            "France", "Italy", "Spain", "Japan", "Norway", "Egypt", "Peru", "Canada", "Kenya",
            "Poland", "Greece", "India", "Chile", "Sweden", "Portugal",
        ],
    ),
    (
        "What is {}?",
        &[
            "12 plus 30",
            "9 times 7",
            "45 minus 18",
            "7 plus 8",
            "100 plus 250",
            "6 times 6",
            "81 minus 9",
            "half of twenty",
            "3 plus 4 plus 5",
            "14 plus 77",
            "a compiler",
            "a lock",
            "a noun",
            "the opposite of hot",
            "the opposite of large",
            "an island",
            "a triangle",
            "the largest animal",
            "your favourite colour",
            "a deadlock",
        ],
    ),
    ("Is {}?", &["17 larger than 12", "8 larger than 21", "5 an even number", "the sun a star"]),
    (
        "What comes after {}?",
        &["Monday", "Friday", "June", "nineteen", "the letter d", "December", "winter"],
    ),
    (
        "My name is {}. What is my name, and where do I live?",
        &[
            "Ada and I live in Rome",
            "Omar and I live in Cairo",
            "Lena and I live in Oslo",
            "Ivan and I live in Sofia",
            "Mia and I live in Madrid",
            "Noah and I live in Dublin",
        ],
    ),
    (
        "My {}?",
        &[
            "dog is called Rex. What is my dog called",
            "cat is called Luna. What is my cat called",
            "key is in the blue box. Where is my key",
            "train leaves at nine. When does my train leave",
            "sister works in a bank. Where does my sister work",
            "favourite colour is green. What is my favourite colour",
        ],
    ),
    (
        "The code is {}. What is the code?",
        &["4412", "9071", "358", "20264", "7", "blue-19", "A-77", "60300"],
    ),
    (
        "Repeat after me: {}",
        &["blue green red", "one small step", "salt and pepper", "the old house", "up down up"],
    ),
    (
        "List {}.",
        &[
            "four fruits",
            "three animals",
            "three colours",
            "five cities",
            "two rivers",
            "three tools",
            "four vegetables",
            "three sports",
            "two languages",
            "three metals",
        ],
    ),
    (
        "Give me a JSON object with {}.",
        &[
            "a name and an age",
            "a city and a country",
            "a title and a year",
            "a colour",
            "a product and its price",
            "a name, an age and a city",
            "two numbers",
            "a user",
            "a date and a place",
            "a count and a unit",
        ],
    ),
    (
        "How do I {}?",
        &[
            "make tea",
            "boil an egg",
            "sleep better",
            "open a file",
            "write a letter",
            "clean a window",
            "sort a list",
            "plant a tree",
            "learn to swim",
            "cook rice",
        ],
    ),
];

/// The prompts as the server renders a conversation of one message, thinking off.
fn prompts(tokenizer: &Tokenizer) -> Vec<Vec<u32>> {
    let all =
        PROMPTS.iter().flat_map(|(frame, all)| all.iter().map(|one| frame.replace("{}", one)));
    let mut prompts = Vec::new();
    for text in all {
        let text = format!("<｜begin▁of▁sentence｜><｜User｜>{text}<｜Assistant｜></think>");
        prompts.push(tokenizer.encode(&text, &tokenizer.special_ranges(&text)).unwrap());
    }
    prompts
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
        let close = numerics != Numerics::PLAIN && device.choose_nearly_the_same();
        assert!(same || close, "{device}; by rounding alone: {noise}");
        assert!(device.is_rounding(&noise), "{device}; by rounding alone: {noise}");
    }
}
