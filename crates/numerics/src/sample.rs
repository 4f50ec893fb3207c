//! The token of a logit row: greedy, or a draw keyed by (seed, position, token id).
//!
//! With x the row, m its largest logit and T the temperature, token i has z_i = (x_i - m) / T, its
//! log-probability but for a constant. Filters keep the first tokens in order of falling logit,
//! ties by rising id: so a filter is the last key it keeps. Among the kept the largest z_i plus
//! Gumbel noise wins, which draws token i with its probability (Gumbel-max).
//!
//! Probabilities are summed as integers, so the sum does not depend on its order.

use crate::{math, rng};

/// How a token is chosen; the filters apply in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Divides the logits; 0 is greedy. Not negative.
    pub temperature: f32,
    /// Keeps this many of the largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keeps the fewest of the largest probabilities whose share of the kept reaches this, at least
    /// one; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens whose probability is at least this share of the largest; 0 keeps all.
    pub min_p: f32,
    /// Keys the draw.
    pub seed: u64,
}

/// Working memory of this module's functions; grows to a row's length once.
#[derive(Debug, Clone, Default)]
pub struct Scratch {
    buckets: Vec<Bucket>,
    keys: Vec<u64>,
}

/// Chooses the token at `position`, the one after `position` others; `None` where a logit is NaN or
/// infinite, or where there is none.
#[inline(always)]
pub fn choose(
    logits: &[f32],
    params: &Params,
    position: u64,
    scratch: &mut Scratch,
) -> Option<u32> {
    let (best, max) = largest(logits)?;
    if params.temperature == 0.0 {
        return Some(best);
    }
    let row = Row { logits, max, temperature: params.temperature };
    let last = last_kept(&row, params, scratch);
    Some(draw(&row, best, last, params.min_p, params.seed, position))
}

/// The log-probability of `id` in the row's own distribution (temperature 1, no filter), and in
/// `top` the `count` largest with their ids, largest first, ties by rising id. `None` where
/// [`choose`] has none, or for an id outside the row.
#[inline(always)]
pub fn log_probs(
    logits: &[f32],
    id: u32,
    count: usize,
    top: &mut Vec<(u32, f32)>,
    scratch: &mut Scratch,
) -> Option<f32> {
    let own = *logits.get(id as usize)?;
    let (_, max) = largest(logits)?;
    let row = Row { logits, max, temperature: 1.0 };
    scratch.count(&row);
    let log_total = math::ln(scratch.weigh(&row, u64::MAX) as f32 / WEIGHT_ONE);
    top.clear();
    if count > 0 {
        let last = scratch.last_of_count(&row, count);
        let kept = logits.iter().enumerate().filter(|&(id, &x)| key(id, x) <= last);
        top.extend(kept.map(|(id, &x)| (id as u32, row.z(x) - log_total)));
    }
    top.sort_unstable_by_key(|&(id, _)| key(id as usize, logits[id as usize]));
    Some(row.z(own) - log_total)
}

/// The weight of the most probable token. A lighter one than 2^-40 of it weighs nothing.
const WEIGHT_ONE: f32 = (1u64 << 40) as f32;

/// A row of finite logits under a temperature above 0.
struct Row<'a> {
    logits: &'a [f32],
    max: f32,
    temperature: f32,
}

impl Row<'_> {
    #[inline(always)]
    fn z(&self, x: f32) -> f32 {
        (x - self.max) / self.temperature
    }

    /// The token's probability in units that sum exactly.
    #[inline(always)]
    fn weight(&self, x: f32) -> u64 {
        (math::exp(self.z(x)) * WEIGHT_ONE) as i64 as u64
    }
}

/// The largest logit and the lowest id that has it; `None` unless all are finite.
#[inline(always)]
fn largest(logits: &[f32]) -> Option<(u32, f32)> {
    let max = logits.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
    if !logits.iter().fold(true, |all, x| all & x.is_finite()) {
        return None;
    }
    let best = logits.iter().position(|&x| x == max)?;
    Some((best as u32, max))
}

/// Orders tokens by falling logit, then by rising id; the id is the low half.
#[inline(always)]
fn key(id: usize, x: f32) -> u64 {
    let bits = (x + 0.0).to_bits(); // -0 is 0
    let rising = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!rising) << 32 | id as u64
}

/// The logit of a key.
#[inline(always)]
fn logit(key: u64) -> f32 {
    let rising = !((key >> 32) as u32);
    f32::from_bits(if rising >> 31 == 1 { rising & !(1 << 31) } else { !rising })
}

/// No key up to `last` has a logit below this.
#[inline(always)]
fn floor(last: u64) -> f32 {
    if last == u64::MAX { f32::MIN } else { logit(last) }
}

/// Tokens whose z lies in one step of 1 / 64; every one comes before those of the next bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    tokens: usize,
    weight: u64,
}

/// The last bucket takes everything below z = -32, which weighs nothing.
const BUCKETS: usize = 32 * 64 + 1;

/// Tokens looked at together, so that their arithmetic can run in vectors.
const BLOCK: usize = 64;

#[inline(always)]
fn bucket(z: f32) -> usize {
    (z * -64.0).min(BUCKETS as f32 - 1.0) as u32 as usize
}

