//! The packed forms of KV rows: codes first, then their scales.
//!
//! | row | codes | scales | bytes at the release's width |
//! |---|---|---|---|
//! | window | e4m3, one byte a channel | e8m0 for 32 channels | 528 at 512 |
//! | compressed | e2m1, two a byte, even channel low | e4m3 for 16 channels | 288 at 512 |
//! | index key | e2m1, two a byte, even channel low | e8m0 for 32 channels | 68 at 128 |
//!
//! `dim` is the number of channels, a multiple of 32; `store` rounds as the model's quantiser does
//! and `load` gives those values exactly.

use crate::quant;

/// Bytes of a window row of `dim` channels.
pub const fn window_bytes(dim: usize) -> usize {
    dim + dim / quant::BLOCK32
}

/// Bytes of a compressed row of `dim` channels.
pub const fn compressed_bytes(dim: usize) -> usize {
    dim / 2 + dim / quant::BLOCK16
}

/// Bytes of an index key of `dim` channels.
pub const fn index_key_bytes(dim: usize) -> usize {
    dim / 2 + dim / quant::BLOCK32
}

/// Rounds `row` into `bytes`, which has [`window_bytes`] of its length.
pub fn store_window(row: &[f32], bytes: &mut [u8]) {
    let (codes, scales) = bytes.split_at_mut(row.len());
    quant::fp8_block32(row, codes, scales);
}

/// Reads a window row into `row`.
pub fn load_window(bytes: &[u8], row: &mut [f32]) {
    let (codes, scales) = bytes.split_at(row.len());
    quant::fp8_block32_lift(codes, scales, row);
}

/// Rounds `row` into `bytes`, which has [`compressed_bytes`] of its length.
pub fn store_compressed(row: &[f32], bytes: &mut [u8]) {
    let (nibbles, scales) = bytes.split_at_mut(row.len() / 2);
    quant::fp4_block16(row, nibbles, scales);
}

/// Reads a compressed row into `row`.
pub fn load_compressed(bytes: &[u8], row: &mut [f32]) {
    let (nibbles, scales) = bytes.split_at(row.len() / 2);
    quant::fp4_block16_lift(nibbles, scales, row);
}

/// Rounds `row` into `bytes`, which has [`index_key_bytes`] of its length.
pub fn store_index_key(row: &[f32], bytes: &mut [u8]) {
    let (nibbles, scales) = bytes.split_at_mut(row.len() / 2);
    quant::fp4_block32(row, nibbles, scales);
}

/// Reads an index key into `row`.
pub fn load_index_key(bytes: &[u8], row: &mut [f32]) {
    let (nibbles, scales) = bytes.split_at(row.len() / 2);
    quant::fp4_block32_lift(nibbles, scales, row);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_takes_890_bytes_at_the_release_widths() {
        let row = compressed_bytes(512) + index_key_bytes(128);
        assert_eq!(
            (window_bytes(512), compressed_bytes(512), index_key_bytes(128)),
            (528, 288, 68)
        );
        // Three sources at ratio 2 and one at ratio 1 make 2.5 rows a position.
        assert_eq!(row * 5 / 2, 890);
    }

    #[test]
    fn rows_come_back_as_their_quantiser_rounds_them() {
        let row: Vec<f32> = (0..64).map(|k| (k as f32 - 31.0) * 0.37).collect();
        let mut out = vec![0.0; 64];

        let mut bytes = vec![0; window_bytes(64)];
        store_window(&row, &mut bytes);
        load_window(&bytes, &mut out);
        // The largest block value is 11.84: scale 2^-5, a step of 1 at that size.
        assert_eq!((out[0], out[31], out[63]), (-11.0, 0.0, 12.0));

        let mut bytes = vec![0; compressed_bytes(64)];
        store_compressed(&row, &mut bytes);
        load_compressed(&bytes, &mut out);
        // 11.84 / 6 rounds to the e4m3 scale 2; 11.84 / 2 is nearest to the code 6.
        assert_eq!((out[31], out[63]), (0.0, 12.0));
        assert_eq!(bytes[32 + 3], crate::fp8::encode(2.0));

        let mut bytes = vec![0; index_key_bytes(64)];
        store_index_key(&row, &mut bytes);
        load_index_key(&bytes, &mut out);
        assert_eq!((out[31], out[63], bytes[33]), (0.0, 12.0, 128));
    }
}
