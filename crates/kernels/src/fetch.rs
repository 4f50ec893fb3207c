//! Bringing experts from the host's memory: the table and the grid of `fetch`.

/// Bytes that a group of `fetch` takes, `FETCH_BYTES` of its text.
pub const FETCH_BYTES: u64 = 8192;
/// Bytes of a line, in which a tensor may begin anywhere, `FETCH_LINE` of its text.
pub const FETCH_LINE: u64 = 128;

/// One of an expert's tensors, which every expert has alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    /// Its bytes.
    pub bytes: u64,
    /// Where the first place's goes, a multiple of 4 after the output's address.
    pub to: u64,
    /// From there to the next place's, a multiple of 4.
    pub apart: u64,
}

/// The table: the tensors, then where each expert's begin in the map, an expert's one after another.
pub fn table(tensors: &[Tensor], offsets: &[u64]) -> Vec<u64> {
    let shapes = tensors.iter().flat_map(|tensor| [tensor.bytes, tensor.to, tensor.apart]);
    shapes.chain(offsets.iter().copied()).collect()
}

/// The grid for so many places. A tensor that begins late in a line may need a piece more.
pub fn grid(tensors: &[Tensor], places: usize) -> [u32; 2] {
    let pieces = tensors.iter().map(|tensor| (tensor.bytes + FETCH_LINE - 1).div_ceil(FETCH_BYTES));
    [pieces.sum::<u64>() as u32, places as u32]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;

    #[test]
    fn pieces_are_those_of_the_text_and_cover_a_tensor_wherever_it_begins() {
        let text = source::text("fetch.h").unwrap();
        for (name, value) in [("FETCH_BYTES", FETCH_BYTES), ("FETCH_LINE", FETCH_LINE)] {
            assert!(text.contains(&format!("#define {name} {value}u\n")), "{name}");
        }
        for bytes in [1, 8064, 8065, 8066, 8192, 16257] {
            let [pieces, places] = grid(&[Tensor { bytes, to: 0, apart: 0 }], 3);
            let last = bytes + FETCH_LINE - 1;
            assert!(u64::from(pieces) * FETCH_BYTES >= last, "{bytes}");
            assert!((u64::from(pieces) - 1) * FETCH_BYTES < last, "{bytes}");
            assert_eq!(places, 3);
        }
        let tensors = [Tensor { bytes: 7, to: 0, apart: 8 }, Tensor { bytes: 9, to: 8, apart: 12 }];
        assert_eq!(table(&tensors, &[100, 200]), [7, 0, 8, 9, 8, 12, 100, 200]);
        assert_eq!(grid(&tensors, 2), [2, 2]);
    }
}
