use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;
use tokenizers::AddedVocabulary;

use crate::cover::keeps_all;
use crate::cut::{may_cut, next_cut};
use crate::decode::{byte_of_char, token_bytes};
use crate::{Decoder, Error};

/// Ids that a tokenizer may have: far more than any has, few enough to make tables of.
const IDS_MAX: u32 = 1 << 24;

/// Bytes of text after which it is cut where it may be.
const PART: usize = 2048;

/// A checkpoint's tokenizer: a byte-level BPE and its added tokens.
pub struct Tokenizer {
    /// The library's tokenizer without its added tokens: what encodes plain text.
    plain: tokenizers::Tokenizer,
    /// Id of each added token's spelling.
    added: HashMap<String, u32>,
    /// Whether an id is an added token, by id.
    is_added: Vec<bool>,
    /// Finds the spellings of added tokens in text; made at first use, few programs need it.
    spellings: OnceLock<Option<AhoCorasick>>,
    /// The bytes of all ids, one after the other.
    bytes: Vec<u8>,
    /// Where each id's bytes end in `bytes`.
    ends: Vec<u32>,
    /// Bytes of text that one id covers at most; `None` where text may have no id.
    pub(crate) longest: Option<usize>,
    /// Whether a text's parts have the ids that the whole has.
    cuts: bool,
}

