//! The map from token ids to the compressed ids that Engram hashes (model-spec, Engram).
//!
//! Tokens that differ only in case, accents, width or outer space share an id.

use std::borrow::Cow;
use std::collections::HashMap;

use tokenizers::normalizers::{Lowercase, NFD, NFKC, StripAccents};
use tokenizers::{NormalizedString, Normalizer};

use crate::{Error, Tokenizer};

impl Tokenizer {
    /// The compressed id of every token id: equal where the tokens' keys are, counted from 0 in
    /// the order in which keys first appear.
    ///
    /// # Errors
    ///
    /// A token that the library cannot normalise.
    pub fn engram_token_map(&self) -> Result<Vec<u32>, Error> {
        let mut ids: HashMap<Cow<'_, str>, u32> = HashMap::with_capacity(self.vocab_size());
        let mut map = Vec::with_capacity(self.vocab_size());
        for id in 0..self.vocab_size() as u32 {
            let next = ids.len() as u32;
            map.push(*ids.entry(self.engram_key(id)?).or_insert(next));
        }
        Ok(map)
    }

    /// What two ids must share to share a compressed id.
    fn engram_key(&self, id: u32) -> Result<Cow<'_, str>, Error> {
        let text = String::from_utf8_lossy(self.bytes(id));
        if text.contains(char::REPLACEMENT_CHARACTER) {
            return Ok(Cow::Owned(self.raw(id).unwrap_or_default()));
        }
        let folded = fold(&text)?;
        let key = squeeze(&folded);
        Ok(if key.is_empty() { text } else { Cow::Owned(key) })
    }
}

/// NFKC, NFD, marks dropped, lowercase. By the tokenizer library's own normalisers: the release's
/// map was made with them, and another Unicode version could merge other tokens.
fn fold(text: &str) -> Result<Cow<'_, str>, Error> {
    if text.is_ascii() {
        return Ok(Cow::Owned(text.to_ascii_lowercase()));
    }
    let mut folded = NormalizedString::from(text);
    NFKC.normalize(&mut folded)
        .and_then(|()| NFD.normalize(&mut folded))
        .and_then(|()| StripAccents.normalize(&mut folded))
        .and_then(|()| Lowercase.normalize(&mut folded))
        .map_err(|error| Error::Encode(error.to_string()))?;
    Ok(Cow::Owned(folded.get().to_owned()))
}

/// Runs of space, tab and line ends to one space, outer white space off; a text that is one space
/// by then stays one.
fn squeeze(text: &str) -> String {
    let mut squeezed = String::with_capacity(text.len());
    for char in text.chars() {
        if !matches!(char, ' ' | '\t' | '\r' | '\n') {
            squeezed.push(char);
        } else if !squeezed.ends_with(' ') {
            squeezed.push(' ');
        }
    }
    if squeezed == " " { squeezed } else { squeezed.trim().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SYNTHETIC;

    fn key(text: &str) -> String {
        squeeze(&fold(text).unwrap())
    }

    #[test]
    fn keys_drop_case_accents_width_and_outer_space() {
        for text in [" Ecole", "école", "\u{C9}COLE", "Ｅｃｏｌｅ\n"] {
            assert_eq!(key(text), "ecole", "{text:?}");
        }
        assert_eq!(key("a \t\r\nb"), "a b");
    }

    #[test]
    fn white_space_of_ascii_kinds_is_one_space_and_others_vanish() {
        assert_eq!(key("\n\n \t"), " ");
        // NFKC makes a no-break space a plain one, a line separator stays and is then stripped.
        assert_eq!(key("\u{A0}"), " ");
        assert_eq!(key("\u{2028}"), "");
    }

    #[test]
    fn ids_count_up_by_first_appearance() {
        let map = Tokenizer::from_bytes(SYNTHETIC).unwrap().engram_token_map().unwrap();
        let mut seen = 0;
        for &id in &map {
            assert!(id <= seen, "{id} appears before {seen}");
            seen = seen.max(id + 1);
        }
        assert!((seen as usize) < map.len(), "case and space merge some tokens");
    }

    #[test]
    fn broken_bytes_keep_their_own_ids() {
        let tokenizer = Tokenizer::from_bytes(SYNTHETIC).unwrap();
        let map = tokenizer.engram_token_map().unwrap();
        let broken: Vec<u32> = (0..tokenizer.vocab_size() as u32)
            .filter(|&id| matches!(tokenizer.bytes(id), [0x80..=0xFF]))
            .map(|id| map[id as usize])
            .collect();
        let unique: std::collections::HashSet<_> = broken.iter().collect();
        assert_eq!((broken.len(), unique.len()), (128, 128));
    }
}
