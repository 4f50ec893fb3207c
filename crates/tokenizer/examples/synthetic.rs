//! Writes `assets/synthetic.json`: a byte-level BPE with the release's rules for splitting text and
//! its named special tokens, and merges learned from `assets/synthetic.txt`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::{Value, json};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

const VOCAB: usize = 1024;

/// Ids 0, 1 and 2.
const FIRST: [&str; 3] = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"];

/// The last ids, in the release's order. The second is the one it also names as the drafts' noise.
#[rustfmt::skip]
const LAST: [&str; 67] = [
    "<｜place▁holder▁no▁798｜>", "<｜System｜>",
    "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜User｜>",
    "<｜Assistant｜>", "<|EOT|>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", "<｜tool▁sep｜>",
    "<｜begin▁of▁repo▁name｜>", "<｜end▁of▁repo▁name｜>", "<｜begin▁of▁file▁name｜>",
    "<｜end▁of▁file▁name｜>", "<｜begin▁of▁file｜>", "<｜end▁of▁file｜>", "<think>", "</think>",
    "<｜place▁holder▁for▁copy｜>", "<｜place▁holder▁for▁pointer▁replace｜>", "｜DSML｜",
    "<｜begin▁sys｜>", "<｜end▁sys｜>", "<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>",
    "<｜authority｜>", "<｜domain｜>", "<｜task｜>", "<｜political｜>", "<｜entity｜>", "<｜title｜>",
    "<｜safety｜>", "<｜answer｜>", "<｜search｜>", "<dsml:", "</dsml:", "<｜search▁begin｜>",
    "<｜search▁end｜>", "<｜extracted_url｜>", "<｜read_url｜>", "<｜end_of_query｜>",
    "<｜rl_image_pad｜>", "<｜rl_image_start｜>", "<｜image2｜>", "<｜/table>｜", "<｜table｜>",
    "<｜/td｜>", "<｜td｜>", "<｜/tr｜>", "<｜tr｜>", "<｜/polygon｜>", "<｜polygon｜>", "<｜/point｜>",
    "<｜point｜>", "<｜/box｜>", "<｜box｜>", "<｜/ref｜>", "<｜ref｜>", "<｜image｜>",
];

fn main() -> Result<(), tokenizers::Error> {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets");
    let text = std::fs::read_to_string(assets.join("synthetic.txt"))?;
    let mut vocab: Vec<String> = FIRST.map(str::to_owned).to_vec();
    vocab.extend(alphabet());
    let merges = learn(words(&text)?, VOCAB - vocab.len() - LAST.len());
    vocab.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
    let added: Vec<Value> = FIRST
        .iter()
        .enumerate()
        .map(|(id, token)| added_token(id, token, true))
        .chain(
            LAST.iter().enumerate().map(|(at, token)| added_token(vocab.len() + at, token, false)),
        )
        .collect();
    let vocab: serde_json::Map<String, Value> =
        vocab.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let merges: Vec<String> =
        merges.iter().map(|(left, right)| format!("{left} {right}")).collect();
    let file = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": null,
        "pre_tokenizer": pre_tokenizer(),
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
            "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "vocab": vocab, "merges": merges},
    });
    std::fs::write(assets.join("synthetic.json"), serde_json::to_string_pretty(&file)? + "\n")?;
    Ok(())
}

fn added_token(id: usize, token: &str, special: bool) -> Value {
    json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": !special, "special": special})
}

/// The release's rules: digits by threes, runs of Han and kana, then words and punctuation.
fn pre_tokenizer() -> Value {
    let split = |pattern: &str| {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": false})
    };
    json!({"type": "Sequence", "pretokenizers": [
        split(r"\p{N}{1,3}"),
        split("[一-龥\u{3040}-ゟ゠-ヿ]+"),
        split(concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
            "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+",
            "| ?[\\p{P}\\p{S}]+[\r\n]*",
            r"|\s*",
            "[\r\n]+",
            r"|\s+(?!\S)|\s+",
        )),
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]})
}

/// The characters that stand for single bytes, in byte order.
fn alphabet() -> Vec<String> {
    let mut next = '\u{100}'..;
    (0..=255u8)
        .filter_map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => Some(char::from(byte)),
            _ => next.next(),
        })
        .map(String::from)
        .collect()
}

/// The text's words as lists of byte characters, with their counts.
fn words(text: &str) -> Result<Vec<(Vec<String>, usize)>, tokenizers::Error> {
    let rules: tokenizers::PreTokenizerWrapper = serde_json::from_value(pre_tokenizer())?;
    let mut split = PreTokenizedString::from(text);
    rules.pre_tokenize(&mut split)?;
    let mut counts = BTreeMap::new();
    for (word, ..) in split.get_splits(OffsetReferential::Original, OffsetType::Byte) {
        *counts.entry(word.to_owned()).or_insert(0) += 1;
    }
    Ok(counts
        .into_iter()
        .map(|(word, count)| (word.chars().map(String::from).collect(), count))
        .collect())
}

/// The `count` best merges: again and again the most frequent pair, ties to the first in order.
fn learn(mut words: Vec<(Vec<String>, usize)>, count: usize) -> Vec<(String, String)> {
    let mut merges = Vec::new();
    while merges.len() < count {
        let mut pairs: HashMap<(&String, &String), usize> = HashMap::new();
        for (word, times) in &words {
            for pair in word.windows(2) {
                *pairs.entry((&pair[0], &pair[1])).or_insert(0) += times;
            }
        }
        let Some(best) =
            pairs.iter().max_by(|(a, x), (b, y)| x.cmp(y).then_with(|| b.cmp(a))).map(|(p, _)| *p)
        else {
            break;
        };
        let (left, right) = (best.0.clone(), best.1.clone());
        for (word, _) in &mut words {
            let mut at = 0;
            while at + 1 < word.len() {
                if word[at] == left && word[at + 1] == right {
                    let tail = word.remove(at + 1);
                    word[at].push_str(&tail);
                }
                at += 1;
            }
        }
        merges.push((left, right));
    }
    merges
}
