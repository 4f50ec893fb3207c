//! A named range of a mapped shard.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::map::Map;

/// How a range will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Single rows here and there (Engram tables): no read-ahead.
    Random,
    /// Front to back, once.
    Sequential,
    /// Soon and wholly: start reading now.
    WillNeed,
}

/// One tensor: cheap to clone, and usable from any thread. Keeps its shard mapped.
#[derive(Clone)]
pub struct Tensor {
    pub(crate) name: Arc<str>,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Arc<[usize]>,
    pub(crate) map: Arc<Map>,
    pub(crate) range: Range<usize>,
}

impl Tensor {
    /// The name the checkpoint gives it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its elements are stored.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its bytes in the map, little-endian, row-major. Aligned to no more than one byte.
    pub fn bytes(&self) -> &[u8] {
        &self.map.bytes()[self.range.clone()]
    }

    /// Some of its rows: a part of the outermost dimension, which lies in the same map.
    ///
    /// # Errors
    /// Rows that it has not.
    pub fn rows(&self, rows: Range<usize>) -> Result<Self> {
        let count = self.shape.first().copied().unwrap_or(0);
        if rows.start > rows.end || rows.end > count {
            return Err(self.refuse(format!("rows {rows:?}"), format!("some of its {count} rows")));
        }
        let each = self.range.len() / count.max(1);
        let shape = std::iter::once(rows.len()).chain(self.shape.iter().skip(1).copied());
        let range = self.range.start + rows.start * each..self.range.start + rows.end * each;
        Ok(Self { shape: shape.collect(), range, ..self.clone() })
    }

    /// The shard that holds it.
    pub fn file(&self) -> &Path {
        self.map.path()
    }

    /// Where its bytes stand in [`Tensor::file`].
    pub fn file_range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// The whole mapped shard that holds it, for devices that register a mapping at once.
    pub fn shard_bytes(&self) -> &[u8] {
        self.map.bytes()
    }

    /// Tells the system how this tensor will be read. A hint; never fails.
    pub fn advise(&self, advice: Advice) {
        self.map.advise(advice, &self.range);
    }

    /// Tells the system how some of its bytes, from `part.start` on, will be read. A hint; what lies
    /// outside the tensor is left out.
    pub fn advise_part(&self, advice: Advice, part: Range<usize>) {
        let size = self.range.len();
        let (start, end) = (part.start.min(size), part.end.min(size));
        if start < end {
            self.map.advise(advice, &(self.range.start + start..self.range.start + end));
        }
    }

    /// Fills `out` with the bytes from `at` of this tensor by a read call, not through the map: a
    /// disk that fails gives an error here, and a fault there.
    ///
    /// # Errors
    /// The range leaves the tensor, or the read fails.
    pub fn read_at(&self, at: usize, out: &mut [u8]) -> Result<()> {
        let size = self.range.len();
        match at.checked_add(out.len()) {
            Some(end) if end <= size => self.map.read_at(self.range.start + at, out),
            _ => Err(self.refuse(
                format!("a read of {} bytes at {at}", out.len()),
                format!("a range inside its {size} bytes"),
            )),
        }
    }

    /// An error that names this tensor and its file.
    pub fn refuse(&self, found: impl Into<String>, wanted: impl Into<String>) -> Error {
        Error::tensor(self.file(), &self.name, found, wanted)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?} of {}", self.name, self.dtype, self.shape, self.file().display())
    }
}
