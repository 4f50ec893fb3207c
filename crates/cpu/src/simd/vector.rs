//! Vectors from and to slices.
#![allow(unsafe_code)]

use finback_numerics::lanes::{Bits, Lanes};

use super::{LANES, Simd};

#[inline(always)]
pub(super) fn load<S: Simd>(s: S, from: &[f32]) -> S::F {
    assert!(from.len() >= LANES);
    // SAFETY: eight f32 are there.
    unsafe { s.load_at(from.as_ptr()) }
}

#[inline(always)]
pub(super) fn load_head<S: Simd>(s: S, from: &[f32]) -> S::F {
    if from.len() >= LANES {
        return load(s, from);
    }
    let mut lanes = [0.0f32; LANES];
    lanes[..from.len()].copy_from_slice(from);
    load(s, &lanes)
}

#[inline(always)]
pub(super) fn store<S: Simd>(s: S, to: &mut [f32], value: S::F) {
    assert!(to.len() >= LANES);
    // SAFETY: there is room for eight f32.
    unsafe { s.store_at(value, to.as_mut_ptr()) }
}

#[inline(always)]
pub(super) fn store_head<S: Simd>(s: S, to: &mut [f32], value: S::F) {
    if to.len() >= LANES {
        return store(s, to, value);
    }
    let mut lanes = [0.0f32; LANES];
    store(s, &mut lanes, value);
    let n = to.len();
    to.copy_from_slice(&lanes[..n]);
}

/// The e4m3 code of each e2m1 code: none is subnormal.
const E4M3_OF_E2M1: [u8; 16] = [
    0x00, 0x30, 0x38, 0x3c, 0x40, 0x44, 0x48, 0x4c, 0x80, 0xb0, 0xb8, 0xbc, 0xc0, 0xc4, 0xc8, 0xcc,
];

/// [`Simd::e2m1`] by way of bytes.
#[inline(always)]
pub(super) fn e2m1<S: Simd>(s: S, words: S::W) -> [S::F; 4] {
    s.spread_bytes(s.lookup(&E4M3_OF_E2M1, words & s.splat_bits(0x0f0f_0f0f)))
}

/// [`Simd::transpose`] through memory.
#[inline(always)]
pub(super) fn transpose<S: Simd>(s: S, rows: [S::F; LANES]) -> [S::F; LANES] {
    let mut lanes = [0.0; LANES * LANES];
    for (to, row) in lanes.chunks_exact_mut(LANES).zip(rows) {
        store(s, to, row);
    }
    let mut out = rows;
    for (l, out) in out.iter_mut().enumerate() {
        let mut column = [0.0; LANES];
        for (r, to) in column.iter_mut().enumerate() {
            *to = lanes[LANES * r + l];
        }
        *out = load(s, &column);
    }
    out
}

/// [`Simd::every_second`] through memory.
#[inline(always)]
pub(super) fn every_second<S: Simd>(s: S, values: [S::F; 2]) -> [S::F; 2] {
    let mut lanes = [0.0; 2 * LANES];
    store(s, &mut lanes[..LANES], values[0]);
    store(s, &mut lanes[LANES..], values[1]);
    let (mut even, mut odd) = ([0.0; LANES], [0.0; LANES]);
    for (l, pair) in lanes.chunks_exact(2).enumerate() {
        (even[l], odd[l]) = (pair[0], pair[1]);
    }
    [load(s, &even), load(s, &odd)]
}

/// [`Simd::every_fourth`] through memory.
#[inline(always)]
pub(super) fn every_fourth<S: Simd>(s: S, values: [S::F; 4]) -> [S::F; 4] {
    let mut lanes = [0.0; 4 * LANES];
    for (to, value) in lanes.chunks_exact_mut(LANES).zip(values) {
        store(s, to, value);
    }
    let mut out = values;
    for (j, out) in out.iter_mut().enumerate() {
        let mut every = [0.0; LANES];
        for (l, to) in every.iter_mut().enumerate() {
            *to = lanes[4 * l + j];
        }
        *out = load(s, &every);
    }
    out
}

/// The largest magnitude of a row; NaN if it holds one, 0 if it is empty.
#[inline(always)]
pub fn max_of<S: Simd>(s: S, x: &[f32]) -> f32 {
    // As integers, magnitudes order like floats and NaN lies above infinity.
    let mut chunks = x.chunks_exact(LANES);
    let mut top = s.splat_bits(0);
    for x in chunks.by_ref() {
        top = top.max_signed(s.load(x).abs().bits());
    }
    let top = top.max_signed(s.load_head(chunks.remainder()).abs().bits());
    f32::from_bits(s.max_bits(top))
}
