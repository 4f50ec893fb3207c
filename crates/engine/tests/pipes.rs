//! Prefix files that are damaged, or pipes: opening one waits for its other end.
//!
//! A process that is started has this one's open files for a moment, a directory's lock among them. So
//! what makes pipes, by a program, is apart from every other test, and one test at a time.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use finback_engine::testing::{Call, FakeRunner, hashed, serial_reply};
use finback_engine::{
    CacheOptions, DiskOptions, Engine, Event, Options, Parts, Prefix, Reply, Request,
};
use finback_model::{RunnerInfo, SlotId};

const CONTEXT: usize = 2048;
const VOCAB: usize = 50;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn ids(seed: u32, count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| (at * 7 + at / 11 + seed * 13) % VOCAB as u32).collect()
}

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// An engine that keeps prefixes in `dir`; it runs a round for each permit, or all once there is no gate.
fn engine(dir: &Path, gate: Option<Receiver<()>>) -> Engine {
    let hook = move |call, _: &[SlotId]| {
        if let (Call::Windows, Some(gate)) = (call, &gate) {
            let _ = gate.recv();
        }
        Ok(())
    };
    let info = RunnerInfo { chunk_rows: 64, blocks: 16, ..FakeRunner::small(2, CONTEXT, VOCAB) };
    let runner = FakeRunner::new(info, hashed(VOCAB)).on_call(hook);
    let cache = CacheOptions { bytes: 1 << 20, every: usize::MAX };
    let options = Options { parallel: 2, cache, ..Options::default() };
    let disk = DiskOptions { dir: dir.to_owned(), bytes: 1 << 20, key: [3; 32] };
    let parts = Parts { disk: Some(disk), ..Parts::default() };
    Engine::start_with(Box::new(runner), options, parts).unwrap()
}

/// A reply's tokens and what the cache had of its prompt.
fn drain(reply: &mut Reply) -> (Vec<u32>, Option<Prefix>) {
    let (mut tokens, mut seen) = (Vec::new(), None);
    while let Some(event) = reply.next_blocking() {
        match event {
            Event::Started { prefix, .. } => seen = prefix,
            Event::Token { id, .. } => tokens.push(id),
            Event::Finished { .. } => return (tokens, seen),
            Event::Failed { message } => panic!("{message}"),
            _ => {}
        }
    }
    panic!("the reply ended without a last event");
}

fn serial(request: &Request) -> Vec<u32> {
    serial_reply(&hashed(VOCAB), CONTEXT, request).0
}

fn wait_for(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !what() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

#[test]
fn a_pipe_is_passed_over() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("p.prefix");
    pipe(&path);
    let engine = engine(dir.path(), None);
    let request = Request::greedy(ids(1, 20), 3);
    assert_eq!(drain(&mut engine.handle().submit(request.clone()).unwrap()).0, serial(&request));
    assert_eq!(engine.handle().stats().disk_entries, 0);
    assert!(path.exists());
}

#[test]
fn replies_go_on_while_a_prefix_is_read_from_the_disk() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let (permits, gate): (SyncSender<()>, Receiver<()>) = sync_channel(1000);
    let kept = Request::greedy(ids(1, 400), 1);
    let first = engine(dir.path(), None);
    assert_eq!(drain(&mut first.handle().submit(kept.clone()).unwrap()).0, serial(&kept));
    drop(first);
    // Whoever opens a pipe to read waits for its other end.
    let engine = engine(dir.path(), Some(gate));
    let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let file = entries.into_iter().find(|path| path.extension().is_some_and(|e| e == "prefix"));
    let file = file.unwrap();
    std::fs::remove_file(&file).unwrap();
    pipe(&file);
    let handle = engine.handle();
    let other = Request::greedy(ids(2, 20), 300);
    let mut running = handle.submit(other.clone()).unwrap();
    assert!(wait_for(|| handle.load().running == 1));
    // The running reply cannot end before this one is there.
    let later = Request::greedy([ids(1, 400), ids(3, 9)].concat(), 5);
    let mut waiting = handle.submit(later.clone()).unwrap();
    drop(permits);
    let tokens = std::thread::spawn(move || drain(&mut running).0);
    let went_on = wait_for(|| tokens.is_finished());
    // Its other end: nothing comes, and the prompt runs without.
    drop(std::fs::File::options().write(true).open(&file).unwrap());
    assert!(went_on, "the running reply waited for the disk");
    assert_eq!(tokens.join().unwrap(), serial(&other));
    assert_eq!(drain(&mut waiting), (serial(&later), Some(Prefix::default())));
}

#[test]
fn a_damaged_prefix_leaves_the_shorter_one_its_turn() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let first = engine(dir.path(), None);
    for count in [300, 500] {
        let kept = Request::greedy(ids(1, count), 1);
        assert_eq!(drain(&mut first.handle().submit(kept.clone()).unwrap()).0, serial(&kept));
    }
    drop(first);
    let later = Request::greedy([ids(1, 500), ids(3, 9)].concat(), 5);
    let restored = || {
        let engine = engine(dir.path(), None);
        let (tokens, prefix) = drain(&mut engine.handle().submit(later.clone()).unwrap());
        assert_eq!(tokens, serial(&later));
        prefix.unwrap().restored
    };
    assert!(restored() >= 500);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // Of the longer ones the last byte of the sum, which only reading finds out.
        if bytes.len() > 48 && u64::from_le_bytes(bytes[40..48].try_into().unwrap()) >= 500 {
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    assert!((300..500).contains(&restored()));
}
