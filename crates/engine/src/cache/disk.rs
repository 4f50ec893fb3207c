//! The disk tier of the prefix cache: one file a kept state, written by a thread of its own.
//!
//! A file is written under a temporary name and renamed, so that a crash leaves no half of one under
//! its own. What cannot be read is passed over: a prompt can run without it.

mod file;
mod writer;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use finback_model::{Snapshot, SnapshotId};

use super::PrefixCache;
use crate::handle::StartError;
#[cfg(feature = "testing")]
pub use file::reread_prefix;
use file::{Head, PARTIAL, SUFFIX, Unread, name};
pub(crate) use writer::DiskCounts;
use writer::{News, Told, Work, Write, Writer, take};

/// States that wait to be written; more are not written.
const WAITING: usize = 4;

/// Tokens of the shortest state that is written: running fewer costs less than reading a file.
const SHORTEST: usize = 256;

/// Where kept prefixes outlive the process.
#[derive(Debug, Clone)]
pub struct DiskOptions {
    /// The directory; made where it is not there.
    pub dir: PathBuf,
    /// Bytes its files may take, those of other keys among them.
    pub bytes: u64,
    /// Names everything a state depends on beside its tokens: checkpoint, backend, numerics, build.
    /// Files with another key are not read; the oldest go where the limit is reached.
    pub key: [u8; 32],
}

impl DiskOptions {
    /// Whether an engine could use the directory: makes it where it is not there.
    ///
    /// # Errors
    /// [`StartError::Disk`], as a start would say it.
    pub fn check(&self) -> Result<(), StartError> {
        let taken = take(&self.dir).and_then(|_lock| fs::read_dir(&self.dir));
        taken.map(|_| ()).map_err(|error| StartError::Disk { dir: self.dir.clone(), error })
    }
}

/// What is kept on disk.
#[derive(Debug)]
pub(crate) struct Disk {
    options: DiskOptions,
    /// Its snapshots' ids name files; their bytes are the files'.
    index: PrefixCache,
    files: HashMap<SnapshotId, String>,
    /// Files of other keys and their bytes, the oldest last.
    others: Vec<(String, u64)>,
    next: SnapshotId,
    /// `None` once the disk is given up.
    work: Option<SyncSender<Work>>,
    writer: Option<JoinHandle<()>>,
    told: Arc<Told>,
}

impl Disk {
    /// Opens the directory: makes it where it is not there, removes what a crash left half written,
    /// and finds the files of this key.
    ///
    /// # Errors
    /// The directory cannot be made or listed, another process has it, or the thread cannot start.
    pub(crate) fn open(options: DiskOptions) -> Result<Self, StartError> {
        let dir = options.dir.clone();
        Self::open_with(options, file::write).map_err(|error| StartError::Disk { dir, error })
    }

    /// [`Disk::open`] with another way to write files.
    fn open_with(options: DiskOptions, write: Write) -> std::io::Result<Self> {
        let lock = take(&options.dir)?;
        let limit = usize::try_from(options.bytes).unwrap_or(usize::MAX);
        let (dir, key) = (options.dir.clone(), options.key);
        let mut disk = Self {
            index: PrefixCache::new(limit),
            files: HashMap::new(),
            others: Vec::new(),
            next: 0,
            work: None,
            writer: None,
            told: Arc::default(),
            options,
        };
        let files = disk.scan()?;
        let (work, inbox) = sync_channel(WAITING);
        let told = Arc::clone(&disk.told);
        let writer = Writer { dir, key, write, lock: Some(lock), files, told, warned: None };
        let thread = std::thread::Builder::new().name("prefix-writer".into());
        disk.writer = Some(thread.spawn(move || writer.run(&inbox))?);
        disk.work = Some(work);
        Ok(disk)
    }

