//! How much text an id covers at most, so that a text far too long is known without encoding it.

use serde_json::Value;

use crate::Tokenizer;

impl Tokenizer {
    /// Ids that any text of `bytes` bytes has at least; 0 where this tokenizer may drop text.
    #[must_use]
    pub fn fewest_ids(&self, bytes: usize) -> usize {
        self.longest.map_or(0, |longest| bytes.div_ceil(longest))
    }
}

/// Whether every byte of a text is in one of the pieces that these parts of a `tokenizer.json` make.
pub(crate) fn keeps_all(normalizer: &Value, pre_tokenizer: &Value) -> bool {
    if !steps(normalizer, "normalizers").is_empty() {
        return false;
    }
    let steps = steps(pre_tokenizer, "pretokenizers");
    let kind = |step: &Value| step["type"].as_str().unwrap_or_default().to_owned();
    let keeps = |step: &&Value| match kind(step).as_str() {
        "Split" => step["behavior"] != "Removed",
        "ByteLevel" | "Digits" => true,
        _ => false,
    };
    steps.iter().all(keeps) && steps.iter().any(|step| kind(step) == "ByteLevel")
}

/// The steps of a part of a `tokenizer.json`, those of its sequences, which `list` names, one by one.
pub(crate) fn steps<'a>(part: &'a Value, list: &str) -> Vec<&'a Value> {
    let mut steps = Vec::new();
    flatten(part, list, &mut steps);
    steps
}

fn flatten<'a>(part: &'a Value, list: &str, steps: &mut Vec<&'a Value>) {
    if part["type"] == "Sequence" {
        part[list].as_array().into_iter().flatten().for_each(|step| flatten(step, list, steps));
    } else if !part.is_null() {
        steps.push(part);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::SYNTHETIC;

    #[test]
    fn no_text_has_fewer_ids_than_its_length_says() {
        let tokenizer = Tokenizer::from_bytes(SYNTHETIC).unwrap();
        let mut ids = 0..tokenizer.vocab_size() as u32;
        let longest = ids.clone().map(|id| tokenizer.bytes(id).len()).max().unwrap();
        assert_eq!(tokenizer.fewest_ids(0), 0);
        assert_eq!(tokenizer.fewest_ids(longest), 1);
        assert_eq!(tokenizer.fewest_ids(longest + 1), 2);
        // The text that one id covers whole, many times: the bound is met.
        let special = ids.find(|&id| tokenizer.bytes(id).len() == longest).unwrap();
        let text = tokenizer.decode(&[special; 50]);
        let found = tokenizer.encode(&text, &tokenizer.special_ranges(&text)).unwrap();
        assert_eq!((found.len(), tokenizer.fewest_ids(text.len())), (50, 50));
    }

    #[test]
    fn what_may_drop_or_change_text_gives_no_bound() {
        let bytes = json!({"type": "ByteLevel"});
        let split = |behavior: &str| json!({"type": "Split", "behavior": behavior});
        let list = |steps: &[Value]| json!({"type": "Sequence", "pretokenizers": steps});
        let keeps = |pre: &Value| keeps_all(&Value::Null, pre);
        assert!(keeps(&bytes));
        assert!(keeps(&list(&[split("Isolated"), list(std::slice::from_ref(&bytes))])));
        assert!(!keeps(&list(&[split("Removed"), bytes.clone()])));
        assert!(!keeps(&list(&[json!({"type": "Whitespace"}), bytes.clone()])));
        assert!(!keeps(&split("Isolated")));
        assert!(!keeps(&Value::Null));
        assert!(keeps_all(&json!({"type": "Sequence", "normalizers": []}), &bytes));
        assert!(!keeps_all(&json!({"type": "NFC"}), &bytes));
    }
}
