//! How Engram table rows are addressed: primes, multipliers, and the hash of the last tokens.
//!
//! Column `(n - 2) * heads + head` of an Engram layer hashes the last `n` compressed ids; its rows
//! start at the sum of the primes before it in its layer (model-spec section 7).

mod numpy;

use finback_ops::Engram;

use crate::config::EngramConfig;
use numpy::Generator;

/// Seed of an Engram layer's multipliers, times the layer.
const SEED: u64 = 10007;

/// The modulus of every column, by Engram layer.
pub fn primes(e: &EngramConfig) -> Vec<Vec<u64>> {
    primes_from(e.vocab_size, e.layer_ids.len(), e.columns())
}

/// The primes from `from` on, `columns` for each of `tables`.
///
/// The release scans upwards anew for each n-gram size and skips every prime used before; those are
/// always the first ones it meets, so one ascending run gives the same.
pub(crate) fn primes_from(from: u64, tables: usize, columns: usize) -> Vec<Vec<u64>> {
    let mut candidates = (from..).filter(|&n| is_prime(n));
    (0..tables).map(|_| candidates.by_ref().take(columns).collect()).collect()
}

/// The odd multipliers of an Engram layer, by distance back: `max_ngram_size` of them.
///
/// Their range keeps the product with any compressed id below 2^63.
pub fn multipliers(e: &EngramConfig, layer: usize) -> Vec<i64> {
    let bound = (i64::MAX as u64 / e.compressed_vocab_size as u64 / 2).max(1);
    let mut rng = Generator::new(SEED * layer as u64);
    (0..e.max_ngram_size).map(|_| 2 * rng.below(bound) as i64 + 1).collect()
}

/// Everything a device needs to address the tables. `map` takes each token id to its compressed id.
///
/// The caller has checked that `map` covers the vocabulary and counts `compressed_vocab_size`.
pub fn address(e: &EngramConfig, map: Vec<u32>) -> Engram {
    Engram {
        pad: map[e.pad_token_id as usize],
        map,
        ngram: e.max_ngram_size,
        heads: e.n_heads,
        dim: e.head_dim,
        multipliers: e.layer_ids.iter().map(|&layer| multipliers(e, layer)).collect(),
        primes: primes(e).into_iter().map(|p| p.into_iter().map(|n| n as i64).collect()).collect(),
    }
}

/// Appends the table rows of one position in Engram layer `which`, one a column, to `out`.
///
/// `recent` holds compressed ids, the position's own first, then back in order. `None` is an image
/// token; it and the text's start block everything before them, which counts as the pad id.
pub fn rows(e: &Engram, which: usize, recent: &[Option<u32>], out: &mut Vec<u64>) {
    let (primes, multipliers) = (&e.primes[which], &e.multipliers[which]);
    let (mut mixed, mut base, mut alive) = (0i64, 0u64, true);
    for (back, &multiplier) in multipliers.iter().enumerate() {
        let id = recent.get(back).copied().flatten();
        alive &= id.is_some();
        let id = id.filter(|_| alive).unwrap_or(e.pad);
        mixed ^= i64::from(id).wrapping_mul(multiplier);
        if back > 0 {
            for &prime in &primes[(back - 1) * e.heads..][..e.heads] {
                out.push(mixed.rem_euclid(prime) as u64 + base);
                base += prime as u64;
            }
        }
    }
}

/// Deterministic Miller-Rabin: these bases decide every 64-bit number.
fn is_prime(n: u64) -> bool {
    const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
    if n < 2 {
        return false;
    }
    if let Some(p) = BASES.iter().find(|&&p| n.is_multiple_of(p)) {
        return n == *p;
    }
    let twos = (n - 1).trailing_zeros();
    let odd = (n - 1) >> twos;
    BASES.iter().all(|&base| {
        let mut x = power(base, odd, n);
        if x == 1 || x == n - 1 {
            return true;
        }
        (1..twos).any(|_| {
            x = times(x, x, n);
            x == n - 1
        })
    })
}

fn times(a: u64, b: u64, modulus: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(modulus)) as u64
}

fn power(mut base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = times(result, base, modulus);
        }
        base = times(base, base, modulus);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests;