impl Tokenizer {
    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    ///
    /// The bytes are not JSON, not a tokenizer, or one whose model is not BPE or whose decoder is
    /// not byte-level.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let file: Header = serde_json::from_slice(bytes).map_err(Error::Json)?;
        check_kind("model.type", file.model.as_ref(), "\"BPE\"", "BPE")?;
        check_kind("decoder.type", file.decoder.as_ref(), "\"ByteLevel\"", "ByteLevel")?;
        let mut library = tokenizers::Tokenizer::from_bytes(bytes)
            .map_err(|error| Error::Load(error.to_string()))?;
        let added: HashMap<String, u32> = library
            .get_added_vocabulary()
            .get_vocab()
            .iter()
            .map(|(token, &id)| (token.clone(), id))
            .collect();
        let vocab = library.get_vocab(true);
        // Before tables are made that have a place for every id.
        if let Some((token, id)) = vocab.iter().find(|(_, id)| **id >= IDS_MAX) {
            let text = format!("token {token:?} has the id {id}; accepted: ids below {IDS_MAX}");
            return Err(Error::Load(text));
        }
        library.with_added_vocabulary(AddedVocabulary::new());
        // Its cache of words is one a thread, without an end to the threads.
        let mut model = library.get_model().clone();
        model.resize_cache(0);
        library.with_model(model);
        library.with_padding(None);
        library.with_truncation(None).map_err(|error| Error::Load(error.to_string()))?;
        let mut tokenizer = Self::assemble(library, added, &vocab);
        if !keeps_all(&file.normalizer, &file.pre_tokenizer) {
            tokenizer.longest = None;
        }
        tokenizer.cuts = may_cut(&file.normalizer, &file.pre_tokenizer);
        Ok(tokenizer)
    }

    fn assemble(
        plain: tokenizers::Tokenizer,
        added: HashMap<String, u32>,
        vocab: &HashMap<String, u32>,
    ) -> Self {
        let size = vocab.values().map(|&id| id as usize + 1).max().unwrap_or(0);
        let mut tokens = vec![""; size];
        for (token, &id) in vocab {
            tokens[id as usize] = token;
        }
        let byte_of_char = byte_of_char();
        let mut bytes = Vec::with_capacity(size * 8);
        let mut ends = Vec::with_capacity(size);
        for token in tokens {
            token_bytes(token, &byte_of_char, &mut bytes);
            ends.push(bytes.len() as u32);
        }
        let mut is_added = vec![false; size];
        for &id in added.values() {
            is_added[id as usize] = true;
        }
        // A byte without an id of its own may be dropped.
        let all_bytes = byte_of_char.keys().all(|char| vocab.contains_key(&char.to_string()));
        // An added token covers its spelling, whatever bytes it stands for in a reply.
        let spellings = added.keys().map(String::len);
        let lengths =
            ends.iter().scan(0, |start, &end| Some((end - std::mem::replace(start, end)) as usize));
        let longest = lengths.chain(spellings).max().filter(|&longest| all_bytes && longest > 0);
        Self {
            plain,
            added,
            is_added,
            spellings: OnceLock::new(),
            bytes,
            ends,
            longest,
            cuts: false,
        }
    }

    /// Ids there are: one more than the largest.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.ends.len()
    }

    /// The id of the added token spelled `token`.
    #[must_use]
    pub fn special_id(&self, token: &str) -> Option<u32> {
        self.added.get(token).copied()
    }

    /// Whether `id` is an added token: one that text reaches only where it is marked as special.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.is_added.get(id as usize).copied().unwrap_or(false)
    }

    /// The bytes `id` stands for; none for an id without a token.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else { return &[] };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// The vocabulary's own spelling of `id` (`Ġhello` for ` hello`).
    #[must_use]
    pub fn raw(&self, id: u32) -> Option<String> {
        if self.is_special(id) {
            return Some(String::from_utf8_lossy(self.bytes(id)).into_owned());
        }
        self.plain.id_to_token(id)
    }

    /// Encodes text. The byte ranges `special` (ascending, apart) each hold the spelling of one
    /// added token and become its id; spellings of added tokens anywhere else stay text. Nothing
    /// is added around the text.
    ///
    /// # Errors
    ///
    /// A range that spells no added token, lies outside the text or overlaps another; or a failure
    /// of the library.
    pub fn encode(&self, text: &str, special: &[Range<usize>]) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut start = 0;
        for range in special {
            let (Some(before), Some(token)) =
                (text.get(start..range.start), text.get(range.clone()))
            else {
                return Err(Error::Encode(format!(
                    "special bytes {}..{} do not follow {start} within its {} bytes",
                    range.start,
                    range.end,
                    text.len()
                )));
            };
            self.encode_plain(before, &mut ids)?;
            let id = self.special_id(token).ok_or_else(|| Error::MissingToken(token.to_owned()))?;
            ids.push(id);
            start = range.end;
        }
        // `start` is 0 or the end of a range that `get` found in the text.
        self.encode_plain(&text[start..], &mut ids)?;
        // A prompt may wait long.
        ids.shrink_to_fit();
        Ok(ids)
    }

    fn encode_plain(&self, mut text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        while !text.is_empty() {
            let end = if self.cuts { next_cut(text, PART) } else { text.len() };
            let (part, rest) = text.split_at(end);
            self.encode_part(part, ids)?;
            text = rest;
        }
        Ok(())
    }

    /// Encodes text at once.
    pub(crate) fn encode_part(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let encoding = self
            .plain
            .encode_fast(text, false)
            .map_err(|error| Error::Encode(error.to_string()))?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }

    /// Where `text` spells added tokens: byte ranges for [`Tokenizer::encode`], leftmost first and
    /// the longest where several begin. For prompts whose author may write special tokens.
    #[must_use]
    pub fn special_ranges(&self, text: &str) -> Vec<Range<usize>> {
        let finder = self.spellings.get_or_init(|| {
            AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(self.added.keys().filter(|token| !token.is_empty()))
                .ok()
        });
        match finder {
            Some(finder) => finder.find_iter(text).map(|found| found.range()).collect(),
            None => Vec::new(),
        }
    }

    /// Text of `ids`, special tokens spelled out; bytes that are no UTF-8 become U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = Decoder::default();
        let mut text: String = ids.iter().map(|&id| decoder.push(self.bytes(id))).collect();
        text.push_str(&decoder.finish());
        text
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokenizer({} ids, {} added)", self.vocab_size(), self.added.len())
    }
}

/// The parts of a `tokenizer.json` that say its kind.
#[derive(serde::Deserialize)]
struct Header {
    model: Option<Kind>,
    decoder: Option<Kind>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
}

#[derive(serde::Deserialize)]
struct Kind {
    #[serde(rename = "type", default)]
    kind: Value,
}

fn check_kind(
    field: &'static str,
    found: Option<&Kind>,
    accepted: &'static str,
    wanted: &str,
) -> Result<(), Error> {
    match found {
        Some(Kind { kind: Value::String(kind) }) if kind == wanted => Ok(()),
        Some(Kind { kind }) => Err(Error::Kind { field, found: kind.to_string(), accepted }),
        None => Err(Error::Kind { field, found: "missing".to_owned(), accepted }),
    }
}

#[cfg(test)]
mod tests;
