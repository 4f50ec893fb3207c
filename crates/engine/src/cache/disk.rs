//! The disk tier of the prefix cache: one file a kept state, written by a thread of its own.
//!
//! A file is written under a temporary name and renamed, so that a crash leaves no half of one under
//! its own. What cannot be read is passed over: a prompt can run without it.

mod file;

use std::collections::HashMap;
use std::fs::{self, TryLockError};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use finback_model::{Snapshot, SnapshotId};

use super::PrefixCache;
#[cfg(feature = "testing")]
pub use file::reread_prefix;
use file::{Head, PARTIAL, SUFFIX, Unread, name};

/// States that wait to be written; more are not written.
const WAITING: usize = 4;

/// Tokens of the shortest state that is written: running fewer costs less than reading a file.
const SHORTEST: usize = 256;

/// The file whose lock says that a process uses the directory.
const LOCK: &str = "lock";

/// What is said to a second one.
const IN_USE: &str = "another finback uses this directory; one at a time may";

/// Where kept prefixes outlive the process.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// The directory; made where it is not there.
    pub dir: PathBuf,
    /// Bytes its files may take.
    pub bytes: u64,
    /// Names everything a state depends on beside its tokens: checkpoint, backend, numerics, version.
    /// Files with another key are left alone.
    pub key: [u8; 32],
}

/// What is kept on disk.
#[derive(Debug)]
pub(crate) struct Disk {
    options: DiskOptions,
    /// Its snapshots' ids name files; their bytes are the files'.
    index: PrefixCache,
    files: HashMap<SnapshotId, String>,
    next: SnapshotId,
    /// `None` once the disk is given up.
    work: Option<SyncSender<Work>>,
    writer: Option<JoinHandle<()>>,
    failed: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    /// Held as long as the directory is this process's.
    _lock: fs::File,
}

/// What the writer does.
enum Work {
    Write { head: Head, ids: Vec<u32>, state: Vec<u8> },
    Remove { file: String },
}

