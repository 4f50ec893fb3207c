use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

#[test]
fn every_worker_runs_every_task_once() {
    for threads in [1, 2, 3, 8] {
        let mut team = Team::new(threads).unwrap();
        assert_eq!(team.threads(), threads);
        let counts: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
        for _ in 0..2000 {
            team.run(|worker| {
                counts[worker].fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 2000));
    }
}

#[test]
fn writes_of_one_task_are_seen_by_the_next() {
    let mut team = Team::new(4).unwrap();
    let values: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(1)).collect();
    for _ in 0..3000 {
        // Each worker reads its neighbour's value of the round before.
        let before: Vec<u64> = values.iter().map(|v| v.load(Ordering::Relaxed)).collect();
        team.run(|w| {
            let next = before[(w + 1) % 4].wrapping_mul(3).wrapping_add(w as u64);
            values[w].store(next, Ordering::Relaxed);
        })
        .unwrap();
        for w in 0..4 {
            let want = before[(w + 1) % 4].wrapping_mul(3).wrapping_add(w as u64);
            assert_eq!(values[w].load(Ordering::Relaxed), want);
        }
    }
}

#[test]
fn workers_wake_up_after_they_parked() {
    let mut team = Team::new(3).unwrap();
    let count = AtomicUsize::new(0);
    for pause_ms in [0, 30, 1, 50] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        team.run(|worker| {
            // The caller is left waiting long enough to park as well.
            if worker == 2 {
                std::thread::sleep(Duration::from_millis(pause_ms));
            }
            count.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
    }
    assert_eq!(count.load(Ordering::Relaxed), 12);
}

#[test]
fn a_panic_is_an_error_and_the_team_goes_on() {
    let mut team = Team::new(4).unwrap();
    for bad in [0, 1, 3] {
        let done = AtomicUsize::new(0);
        let error = team
            .run(|worker| {
                assert!(worker != bad, "worker {worker} fails");
                done.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap_err();
        let message = format!("worker {bad} fails");
        assert_eq!(error, TeamError::Panicked { worker: bad, threads: 4, message });
        assert_eq!(done.load(Ordering::Relaxed), 3);
        team.run(|_| {}).unwrap();
    }
}

#[test]
fn indices_are_each_taken_once() {
    let mut team = Team::new(3).unwrap();
    for count in [0, 1, 2, 100] {
        let seen: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
        team.each(count, |_, i| {
            seen[i].fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1));
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
