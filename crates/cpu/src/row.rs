//! Kernels of one row: norms, mixes, rotations, gates. Widths are multiples of 8.

use finback_numerics::lanes::Lanes;
use finback_numerics::{bf16, math};

use crate::simd::{LANES, Simd};

/// Most parallel streams.
pub const MAX_HC: usize = 16;

/// Rounds to bf16 where asked.
#[inline(always)]
pub fn stored<V: Lanes>(value: V, round: bool) -> V {
    if round { bf16::round(value) } else { value }
}

/// Rounds a row to bf16 in place.
#[inline(always)]
pub fn round_row<S: Simd>(s: S, row: &mut [f32]) {
    for chunk in row.chunks_exact_mut(LANES) {
        s.store(chunk, bf16::round(s.load(chunk)));
    }
}

/// The sum of `a_k * b_k` in the house order.
#[inline(always)]
pub fn dot<S: Simd>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let mut sum = s.splat(0.0);
    let (left, right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = left.remainder().iter().zip(right.remainder());
    for (a, b) in left.zip(right) {
        sum = s.load(a).fma(s.load(b), sum);
    }
    // Only the Markov rank may leave a rest.
    rest.fold(s.tree(sum), |sum, (a, b)| a.mul_add(*b, sum))
}

/// Dot products of `H` queries with `K` keys, each in the house order.
#[inline(always)]
pub fn dots<S: Simd, const H: usize, const K: usize>(
    s: S,
    q: &[f32],
    keys: &[f32],
    d: usize,
) -> [[f32; K]; H] {
    let mut sum = [[s.splat(0.0); K]; H];
    for at in (0..d).step_by(LANES) {
        let mut key = [s.splat(0.0); K];
        for (k, key) in key.iter_mut().enumerate() {
            *key = s.load(&keys[k * d + at..]);
        }
        for (h, sum) in sum.iter_mut().enumerate() {
            let q = s.load(&q[h * d + at..]);
            for (k, sum) in sum.iter_mut().enumerate() {
                *sum = q.fma(key[k], *sum);
            }
        }
    }
    sum.map(|row| row.map(|v| s.tree(v)))
}

/// `x / sqrt(mean(x^2) + eps) * weight`, in place.
#[inline(always)]
pub fn rmsnorm<S: Simd>(s: S, x: &mut [f32], weight: &[f32], eps: f32, round: bool) {
    let inverse = s.splat(inverse_rms(s, x, eps));
    for (x, w) in x.chunks_exact_mut(LANES).zip(weight.chunks_exact(LANES)) {
        s.store(x, stored(s.load(x) * inverse * s.load(w), round));
    }
}

/// `1 / sqrt(mean(x^2) + eps)`.
#[inline(always)]
pub fn inverse_rms<S: Simd>(s: S, x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(s, x, x) / x.len() as f32 + eps).sqrt()
}

/// `out = sum_i pre_i * X_i`.
#[inline(always)]
pub fn collapse<S: Simd>(s: S, streams: &[f32], pre: &[f32], out: &mut [f32], round: bool) {
    let width = out.len();
    for at in (0..width).step_by(LANES) {
        let mut sum = s.splat(0.0);
        for (i, &p) in pre.iter().enumerate() {
            sum = s.splat(p).fma(s.load(&streams[i * width + at..]), sum);
        }
        s.store(&mut out[at..], stored(sum, round));
    }
}

/// `X_j = post_j * y + sum_i comb[i][j] * X_i`, in place.
#[inline(always)]
pub fn expand<S: Simd>(
    s: S,
    streams: &mut [f32],
    y: &[f32],
    post: &[f32],
    comb: &[f32],
    round: bool,
) {
    let (hc, width) = (post.len(), y.len());
    let mut old = [s.splat(0.0); MAX_HC];
    for at in (0..width).step_by(LANES) {
        for (i, old) in old[..hc].iter_mut().enumerate() {
            *old = s.load(&streams[i * width + at..]);
        }
        let y = s.load(&y[at..]);
        for j in 0..hc {
            let mut sum = s.splat(post[j]) * y;
            for (i, &old) in old[..hc].iter().enumerate() {
                sum = s.splat(comb[i * hc + j]).fma(old, sum);
            }
            s.store(&mut streams[j * width + at..], stored(sum, round));
        }
    }
}

/// Constants of a hyper-connection site.
pub struct Mix<'a> {
    /// `[(2 + hc) * hc]`.
    pub base: &'a [f32],
    /// Of pre, post and comb.
    pub scale: [f32; 3],
    /// Added in the mixes.
    pub eps: f32,
    /// Sinkhorn iterations in all.
    pub iterations: usize,
}