impl Disk {
    /// Opens the directory: makes it where it is not there, removes what a crash left half written,
    /// and finds the files of this key.
    ///
    /// # Errors
    /// The directory cannot be made or listed, another process has it, or the thread cannot start.
    pub(crate) fn open(options: DiskOptions) -> std::io::Result<Self> {
        fs::create_dir_all(&options.dir)?;
        let lock = fs::File::create(options.dir.join(LOCK))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::new(ErrorKind::ResourceBusy, IN_USE),
            TryLockError::Error(error) => error,
        })?;
        let (work, inbox) = sync_channel(WAITING);
        let (failed, written) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (dir, key) = (options.dir.clone(), options.key);
        let counts = (Arc::clone(&failed), Arc::clone(&written));
        let writer = std::thread::Builder::new().name("prefix-writer".into()).spawn(move || {
            for work in inbox {
                let done = match &work {
                    Work::Write { head, ids, state } => file::write(&dir, &key, head, ids, state),
                    Work::Remove { file } => fs::remove_file(dir.join(file)),
                };
                match (done, work) {
                    (Ok(()), Work::Write { .. }) => drop(counts.1.fetch_add(1, Relaxed)),
                    (Err(error), Work::Write { .. }) => {
                        counts.0.fetch_add(1, Relaxed);
                        tracing::warn!(dir = %dir.display(), %error, "a prefix was not written");
                    }
                    // Whoever removed it before has saved the work.
                    (_, Work::Remove { .. }) => {}
                }
            }
        })?;
        let limit = usize::try_from(options.bytes).unwrap_or(usize::MAX);
        let mut disk = Self {
            index: PrefixCache::new(limit),
            files: HashMap::new(),
            next: 0,
            work: Some(work),
            writer: Some(writer),
            failed,
            written,
            options,
            _lock: lock,
        };
        disk.scan()?;
        Ok(disk)
    }

    fn scan(&mut self) -> std::io::Result<()> {
        let mut known = 0;
        for entry in fs::read_dir(&self.options.dir)? {
            let path = entry?.path();
            let has = |suffix: &str| path.extension().is_some_and(|found| found == suffix);
            if has(PARTIAL) {
                // Left by a crash; nobody else writes into this directory while we do.
                let _ = fs::remove_file(&path);
            } else if has(SUFFIX) {
                // Opening a pipe would wait for its other end.
                if !fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                    tracing::info!(file = %path.display(), "no file: passed over");
                    continue;
                }
                match file::head(&path, &self.options.key) {
                    Ok((head, ids, bytes)) => {
                        known += 1;
                        self.add(&ids, &head, bytes);
                    }
                    Err(reason) => {
                        tracing::info!(file = %path.display(), %reason, "a kept prefix is passed over");
                        if let Unread::Broken(_) = reason {
                            let _ = fs::remove_file(&path);
                        }
                    }
                }
            }
        }
        let dir = self.options.dir.display();
        tracing::info!(%dir, prefixes = known, "kept prefixes on disk");
        Ok(())
    }

    /// Files, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.index.entries, self.index.bytes)
    }

    /// States written, and those that could not be.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Whether a state of these tokens is wanted: long enough, and not there.
    pub(crate) fn wants(&self, ids: &[u32], snapshot: &Snapshot) -> bool {
        self.work.is_some() && ids.len() >= SHORTEST && !self.index.has(ids, snapshot.exact)
    }

    /// Hands a state to the writer, which drops it where too many wait.
    pub(crate) fn put(&mut self, ids: &[u32], snapshot: &Snapshot, state: Vec<u8>) {
        let head = Head { least: snapshot.least, exact: snapshot.exact };
        let bytes = file::size(ids.len(), state.len());
        let Some(work) = &self.work else { return };
        match work.try_send(Work::Write { head, ids: ids.to_vec(), state }) {
            Ok(()) => self.add(ids, &head, bytes),
            Err(TrySendError::Full(_)) => tracing::debug!("the disk is too slow for a prefix"),
            Err(TrySendError::Disconnected(_)) => self.work = None,
        }
    }

    /// Takes a file into the index; what is over the limit then is removed.
    fn add(&mut self, ids: &[u32], head: &Head, bytes: u64) {
        let (id, at) = (self.next, ids.len());
        self.next += 1;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let snapshot = Snapshot { id, at, least: head.least, exact: head.exact, bytes };
        let own = name(&self.options.key, ids);
        self.files.insert(id, own.clone());
        for gone in self.index.insert(ids, snapshot, &[]) {
            // A state that replaces another of the same tokens has the same name.
            if let Some(file) = self.files.remove(&gone)
                && (gone == id || file != own)
            {
                self.remove(file);
            }
        }
    }

    fn remove(&self, file: String) {
        // Removing waits for what is written before it, so that it finds the file.
        if let Some(work) = &self.work
            && let Err(TrySendError::Full(Work::Remove { file })) =
                work.try_send(Work::Remove { file })
        {
            let _ = fs::remove_file(self.path(&file));
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.options.dir.join(file)
    }

    /// Begins to read the longest state that `prompt` may start from, where it is longer than `than`: on
    /// a thread of its own, as reading and checking a long one takes as long as many rounds.
    pub(crate) fn begin(&self, prompt: &[u32], than: usize) -> Option<Reading> {
        let snapshot = self.index.find(prompt).snapshot.filter(|snapshot| snapshot.at > than)?;
        let path = self.path(self.files.get(&snapshot.id)?);
        let (key, ids) = (self.options.key, prompt[..snapshot.at].to_vec());
        let read = move || {
            file::read(&path, &key, &ids)
                .inspect_err(|reason| {
                    tracing::warn!(file = %path.display(), %reason, "a kept prefix is passed over");
                })
                .ok()
        };
        let thread = std::thread::Builder::new().name("prefix-reader".into()).spawn(read).ok()?;
        Some(Reading { id: snapshot.id, at: snapshot.at, thread })
    }

    /// What was read for `prompt`: its tokens and its bytes; waits for them. A state that cannot be read
    /// is dropped.
    pub(crate) fn end(&mut self, prompt: &[u32], reading: Reading) -> Option<(usize, Vec<u8>)> {
        let Reading { id, at, thread } = reading;
        let state = thread.join().ok().flatten();
        // Others may have come and gone meanwhile.
        let found = self.index.find(prompt);
        if found.snapshot.is_some_and(|snapshot| snapshot.id == id) {
            match &state {
                Some(_) => self.index.used(&found),
                None => {
                    self.index.drop_found(&found);
                    if let Some(file) = self.files.remove(&id) {
                        self.remove(file);
                    }
                }
            }
        }
        state.map(|state| (at, state))
    }
}

/// A state on its way from the disk.
#[derive(Debug)]
pub(crate) struct Reading {
    id: SnapshotId,
    at: usize,
    thread: JoinHandle<Option<Vec<u8>>>,
}

impl Reading {
    /// Whether it need not be waited for.
    pub(crate) fn is_there(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Waits until everything is written.
impl Drop for Disk {
    fn drop(&mut self) {
        self.work = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

#[cfg(test)]
mod tests;
