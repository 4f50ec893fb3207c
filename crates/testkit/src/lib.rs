//! Checkpoints and right answers for tests.
//!
//! `vectors/README.md` says what they hold and how close an answer should be. Everything here
//! panics on a broken file: it is for tests only.
#![allow(clippy::expect_used)]

mod mutate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

pub use mutate::replay;

/// The checkpoints, by name.
pub const CHECKPOINTS: [&str; 3] = ["no-engram", "engram", "full"];

/// One prompt on one checkpoint, and what follows from it.
#[derive(Debug, Clone, Deserialize)]
pub struct Case {
    /// `checkpoint/length`; also the prefix of its tensors in [`logits`].
    pub name: String,
    /// One of [`CHECKPOINTS`].
    pub checkpoint: String,
    /// Prompt ids.
    pub prompt: Vec<u32>,
    /// The last rows, up to 8.
    pub last: LastRows,
    /// 64 greedy tokens.
    pub greedy: Vec<u32>,
    /// The gap between the two best logits at each of them.
    pub greedy_gap: Vec<f64>,
    /// How far float32 arithmetic moved the last rows.
    pub noise: f64,
    /// Decisions at the last prompt position.
    pub trace: Trace,
    /// The round drafted after the prompt, on `full`.
    pub draft: Option<DraftRound>,
}

/// Summary of the last rows.
#[derive(Debug, Clone, Deserialize)]
pub struct LastRows {
    /// Their positions.
    pub positions: Vec<usize>,
    /// The best id of each.
    pub argmax: Vec<u32>,
    /// The five best ids and logits of each.
    pub top5: Vec<Vec<(u32, f64)>>,
}

/// Decisions at one position.
#[derive(Debug, Clone, Deserialize)]
pub struct Trace {
    /// Experts of each layer, ascending.
    pub experts: Vec<Vec<usize>>,
    /// Compressed rows picked, by index source layer.
    pub picked: BTreeMap<usize, Vec<usize>>,
    /// Engram table rows, by Engram layer.
    #[serde(default)]
    pub engram_rows: BTreeMap<usize, Vec<u64>>,
}

/// One draft pass.
#[derive(Debug, Clone, Deserialize)]
pub struct DraftRound {
    /// The token it starts from.
    pub anchor: u32,
    /// What it proposes.
    pub tokens: Vec<u32>,
    /// The five best ids and logits of each row.
    pub top5: Vec<Vec<(u32, f64)>>,
    /// The raw confidence of each row.
    pub confidence: Vec<f64>,
}

/// A stored array, row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Values.
    pub values: Vec<T>,
}

impl<T> Array<T> {
    /// Row `i` along the first dimension.
    pub fn row(&self, i: usize) -> &[T] {
        let width: usize = self.shape[1..].iter().product();
        &self.values[i * width..][..width]
    }

    /// Rows along the first dimension.
    pub fn rows(&self) -> usize {
        self.shape[0]
    }
}

/// Where the vectors are.
pub fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors")
}

/// The directory of one of [`CHECKPOINTS`].
pub fn checkpoint(name: &str) -> PathBuf {
    vectors().join(name)
}

/// The token map of a checkpoint that has one: token id to compressed id.
pub fn token_map(name: &str) -> Vec<u32> {
    let text = read(&checkpoint(name).join("engram_token_map.json"));
    serde_json::from_slice(&text).expect("a list of ids")
}

/// All cases.
pub fn cases() -> Vec<Case> {
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }
    let file: File = serde_json::from_slice(&read(&vectors().join("cases.json"))).expect("cases");
    file.cases
}

/// An array of `logits.safetensors`, such as `full/17/last`; `None` where the case has none.
pub fn logits(name: &str) -> Option<Array<f64>> {
    let bytes = read(&vectors().join("logits.safetensors"));
    array(&bytes, name, Dtype::F64, f64::from_le_bytes)
}

/// Release numerics on `full`: prompts of `length` tokens (1 or 4), and each one's last logit row.
pub fn release_rows(length: usize) -> (Array<i64>, Array<f64>) {
    let bytes = read(&vectors().join("release_rows.safetensors"));
    let prompts = array(&bytes, &format!("prompts/{length}"), Dtype::I64, i64::from_le_bytes);
    let logits = array(&bytes, &format!("logits/{length}"), Dtype::F64, f64::from_le_bytes);
    prompts.zip(logits).expect("lengths 1 and 4")
}

/// A directory that goes away with the value.
pub fn temp_dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn array<T>(bytes: &[u8], name: &str, dtype: Dtype, read: fn([u8; 8]) -> T) -> Option<Array<T>> {
    let file = SafeTensors::deserialize(bytes).expect("a safetensors file");
    let view = file.tensor(name).ok()?;
    assert_eq!(view.dtype(), dtype, "{name}");
    let values = view.data().as_chunks::<8>().0.iter().map(|b| read(*b)).collect();
    Some(Array { shape: view.shape().to_vec(), values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_fit_their_arrays() {
        let cases = cases();
        assert_eq!(cases.len(), 15);
        for case in cases {
            assert_eq!(case.greedy.len(), 64);
            let last = logits(&format!("{}/last", case.name)).unwrap();
            assert_eq!(last.shape, [case.last.positions.len(), 512]);
            for (i, &best) in case.last.argmax.iter().enumerate() {
                let most = last.row(i).iter().copied().fold(f64::MIN, f64::max);
                assert_eq!(last.row(i)[best as usize], most, "{}", case.name);
            }
            assert_eq!(case.draft.is_some(), case.checkpoint == "full");
            assert_eq!(case.trace.engram_rows.is_empty(), case.checkpoint == "no-engram");
            assert!(checkpoint(&case.checkpoint).join("config.json").exists());
        }
    }

    #[test]
    fn the_release_rows_and_maps_are_whole() {
        for length in [1, 4] {
            let (prompts, logits) = release_rows(length);
            assert_eq!(prompts.shape, [40, length]);
            assert_eq!((logits.shape.as_slice(), logits.rows()), (&[40, 512][..], 40));
        }
        assert_eq!(token_map("full").len(), 512);
        assert!(logits("none").is_none());
    }
}
