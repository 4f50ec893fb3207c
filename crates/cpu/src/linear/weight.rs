//! A weight matrix as it is stored.

use std::fmt;
use std::ops::Range;

use finback_ops::Format;

/// Why bytes are not a weight of the given shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeightError {
    /// The scale block.
    #[error("FP8 scale block of {0}: a multiple of 32 is needed")]
    Block(usize),
    /// The width.
    #[error("{0:?} rows of {1} inputs: a multiple of 32 is needed")]
    Width(Format, usize),
    /// The elements.
    #[error("{found} weight bytes for {out} x {inp} {format:?}, {wanted} are needed")]
    Data {
        /// Bytes given.
        found: usize,
        /// Bytes the shape takes.
        wanted: usize,
        /// Rows.
        out: usize,
        /// Elements of a row.
        inp: usize,
        /// The stored format.
        format: Format,
    },
    /// The scales.
    #[error("{found} scale bytes for {out} x {inp} {format:?}, {wanted} are needed")]
    Scale {
        /// Bytes given.
        found: usize,
        /// Bytes the shape takes.
        wanted: usize,
        /// Rows.
        out: usize,
        /// Elements of a row.
        inp: usize,
        /// The stored format.
        format: Format,
    },
}

/// A view of a stored weight matrix, `out` rows of `inp` elements; no alignment is needed.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    format: Format,
    data: &'a [u8],
    scale: &'a [u8],
    out: usize,
    inp: usize,
}

impl<'a> Weight<'a> {
    /// Checks that the bytes make a matrix of this shape. Scale bytes of 255 (NaN) are the loader's
    /// to refuse; here they act as an infinite scale.
    ///
    /// # Errors
    /// Sizes that do not fit the shape.
    pub fn new(
        format: Format,
        data: &'a [u8],
        scale: &'a [u8],
        out: usize,
        inp: usize,
    ) -> Result<Weight<'a>, WeightError> {
        if let Format::Fp8 { block } = format
            && (block == 0 || !block.is_multiple_of(32))
        {
            return Err(WeightError::Block(block));
        }
        if format.is_quantised() && !inp.is_multiple_of(32) {
            return Err(WeightError::Width(format, inp));
        }
        let (found, wanted) = (data.len(), out * format.row_bytes(inp));
        if found != wanted {
            return Err(WeightError::Data { found, wanted, out, inp, format });
        }
        let (found, wanted) = (scale.len(), format.scale_bytes(out, inp));
        if found != wanted {
            return Err(WeightError::Scale { found, wanted, out, inp, format });
        }
        Ok(Weight { format, data, scale, out, inp })
    }

    /// The matrix of some of the rows. Panics when they are not rows of this one, or do not start
    /// on a scale block: ranges are the caller's layout arithmetic.
    pub fn part(&self, rows: Range<usize>) -> Weight<'a> {
        let bytes = self.format.row_bytes(self.inp);
        let data = &self.data[rows.start * bytes..rows.end * bytes];
        let (start, end) = match self.format {
            Format::Fp8 { block } => {
                assert!(rows.start.is_multiple_of(block), "row {} splits a block", rows.start);
                (rows.start / block, rows.end.div_ceil(block))
            }
            _ => (rows.start, rows.end),
        };
        let width = self.format.scale_bytes(1, self.inp);
        let scale = &self.scale[start * width..end * width];
        Weight { data, scale, out: rows.len(), ..*self }
    }

    /// The stored format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Rows: outputs.
    pub fn out(&self) -> usize {
        self.out
    }

    /// Elements of a row: inputs.
    pub fn inp(&self) -> usize {
        self.inp
    }

    /// Bytes of elements and scales: what one pass over the matrix reads.
    pub fn bytes(&self) -> usize {
        self.data.len() + self.scale.len()
    }

    /// The elements' bytes.
    pub(super) fn data(&self) -> &'a [u8] {
        self.data
    }

    /// The scale bytes.
    pub(super) fn scale(&self) -> &'a [u8] {
        self.scale
    }
}

impl fmt::Debug for Weight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {} {:?}", self.out, self.inp, self.format)
    }
}
