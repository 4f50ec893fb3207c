//! Row helpers over [`Simd`], in the house order (`numerics::order`).
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

/// The dot product of two rows of one length.
#[inline(always)]
pub fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    dot_rows(s, a, [b])[0]
}

/// The dot products of `a` with several rows of its length; each equals [`dot`] of that pair.
/// Four rows at once keep the multiply-add units busy.
#[inline(always)]
pub fn dot_rows<S: Simd, const N: usize>(s: S, a: &[f32], rows: [&[f32]; N]) -> [f32; N] {
    let n = a.len();
    assert!(rows.iter().all(|row| row.len() == n));
    let whole = n / LANES * LANES;
    let mut sum = [s.splat(0.0); N];
    for k in (0..whole).step_by(LANES) {
        // SAFETY: k + 8 is within the length of every row.
        let x = unsafe { s.load_at(a.as_ptr().add(k)) };
        for (sum, row) in sum.iter_mut().zip(&rows) {
            // SAFETY: as above.
            *sum = x.fma(unsafe { s.load_at(row.as_ptr().add(k)) }, *sum);
        }
    }
    if whole < n {
        let x = s.load_head(&a[whole..]);
        for (sum, row) in sum.iter_mut().zip(&rows) {
            *sum = x.fma(s.load_head(&row[whole..]), *sum);
        }
    }
    sum.map(|lanes| s.tree(lanes))
}

/// Adds `factor * x` to `y`, one fused multiply-add an element.
#[inline(always)]
pub fn axpy<S: Simd>(s: S, factor: f32, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len());
    let factor = s.splat(factor);
    let (mut from, mut to) = (x.chunks_exact(LANES), y.chunks_exact_mut(LANES));
    for (x, y) in from.by_ref().zip(to.by_ref()) {
        s.store(y, s.load(x).fma(factor, s.load(y)));
    }
    let (x, y) = (from.remainder(), to.into_remainder());
    s.store_head(y, s.load_head(x).fma(factor, s.load_head(y)));
}

/// Replaces each element of `y` by `f` of it, eight at a time.
#[inline(always)]
pub fn map<S: Simd>(s: S, y: &mut [f32], f: impl Fn(S::F) -> S::F) {
    let mut chunks = y.chunks_exact_mut(LANES);
    for y in chunks.by_ref() {
        s.store(y, f(s.load(y)));
    }
    let y = chunks.into_remainder();
    s.store_head(y, f(s.load_head(y)));
}

/// The sum of a row.
#[inline(always)]
pub fn sum<S: Simd>(s: S, x: &[f32]) -> f32 {
    let mut chunks = x.chunks_exact(LANES);
    let mut sum = s.splat(0.0);
    for x in chunks.by_ref() {
        sum = sum + s.load(x);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        sum = sum + s.load_head(rest);
    }
    s.tree(sum)
}

/// The sum of the squares of a row.
#[inline(always)]
pub fn sum_squares<S: Simd>(s: S, x: &[f32]) -> f32 {
    dot(s, x, x)
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
