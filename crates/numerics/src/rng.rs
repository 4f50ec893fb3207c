//! Counter-based random numbers: a draw is a function of (seed, position, token id) alone.
//!
//! Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3").
//! The key is the seed; the counter holds the position, and the token id divided by four, whose
//! remainder picks one of the four words.

use crate::math;

/// The multipliers of the two products, and the steps of the two key words.
const MULTIPLY: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const STEP: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// Philox4x32-10: four random words for a counter under a key.
#[inline]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (mut c, mut k) = (counter, key);
    for _ in 0..10 {
        let first = u64::from(MULTIPLY[0]) * u64::from(c[0]);
        let second = u64::from(MULTIPLY[1]) * u64::from(c[2]);
        c = [
            (second >> 32) as u32 ^ c[1] ^ k[0],
            second as u32,
            (first >> 32) as u32 ^ c[3] ^ k[1],
            first as u32,
        ];
        k = [k[0].wrapping_add(STEP[0]), k[1].wrapping_add(STEP[1])];
    }
    c
}

/// A word as a number in (0, 1): at least 2^-33, at most 1 - 2^-24.
#[inline]
pub fn unit(word: u32) -> f32 {
    // 2^-32 * word + 2^-33, rounded once; the top words would round to 1.
    let u = (word as f32).mul_add(1.0 / 4_294_967_296.0, 1.0 / 8_589_934_592.0);
    u.min(1.0 - f32::EPSILON / 2.0)
}

/// The uniform draws in (0, 1) of the tokens `4 * quad` to `4 * quad + 3` at `position`.
#[inline]
pub fn uniform4(seed: u64, position: u64, quad: u32) -> [f32; 4] {
    let key = [seed as u32, (seed >> 32) as u32];
    philox([position as u32, (position >> 32) as u32, quad, 0], key).map(unit)
}

/// The uniform draw in (0, 1) of `token` at `position`.
#[inline]
pub fn uniform(seed: u64, position: u64, token: u32) -> f32 {
    uniform4(seed, position, token / 4)[(token % 4) as usize]
}

/// Gumbel noise of a uniform draw: -ln(-ln(1 - u)).
///
/// 1 - u is as uniform as u; taken this way the large values, which decide a choice, come from
/// small u, where f32 is dense.
#[inline]
pub fn gumbel(u: f32) -> f32 {
    -math::ln(-math::log1p(-u))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_vectors() {
        let ones = u32::MAX;
        let cases = [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([ones; 4], [ones; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ];
        for (counter, key, want) in cases {
            assert_eq!(philox(counter, key), want);
        }
    }

    #[test]
    fn draws_stay_inside_the_open_interval() {
        assert_eq!(unit(0), 2f32.powi(-33));
        assert_eq!(unit(u32::MAX), 1.0 - 2f32.powi(-24));
        for word in (0..=u32::MAX).step_by(65_521) {
            let u = unit(word);
            assert!(u > 0.0 && u < 1.0 && gumbel(u).is_finite());
        }
        assert!(gumbel(unit(0)).is_finite() && gumbel(unit(u32::MAX)).is_finite());
    }

    #[test]
    fn a_draw_depends_on_seed_position_and_token() {
        let base = uniform(7, 100, 5);
        assert_eq!(base, uniform4(7, 100, 1)[1]);
        for other in [uniform(8, 100, 5), uniform(7, 101, 5), uniform(7, 100, 6)] {
            assert_ne!(base, other);
        }
        assert_ne!(base, uniform(7 | 1 << 40, 100, 5));
        assert_ne!(base, uniform(7, 100 | 1 << 40, 5));
    }

    #[test]
    fn gumbel_noise_picks_by_probability() {
        // argmax(ln p + g) draws from p.
        let p = [0.5f64, 0.25, 0.125, 0.125];
        let mut count = [0u32; 4];
        let n = 200_000u32;
        for position in 0..n {
            let score =
                |t: usize| p[t].ln() + f64::from(gumbel(uniform(3, u64::from(position), t as u32)));
            let best = (0..4).max_by(|&a, &b| score(a).total_cmp(&score(b))).unwrap();
            count[best] += 1;
        }
        for (seen, p) in count.iter().zip(p) {
            let sigma = (f64::from(n) * p * (1.0 - p)).sqrt();
            assert!((f64::from(*seen) - f64::from(n) * p).abs() < 5.0 * sigma, "{count:?}");
        }
    }
}
