//! Fast readers of packed KV rows: the values of `numerics::rows`, bit for bit.

use finback_numerics::{fp4, fp8, rows};

use super::{LANES, Simd};

/// Reads a window row (`numerics::rows::load_window`) of `row.len()` channels.
#[inline(always)]
pub fn load_window<S: Simd>(s: S, bytes: &[u8], row: &mut [f32]) {
    let dim = row.len();
    assert!(dim.is_multiple_of(32) && bytes.len() == rows::window_bytes(dim));
    let (codes, scales) = bytes.split_at(dim);
    let blocks = row.chunks_exact_mut(32).zip(codes.chunks_exact(32));
    for ((block, codes), scale) in blocks.zip(scales) {
        let scale = s.splat(fp8::e8m0(*scale));
        for (out, codes) in block.chunks_exact_mut(LANES).zip(codes.as_chunks::<LANES>().0) {
            s.store(out, fp8::lift_word(s.widen(*codes), scale) * scale);
        }
    }
}

/// Reads a compressed row (`numerics::rows::load_compressed`) of `row.len()` channels.
#[inline(always)]
pub fn load_compressed<S: Simd>(s: S, bytes: &[u8], row: &mut [f32]) {
    let dim = row.len();
    assert!(dim.is_multiple_of(32) && bytes.len() == rows::compressed_bytes(dim));
    let (nibbles, scales) = bytes.split_at(dim / 2);
    let blocks = row.chunks_exact_mut(16).zip(nibbles.as_chunks::<8>().0);
    for ((block, nibbles), scale) in blocks.zip(scales) {
        load_nibbles(s, nibbles, fp8::decode(*scale), block);
    }
}

/// Reads an index key (`numerics::rows::load_index_key`) of `row.len()` channels.
#[inline(always)]
pub fn load_index_key<S: Simd>(s: S, bytes: &[u8], row: &mut [f32]) {
    let dim = row.len();
    assert!(dim.is_multiple_of(32) && bytes.len() == rows::index_key_bytes(dim));
    let (nibbles, scales) = bytes.split_at(dim / 2);
    for (block, scale) in scales.iter().enumerate() {
        let scale = fp8::e8m0(*scale);
        for half in 2 * block..2 * block + 2 {
            let nibbles = &nibbles.as_chunks::<8>().0[half];
            load_nibbles(s, nibbles, scale, &mut row[16 * half..][..16]);
        }
    }
}

/// Sixteen channels from eight bytes, the even channel in the low nibble.
#[inline(always)]
fn load_nibbles<S: Simd>(s: S, nibbles: &[u8; 8], scale: f32, out: &mut [f32]) {
    let [a, b, c, d, e, f, g, h] = *nibbles;
    let scale = s.splat(scale);
    for (four, out) in [[a, b, c, d], [e, f, g, h]].into_iter().zip(out.chunks_exact_mut(LANES)) {
        let [a, b, c, d] = four;
        // The lift ignores a byte's upper four bits.
        let codes = s.widen([a, a >> 4, b, b >> 4, c, c >> 4, d, d >> 4]);
        s.store(out, fp4::lift_word(codes, scale) * scale);
    }
}
