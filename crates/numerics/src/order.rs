//! The summation order of every reduction on the CPU.
//!
//! A sum over `k` runs in [`LANES`] lanes: lane `l` takes the terms `k` with `k % 8 == l` in
//! ascending order, a product entering by one fused multiply-add. When the length is not a
//! multiple of 8 the missing terms count as +0. [`tree`] then adds the lanes. Linear layers keep
//! the lanes and the tree and assign `k` to lanes by the stored format (`finback-cpu`, `linear`).

use std::ops::Add;

/// Lanes of a reduction.
pub const LANES: usize = 8;

/// Adds eight lanes: `l` with `l + 4`, then `l` with `l + 2`, then the last two. A lane is a number,
/// or a vector with that lane of several sums.
#[inline(always)]
pub fn tree<T: Copy + Add<Output = T>>(lane: [T; LANES]) -> T {
    let four = [lane[0] + lane[4], lane[1] + lane[5], lane[2] + lane[6], lane[3] + lane[7]];
    let two = [four[0] + four[2], four[1] + four[3]];
    two[0] + two[1]
}

/// The sum of `term(k)` for `k` in `0..n`, in the house order.
pub fn sum(n: usize, term: impl Fn(usize) -> f32) -> f32 {
    let mut lane = [0.0f32; LANES];
    for k in 0..n.next_multiple_of(LANES) {
        lane[k % LANES] += if k < n { term(k) } else { 0.0 };
    }
    tree(lane)
}

/// The dot product of two rows of one length, in the house order.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut lane = [0.0f32; LANES];
    for k in 0..a.len().next_multiple_of(LANES) {
        let (x, y) = if k < a.len() { (a[k], b[k]) } else { (0.0, 0.0) };
        lane[k % LANES] = x.mul_add(y, lane[k % LANES]);
    }
    tree(lane)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_pairs_lanes_four_two_one_apart() {
        // 2^24 + 1 is lost in f32, so each pairing leaves its own trace.
        let big = 16_777_216.0f32;
        assert_eq!(tree([big, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), big);
        assert_eq!(tree([big, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]), big + 2.0);
        assert_eq!(tree([big, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]), big + 2.0);
        assert_eq!(tree([1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), 36.0);
    }

    #[test]
    fn sums_and_dots_agree_with_exact_integers() {
        for n in [0, 1, 7, 8, 9, 31, 64, 100] {
            let a: Vec<f32> = (0..n).map(|k| k as f32).collect();
            let want: f32 = (0..n).map(|k| (k * k) as f32).sum();
            assert_eq!(dot(&a, &a), want);
            assert_eq!(sum(n, |k| a[k] * a[k]), want);
        }
    }
}
