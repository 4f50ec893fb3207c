use std::collections::HashMap;

/// Turns the bytes of tokens into text as they come.
///
/// Bytes that may still become a character are held back. [`Decoder::finish`] gives what is left,
/// and only there does an unfinished character become U+FFFD. All pieces together are the text
/// that decoding everything at once gives.
#[derive(Debug, Clone, Default)]
pub struct Decoder {
    /// The start of a character, at most three bytes.
    held: Vec<u8>,
}

impl Decoder {
    /// Text that is certain after these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.held.len());
        let mut keep = 0;
        let mut chunks = self.held.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            // No error length: they are right as far as they go, and nothing follows them yet.
            let unfinished = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if unfinished && chunks.peek().is_none() {
                keep = invalid.len();
            } else {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held.drain(..self.held.len() - keep);
        text
    }

    /// Whether bytes are held back.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// What is held back, as U+FFFD; empty where nothing is.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }
}

/// The byte each character of a byte-level vocabulary stands for: printable Latin-1 characters are
/// themselves, the other bytes are U+0100 onwards in order.
pub(crate) fn byte_of_char() -> HashMap<char, u8> {
    let mut next = 0x100;
    let mut map = HashMap::with_capacity(256);
    for byte in 0..=255u8 {
        let shown = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if shown { u32::from(byte) } else { next };
        next += u32::from(!shown);
        // Codes below 0x180 are all characters.
        map.insert(char::from_u32(code).unwrap_or_default(), byte);
    }
    map
}

/// Appends the bytes of a vocabulary entry: each character's byte, or the entry's own UTF-8 where
/// it has a character that stands for no byte (an added token such as `<｜User｜>`).
pub(crate) fn token_bytes(token: &str, byte_of_char: &HashMap<char, u8>, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    for char in token.chars() {
        if let Some(&byte) = byte_of_char.get(&char) {
            bytes.push(byte);
        } else {
            bytes.truncate(start);
            bytes.extend_from_slice(token.as_bytes());
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(bytes: &[u8], size: usize) -> (Vec<String>, String) {
        let mut decoder = Decoder::default();
        let pieces = bytes.chunks(size).map(|chunk| decoder.push(chunk)).collect();
        (pieces, decoder.finish())
    }

    #[test]
    fn a_split_character_waits_for_its_last_byte() {
        let (pieces, rest) = pieces("a🐋b".as_bytes(), 1);
        assert_eq!(pieces, ["a", "", "", "", "🐋", "b"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn an_unfinished_character_is_replaced_only_at_the_end() {
        let (pieces, rest) = pieces(&"é🐋".as_bytes()[..5], 1);
        assert_eq!(pieces.concat(), "é");
        assert_eq!(rest, "\u{FFFD}");
    }

    #[test]
    fn a_byte_that_cannot_begin_a_character_does_not_wait() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(&[0xFF]), "\u{FFFD}");
        assert!(!decoder.is_holding());
    }

    #[test]
    fn pieces_of_any_size_give_the_whole_text() {
        // Valid text with broken bytes in it, from a fixed generator.
        let mut state = 7u32;
        for _ in 0..200 {
            let mut bytes = "naïve 🐋 文字 ok".as_bytes().to_vec();
            for _ in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let at = (state >> 8) as usize % bytes.len();
                bytes[at] = (state >> 24) as u8;
            }
            let whole = String::from_utf8_lossy(&bytes);
            for size in 1..=6 {
                let (pieces, rest) = pieces(&bytes, size);
                assert_eq!(pieces.concat() + &rest, whole, "{bytes:x?} in {size}s");
            }
        }
    }

    #[test]
    fn the_alphabet_covers_every_byte_once() {
        let mut bytes: Vec<u8> = byte_of_char().into_values().collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
    }
}