/// The largest key that `top_k` and `top_p` keep.
#[inline(always)]
fn last_kept(row: &Row<'_>, params: &Params, scratch: &mut Scratch) -> u64 {
    let top_k = params.top_k as usize;
    let by_count = top_k > 0 && top_k < row.logits.len();
    let by_share = params.top_p < 1.0;
    if !by_count && !by_share {
        return u64::MAX;
    }
    scratch.count(row);
    let last = if by_count { scratch.last_of_count(row, top_k) } else { u64::MAX };
    if by_share { scratch.last_of_share(row, params.top_p, last) } else { last }
}

impl Scratch {
    /// Sorts the row into buckets, without weights.
    #[inline(always)]
    fn count(&mut self, row: &Row<'_>) {
        self.buckets.clear();
        self.buckets.resize(BUCKETS, Bucket::default());
        for &x in row.logits {
            self.buckets[bucket(row.z(x))].tokens += 1;
        }
    }

    /// Adds the weights of the keys up to `last` to their buckets; returns the sum.
    #[inline(always)]
    fn weigh(&mut self, row: &Row<'_>, last: u64) -> u64 {
        let mut total = 0;
        let floor = floor(last);
        for (block, xs) in row.logits.chunks(BLOCK).enumerate() {
            if xs.iter().fold(true, |all, &x| all & (x < floor)) {
                continue;
            }
            let mut weights = [0u64; BLOCK];
            for (weight, &x) in weights.iter_mut().zip(xs) {
                *weight = row.weight(x);
            }
            for ((id, &x), weight) in (block * BLOCK..).zip(xs).zip(weights) {
                if key(id, x) <= last {
                    self.buckets[bucket(row.z(x))].weight += weight;
                    total += weight;
                }
            }
        }
        total
    }

    /// The keys of bucket `index`, in order.
    #[inline(always)]
    fn sort_bucket(&mut self, row: &Row<'_>, index: usize) {
        self.keys.clear();
        let own = row.logits.iter().enumerate().filter(|&(_, &x)| bucket(row.z(x)) == index);
        self.keys.extend(own.map(|(id, &x)| key(id, x)));
        self.keys.sort_unstable();
    }

    /// The last of the first `count` keys, at least one and no more than there are.
    #[inline(always)]
    fn last_of_count(&mut self, row: &Row<'_>, count: usize) -> u64 {
        let mut left = count;
        for index in 0..self.buckets.len() {
            let tokens = self.buckets[index].tokens;
            if tokens >= left {
                self.sort_bucket(row, index);
                return self.keys[left - 1];
            }
            left -= tokens;
        }
        u64::MAX
    }

    /// The last of the fewest first keys that have `share` of the weight of those up to `last`, at
    /// least one key.
    #[inline(always)]
    fn last_of_share(&mut self, row: &Row<'_>, share: f32, last: u64) -> u64 {
        let total = self.weigh(row, last);
        // share * total in integers: a product of two halves that cannot overflow.
        let share = (share * 16_777_216.0) as u64;
        let wanted = (total >> 24) * share + (((total & 0xff_ffff) * share) >> 24);
        let mut left = wanted.max(1);
        for index in 0..self.buckets.len() {
            let bucket = self.buckets[index];
            if bucket.weight >= left {
                self.sort_bucket(row, index);
                for &key in &self.keys {
                    let weight = row.weight(logit(key));
                    if weight >= left {
                        return key;
                    }
                    left -= weight;
                }
            }
            left -= bucket.weight;
        }
        last
    }
}

/// No draw's Gumbel noise is above this: 33 ln 2 and a margin for rounding.
const NOISE_MAX: f32 = 22.9;

/// The token up to the key `last` with the largest z plus noise; ties to the lowest id.
#[inline(always)]
fn draw(row: &Row<'_>, best: u32, last: u64, min_p: f32, seed: u64, position: u64) -> u32 {
    // The most probable token is always kept; its score is the one to beat.
    let mut winner = best;
    let mut score = rng::gumbel(rng::uniform(seed, position, best));
    let floor = floor(last);
    for (block, xs) in row.logits.chunks(BLOCK).enumerate() {
        let hopeless = |&x: &f32| (x < floor) | (row.z(x) + NOISE_MAX < score);
        if xs.iter().fold(true, |all, x| all & hopeless(x)) {
            continue;
        }
        let first = block * BLOCK;
        let mut uniform = [[0.0; 4]; BLOCK / 4];
        for (quad, u) in uniform.iter_mut().enumerate() {
            *u = rng::uniform4(seed, position, (first / 4 + quad) as u32);
        }
        for ((id, &x), &u) in (first..).zip(xs).zip(uniform.as_flattened()) {
            let z = row.z(x);
            if z + noise_bound(u) < score || key(id, x) > last {
                continue;
            }
            if min_p > 0.0 && math::exp(z) < min_p {
                continue;
            }
            let own = z + rng::gumbel(u);
            if own > score || (own == score && (id as u32) < winner) {
                (winner, score) = (id as u32, own);
            }
        }
    }
    winner
}

/// At least the Gumbel noise of `u`, from its exponent: -ln(-ln(1 - u)) <= -ln u <= k ln 2 where
/// u >= 2^-k.
#[inline(always)]
fn noise_bound(u: f32) -> f32 {
    let k = 127 - (u.to_bits() >> 23) as i32;
    k as f32 * std::f32::consts::LN_2 + 0.001
}

#[cfg(test)]
mod tests;