    /// Takes the files of this key into the index; their names and bytes.
    fn scan(&mut self) -> std::io::Result<HashMap<String, u64>> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.options.dir)? {
            let path = entry?.path();
            let has = |suffix: &str| path.extension().is_some_and(|found| found == suffix);
            if has(PARTIAL) {
                // Left by a crash; nobody else writes into this directory while we do.
                let _ = fs::remove_file(&path);
            } else if has(SUFFIX) {
                // Opening a pipe would wait for its other end.
                let Some(found) = fs::metadata(&path).ok().filter(fs::Metadata::is_file) else {
                    tracing::info!(file = %path.display(), "no file: passed over");
                    continue;
                };
                let reason = match file::head(&path, &self.options.key) {
                    Ok((head, ids, bytes)) => {
                        self.add(&ids, &head, bytes);
                        continue;
                    }
                    Err(reason) => reason,
                };
                tracing::info!(file = %path.display(), %reason, "a kept prefix is passed over");
                let file = path.file_name().and_then(std::ffi::OsStr::to_str);
                match (reason, file) {
                    (Unread::Broken(_), _) => drop(fs::remove_file(&path)),
                    (Unread::OtherKey, Some(file)) => {
                        let written = found.modified().unwrap_or(std::time::UNIX_EPOCH);
                        others.push((written, file.to_owned(), found.len()));
                    }
                    (Unread::Foreign(_) | Unread::OtherKey, _) => {}
                }
            }
        }
        others.sort_unstable_by(|a, b| b.cmp(a));
        self.others = others.into_iter().map(|(_, file, bytes)| (file, bytes)).collect();
        self.drop_others();
        let bytes = |file: &String| fs::metadata(self.path(file)).map_or(0, |found| found.len());
        let files: HashMap<String, u64> =
            self.files.values().map(|file| (file.clone(), bytes(file))).collect();
        let (dir, prefixes) = (self.options.dir.display(), files.len());
        let of_other_keys = self.others.len();
        tracing::info!(%dir, prefixes, of_other_keys, "kept prefixes on disk");
        Ok(files)
    }

    /// What is there and what was done, as its thread counts it.
    pub(crate) fn counts(&self) -> Arc<DiskCounts> {
        Arc::clone(&self.told.counts)
    }

    /// Drops from the index what is no longer there, and from the disk the least worth where it is full.
    fn catch_up(&mut self) {
        let News { gone, lacking, closed } = self.told.take();
        if !gone.is_empty() {
            self.files.retain(|_, file| !gone.contains(file));
            self.index.retain(|id| self.files.contains_key(&id));
        }
        let mut freed = 0;
        while freed < lacking
            && let Some((file, bytes)) = self.others.pop()
        {
            freed += bytes;
            self.drop_other(file);
        }
        let before = self.index.bytes;
        while freed + ((before - self.index.bytes) as u64) < lacking
            && let Some(dropped) = self.index.drop_one(&[])
        {
            if let Some(file) = self.files.remove(&dropped) {
                self.remove(file);
            }
        }
        if closed {
            self.work = None;
        }
    }

    /// Whether a state of these tokens is wanted: long enough, and not there.
    pub(crate) fn wants(&mut self, ids: &[u32], snapshot: &Snapshot) -> bool {
        self.catch_up();
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
        self.drop_others();
    }

    /// Removes the oldest files of other keys while all together are over the limit.
    fn drop_others(&mut self) {
        let mut all =
            self.index.bytes as u64 + self.others.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while all > self.options.bytes
            && let Some((file, bytes)) = self.others.pop()
        {
            all -= bytes;
            self.drop_other(file);
        }
    }

    fn drop_other(&self, file: String) {
        tracing::info!(%file, "a prefix of another key makes room");
        self.remove(file);
    }

    fn remove(&self, file: String) {
        // Removing waits for what is written before it, so that it finds the file.
        let full = match &self.work {
            // Before the writer is there; after it, the files are another process's.
            None => self.writer.is_none().then_some(file),
            Some(work) => match work.try_send(Work::Remove { file }) {
                Err(TrySendError::Full(Work::Remove { file })) => Some(file),
                _ => None,
            },
        };
        if let Some(file) = full {
            let _ = fs::remove_file(self.path(&file));
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.options.dir.join(file)
    }

    /// Begins to read the longest state that `prompt` may start from, where it is longer than `than`: on
    /// a thread of its own, as reading and checking a long one takes as long as many rounds.
    pub(crate) fn begin(&mut self, prompt: &[u32], than: usize) -> Option<Reading> {
        self.catch_up();
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
