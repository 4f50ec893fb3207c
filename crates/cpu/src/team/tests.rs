use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

#[test]
fn every_index_is_taken_once_and_no_worker_is_two() {
    for threads in [1, 2, 3, 8] {
        let mut team = Team::new(threads).unwrap();
        assert_eq!(team.threads(), threads);
        let at_work: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        for count in [0, 1, 2, 100] {
            let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            for round in 1..=500 {
                team.each(count, |worker, i| {
                    assert_eq!(at_work[worker].fetch_add(1, Ordering::Relaxed), 0);
                    seen[i].fetch_add(1, Ordering::Relaxed);
                    at_work[worker].fetch_sub(1, Ordering::Relaxed);
                })
                .unwrap();
                assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == round));
            }
        }
    }
}

#[test]
fn writes_of_one_task_are_seen_by_the_next() {
    let mut team = Team::new(4).unwrap();
    let values: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(1)).collect();
    for _ in 0..3000 {
        // Each index reads its neighbour's value of the round before.
        let before: Vec<u64> = values.iter().map(|v| v.load(Ordering::Relaxed)).collect();
        let next = |i: usize| before[(i + 1) % 4].wrapping_mul(3).wrapping_add(i as u64);
        team.each(4, |_, i| values[i].store(next(i), Ordering::Relaxed)).unwrap();
        assert!((0..4).all(|i| values[i].load(Ordering::Relaxed) == next(i)));
    }
}

#[test]
fn workers_wake_up_after_they_parked() {
    let mut team = Team::new(3).unwrap();
    for pause_ms in [0, 30, 1, 50] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        let (came, workers) = (AtomicUsize::new(0), AtomicU64::new(0));
        team.each(3, |worker, _| {
            workers.fetch_or(1 << worker, Ordering::Relaxed);
            came.fetch_add(1, Ordering::Relaxed);
            // Nobody takes two: this one waits until the others are there.
            while came.load(Ordering::Relaxed) < 3 {
                std::thread::yield_now();
            }
            // The caller is left waiting long enough to park as well.
            if worker == 2 {
                std::thread::sleep(Duration::from_millis(pause_ms));
            }
        })
        .unwrap();
        assert_eq!(workers.into_inner(), 0b111);
    }
}

#[test]
fn a_panic_is_an_error_and_the_team_goes_on() {
    let mut team = Team::new(4).unwrap();
    for bad in [0, 1, 30] {
        let error = team.each(40, |_, i| assert!(i != bad, "index {i} fails")).unwrap_err();
        let TeamError::Panicked { worker, threads: 4, message } = error else { panic!("{error}") };
        assert!(worker < 4);
        assert_eq!(message, format!("index {bad} fails"));
        team.each(4, |_, _| {}).unwrap();
    }
}

#[test]
fn dropping_a_team_ends_its_threads() {
    for _ in 0..50 {
        let team = Team::new(4).unwrap();
        let gate = Arc::downgrade(&team.gate);
        drop(team);
        assert!(gate.upgrade().is_none());
    }
}
