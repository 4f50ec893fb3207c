//! Where a long text may be cut so that its parts have the ids that the whole has: the library takes
//! a hundred bytes of memory for each byte of text that it gets at once.

use serde_json::Value;

use crate::cover::steps;

/// The release's rules for words, newlines and carriage returns escaped.
const PATTERNS: [&str; 4] = [
    r"\p{N}",
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    concat!(
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
        r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
        r"| ?[\p{P}\p{S}]+[\r\n]*",
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// Whether [`next_cut`] holds for these parts of a `tokenizer.json`: they split text by [`PATTERNS`]
/// alone. None of them matches across a cut, none looks from one side of it at the other in a way
/// that matters, and none looks back.
pub(crate) fn may_cut(normalizer: &Value, pre_tokenizer: &Value) -> bool {
    let fits = |step: &&Value| match step["type"].as_str() {
        Some("Split") => {
            let pattern = step["pattern"]["Regex"].as_str().unwrap_or_default();
            let escaped = pattern.replace('\r', r"\r").replace('\n', r"\n");
            let plain = step["behavior"] == "Isolated" && step["invert"] != true;
            plain && PATTERNS.contains(&escaped.as_str())
        }
        Some("ByteLevel") => step["add_prefix_space"] == false && step["use_regex"] == false,
        _ => false,
    };
    steps(normalizer, "normalizers").is_empty()
        && steps(pre_tokenizer, "pretokenizers").iter().all(fits)
}

/// The first place at `from` or after it where `text` may be cut: between a newline and a letter, or
/// before the space between two letters, all of them ASCII. The text's end where there is none.
pub(crate) fn next_cut(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    let letter = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
    let cuts = |&at: &usize| match bytes[at - 1] {
        b'\n' => letter(at),
        before => before.is_ascii_alphabetic() && bytes[at] == b' ' && letter(at + 1),
    };
    (from.max(1)..bytes.len()).find(cuts).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{SYNTHETIC, Tokenizer};

    #[test]
    fn the_parts_of_a_text_have_the_ids_of_the_whole() {
        let tokenizer = Tokenizer::from_bytes(SYNTHETIC).unwrap();
        let whole = |text: &str| {
            let mut ids = Vec::new();
            tokenizer.encode_part(text, &mut ids).unwrap();
            ids
        };
        let signs: Vec<char> =
            "aabcdeZ   \n\n\r\t\u{85}\u{a0}\u{3000}12٣.,-#'é鲸クー🐋\u{301}\u{7f}\u{200d}"
                .chars()
                .collect();
        let (mut state, mut parts) = (1u64, 0);
        for _ in 0..4000 {
            let mut next = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as usize % below
            };
            let text: String = (0..1 + next(80)).map(|_| signs[next(signs.len())]).collect();
            let (mut ids, mut start) = (Vec::new(), 0);
            while start < text.len() {
                let end = start + next_cut(&text[start..], 0);
                ids.extend(whole(&text[start..end]));
                (start, parts) = (end, parts + 1);
            }
            assert_eq!(ids, whole(&text), "{text:?}");
        }
        assert!(parts > 6000, "{parts} parts of 4000 texts");
    }

    #[test]
    fn a_long_text_is_cut_and_has_the_same_ids() {
        let tokenizer = Tokenizer::from_bytes(SYNTHETIC).unwrap();
        let text =
            "The whale is under the small letter.\n  12 boats, naïve: 鲸鱼\nand so on ".repeat(400);
        let mut ids = Vec::new();
        tokenizer.encode_part(&text, &mut ids).unwrap();
        assert_eq!(tokenizer.encode(&text, &[]).unwrap(), ids);
        assert!(next_cut(&text, 2048) < 2200);
    }

    #[test]
    fn cuts_stand_between_words_and_lines() {
        for (text, cut) in [("ab cd", 2), ("ab  cd", 6), ("ab\ncd", 3), ("a\n c", 4), ("鲸 cd", 6)]
        {
            assert_eq!(next_cut(text, 0), cut, "{text:?}");
        }
        assert_eq!(next_cut("ab cd ef", 3), 5);
    }

    #[test]
    fn other_rules_are_not_cut() {
        let split = |pattern: &str, behavior: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": false});
        let bytes = |prefix: bool, regex: bool| json!({"type": "ByteLevel", "add_prefix_space": prefix, "use_regex": regex});
        let may = |step: Value| may_cut(&Value::Null, &step);
        assert!(may(
            json!({"type": "Sequence", "pretokenizers": [split(PATTERNS[3], "Isolated"), bytes(false, false)]})
        ));
        assert!(may(split(&PATTERNS[3].replace(r"\n", "\n"), "Isolated")));
        assert!(!may(split(r"\s+", "Isolated")));
        assert!(!may(split(PATTERNS[3], "MergedWithNext")));
        assert!(!may(bytes(true, false)));
        assert!(!may(bytes(false, true)));
        assert!(!may(json!({"type": "Whitespace"})));
        assert!(!may_cut(&json!({"type": "NFC"}), &split(PATTERNS[0], "Isolated")));
    }
}
