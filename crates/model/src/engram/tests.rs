use proptest::prelude::*;

use super::*;
use crate::config::Config;

/// The released sizes.
fn release() -> EngramConfig {
    EngramConfig {
        layer_ids: vec![1, 14],
        vocab_size: 16_000_000,
        num_embeddings: vec![384_006_168, 384_016_682],
        max_ngram_size: 4,
        n_heads: 8,
        head_dim: 256,
        pad_token_id: 2,
        compressed_vocab_size: 99_092,
    }
}

/// Two columns of each size over a vocabulary of five ids; token `i` has the id `i % 5`.
fn small() -> (EngramConfig, Engram) {
    let e = EngramConfig {
        layer_ids: vec![1, 4],
        vocab_size: 64,
        num_embeddings: vec![],
        max_ngram_size: 3,
        n_heads: 2,
        head_dim: 32,
        pad_token_id: 2,
        compressed_vocab_size: 5,
    };
    let engram = address(&e, (0..20).map(|i| i % 5).collect());
    (e, engram)
}

#[test]
fn the_released_tables_have_the_released_sizes() {
    let e = release();
    let sums: Vec<usize> = primes(&e).iter().map(|p| p.iter().sum::<u64>() as usize).collect();
    assert_eq!(sums, e.num_embeddings);
}

#[test]
fn the_released_multipliers() {
    let e = release();
    assert_eq!(multipliers(&e, 1), [76632096046245, 4839876093313, 35959672319349, 73987337458391]);
    assert_eq!(
        multipliers(&e, 14),
        [67716810739261, 51510806800915, 30921347202721, 82619226485591]
    );
}

#[test]
fn primes_ascend_and_none_is_used_twice() {
    let (e, _) = small();
    assert_eq!(primes(&e), [[67, 71, 73, 79], [83, 89, 97, 101]]);
}

#[test]
fn primality_agrees_with_trial_division_and_known_hard_numbers() {
    let trial = |n: u64| n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    for n in 0..5000 {
        assert_eq!(is_prime(n), trial(n), "{n}");
    }
    // Carmichael numbers, strong pseudoprimes to small bases, and primes near the top.
    for n in [561, 1_373_653, 3_215_031_751, 3_825_123_056_546_413_051, u64::MAX] {
        assert!(!is_prime(n), "{n}");
    }
    for n in [16_000_057, 4_294_967_291, 18_446_744_073_709_551_557] {
        assert!(is_prime(n), "{n}");
    }
}

#[test]
fn columns_follow_the_equation() {
    let (_, e) = small();
    let (m, p) = (&e.multipliers[1], &e.primes[1]);
    let mut got = Vec::new();
    rows(&e, 1, &[Some(3), Some(1), Some(4)], &mut got);
    let two = (3 * m[0]) ^ m[1];
    let three = two ^ (4 * m[2]);
    let want = [
        two % p[0],
        two % p[1] + p[0],
        three % p[2] + p[0] + p[1],
        three % p[3] + p[0] + p[1] + p[2],
    ];
    assert_eq!(got, want.map(|row| row as u64));
}

#[test]
fn the_start_and_images_block_what_lies_before_them() {
    let (_, e) = small();
    let at = |recent: &[Option<u32>]| {
        let mut out = Vec::new();
        rows(&e, 0, recent, &mut out);
        out
    };
    let pad = Some(e.pad);
    assert_eq!(at(&[Some(3)]), at(&[Some(3), pad, pad]));
    assert_eq!(at(&[Some(3), None, Some(4)]), at(&[Some(3), pad, pad]));
    assert_eq!(at(&[None, Some(1), Some(4)]), at(&[pad, pad, pad]));
    assert_ne!(at(&[Some(3), Some(1), None]), at(&[Some(3), pad, pad]));
}

proptest! {
    #[test]
    fn rows_stay_inside_their_table(recent in prop::collection::vec(prop::option::of(0u32..5), 0..4)) {
        let (_, e) = small();
        for which in 0..2 {
            let mut out = Vec::new();
            rows(&e, which, &recent, &mut out);
            prop_assert_eq!(out.len(), e.columns());
            let mut base = 0;
            for (row, &prime) in out.iter().zip(&e.primes[which]) {
                prop_assert!((base..base + prime as u64).contains(row));
                base += prime as u64;
            }
        }
    }
}

#[test]
fn rows_are_those_of_the_stored_cases() {
    let mut checked = 0;
    for case in finback_testkit::cases() {
        let config = Config::load(&finback_testkit::checkpoint(&case.checkpoint)).unwrap();
        let Some(e) = &config.engram else { continue };
        let engram = address(e, finback_testkit::token_map(&case.checkpoint));
        let ids = case.prompt.iter().rev().map(|&t| Some(engram.map[t as usize]));
        let recent: Vec<_> = ids.take(engram.ngram).collect();
        for (which, layer) in e.layer_ids.iter().enumerate() {
            let mut got = Vec::new();
            rows(&engram, which, &recent, &mut got);
            assert_eq!(got, case.trace.engram_rows[layer], "{} layer {layer}", case.name);
            checked += 1;
        }
    }
    assert_eq!(checked, 20);
}