/// From the mix `fn @ X` of a row, times `inverse` of the streams' RMS, to pre, post and comb
/// (model-spec section 4).
#[inline(always)]
pub fn coefficients(
    mix: &[f32],
    inverse: f32,
    site: &Mix<'_>,
    pre: &mut [f32],
    post: &mut [f32],
    comb: &mut [f32],
) {
    let hc = pre.len();
    let logit = |i: usize, part: usize| (mix[i] * inverse).fma(site.scale[part], site.base[i]);
    for i in 0..hc {
        pre[i] = math::sigmoid(logit(i, 0)) + site.eps;
        post[i] = 2.0 * math::sigmoid(logit(hc + i, 1));
    }
    for (i, row) in comb.chunks_exact_mut(hc).enumerate() {
        let mut top = f32::NEG_INFINITY;
        for (j, c) in row.iter_mut().enumerate() {
            *c = logit(2 * hc + i * hc + j, 2);
            top = if *c > top { *c } else { top };
        }
        let mut sum = 0.0;
        for c in row.iter_mut() {
            *c = math::exp(*c - top);
            sum += *c;
        }
        for c in row {
            *c = *c / sum + site.eps;
        }
    }
    columns(comb, hc, site.eps);
    for _ in 1..site.iterations {
        for row in comb.chunks_exact_mut(hc) {
            let sum = row.iter().fold(0.0, |sum, c| sum + c) + site.eps;
            row.iter_mut().for_each(|c| *c /= sum);
        }
        columns(comb, hc, site.eps);
    }
}

/// Divides each column by its sum plus eps.
#[inline(always)]
fn columns(comb: &mut [f32], hc: usize, eps: f32) {
    for j in 0..hc {
        let mut sum = 0.0;
        for i in 0..hc {
            sum += comb[i * hc + j];
        }
        for i in 0..hc {
            comb[i * hc + j] /= sum + eps;
        }
    }
}

/// The mean of the streams.
#[inline(always)]
pub fn mean<S: Simd>(s: S, streams: &[f32], hc: usize, out: &mut [f32], round: bool) {
    let width = out.len();
    let count = s.splat(hc as f32);
    for at in (0..width).step_by(LANES) {
        let mut sum = s.load(&streams[at..]);
        for i in 1..hc {
            sum = sum + s.load(&streams[i * width + at..]);
        }
        s.store(&mut out[at..], stored(sum / count, round));
    }
}

/// `weight * silu(min(gate, limit)) * clamp(up, -limit, limit)` into `gate`; a limit of 0 is none.
#[inline(always)]
pub fn swiglu<S: Simd>(s: S, gate: &mut [f32], up: &[f32], weight: f32, limit: f32, round: bool) {
    let (weight, high, low) = (s.splat(weight), s.splat(limit), s.splat(-limit));
    for (g, u) in gate.chunks_exact_mut(LANES).zip(up.chunks_exact(LANES)) {
        let (mut gate, mut up) = (s.load(g), s.load(u));
        if limit > 0.0 {
            // The bound comes first: a NaN in the value passes through.
            gate = high.min(gate);
            up = low.max(high.min(up));
        }
        s.store(g, stored(math::silu(gate) * up * weight, round));
    }
}

/// One stream's Engram gate and its use: `h += g * value` (model-spec section 7).
#[inline(always)]
pub fn engram_gate<S: Simd>(
    s: S,
    stream: &mut [f32],
    key: &[f32],
    qk: &[f32],
    value: &[f32],
    eps: f32,
    round: bool,
) {
    let width = stream.len();
    let mut sum = s.splat(0.0);
    for at in (0..width).step_by(LANES) {
        sum = (s.load(&stream[at..]) * s.load(&qk[at..])).fma(s.load(&key[at..]), sum);
    }
    let match_ = s.tree(sum) * inverse_rms(s, stream, eps) * inverse_rms(s, key, eps)
        / (width as f32).sqrt();
    let magnitude = if match_.abs() > 1e-6 || match_.is_nan() { match_.abs() } else { 1e-6 };
    let gate = s.splat(math::sigmoid(magnitude.sqrt().copysign(match_)));
    for at in (0..width).step_by(LANES) {
        let h = gate.fma(s.load(&value[at..]), s.load(&stream[at..]));
        s.store(&mut stream[at..], stored(h, round));
    }
}
