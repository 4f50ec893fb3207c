//! The disk tier's thread: it writes and removes files, and looks which are still there.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::file::{Head, name, size};

/// The file whose lock says that a process uses the directory.
const LOCK: &str = "lock";

/// What is said to a second one.
pub(super) const IN_USE: &str = "another finback uses this directory; one at a time may";

/// Between two looks at the directory while nothing is written.
const LOOK: Duration = Duration::from_secs(10);

/// Between two warnings: a disk that is full is full for every write.
const WARN: Duration = Duration::from_secs(60);

/// Writes a state under its name, whole or not at all; [`super::file::write`] but for tests.
pub(super) type Write = fn(&Path, &[u8; 32], &Head, &[u32], &[u8]) -> Result<()>;

/// What the thread does.
pub(super) enum Work {
    Write { head: Head, ids: Vec<u32>, state: Vec<u8> },
    Remove { file: String },
}

/// What anybody may know of the files.
#[derive(Debug, Default)]
pub(crate) struct DiskCounts {
    /// Files there are.
    pub(crate) entries: AtomicUsize,
    /// Their bytes.
    pub(crate) bytes: AtomicUsize,
    /// States written.
    pub(crate) written: AtomicU64,
    /// States that could not be.
    pub(crate) failed: AtomicU64,
}

/// What the index has to make good.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Files that it holds and that are not there.
    pub(super) gone: Vec<String>,
    /// Bytes that a full disk lacked.
    pub(super) lacking: u64,
    /// Whether nothing is written any more.
    pub(super) closed: bool,
}

/// What the thread and the index share.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) counts: Arc<DiskCounts>,
    news: Mutex<News>,
}

impl Told {
    /// The news since the last time.
    pub(super) fn take(&self) -> News {
        std::mem::take(&mut *self.lock())
    }

    /// Whether there are any.
    #[cfg(test)]
    pub(super) fn has_news(&self) -> bool {
        let news = self.lock();
        news.closed || !news.gone.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, News> {
        // Whoever panicked with it left a list that can be added to.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the thread owns.
pub(super) struct Writer {
    pub(super) dir: PathBuf,
    pub(super) key: [u8; 32],
    pub(super) write: Write,
    /// Held as long as the directory is this process's; `None` once another has it.
    pub(super) lock: Option<File>,
    /// The files of this key and their bytes.
    pub(super) files: HashMap<String, u64>,
    pub(super) told: Arc<Told>,
    pub(super) warned: Option<Instant>,
}

impl Writer {
    /// Works until nobody can ask for more and all is done.
    pub(super) fn run(mut self, inbox: &Receiver<Work>) {
        self.publish();
        loop {
            match inbox.recv_timeout(LOOK) {
                Ok(_) if self.lock.is_none() => continue,
                Ok(Work::Write { head, ids, state }) => self.put(&head, &ids, &state),
                // Whoever removed it before has saved the work.
                Ok(Work::Remove { file }) => {
                    let _ = fs::remove_file(self.dir.join(&file));
                    self.files.remove(&file);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look();
        }
    }

    fn put(&mut self, head: &Head, ids: &[u32], state: &[u8]) {
        let write = |own: &Self| (own.write)(&own.dir, &own.key, head, ids, state);
        let (file, bytes) = (name(&self.key, ids), size(ids.len(), state.len()));
        let mut done = write(self);
        if done.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            // The directory was removed: looking makes it again.
            self.look();
            done = write(self);
        }
        match done {
            Ok(()) => {
                self.files.insert(file, bytes);
                self.publish();
                self.told.counts.written.fetch_add(1, Relaxed);
            }
            Err(error) => {
                let full =
                    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
                let mut news = self.told.lock();
                news.gone.push(file);
                news.lacking += if full { bytes } else { 0 };
                drop(news);
                let failed = self.told.counts.failed.fetch_add(1, Relaxed) + 1;
                self.warn(&format!("{failed} prefixes were not written so far: {error}"));
            }
        }
    }

    /// Sees to it that the directory is there and this process's, and notes what has gone from it.
    fn look(&mut self) {
        let Some(lock) = &self.lock else { return };
        if !is_at(lock, &self.dir.join(LOCK)) {
            match take(&self.dir) {
                Ok(lock) => {
                    self.lock = Some(lock);
                    tracing::info!(dir = %self.dir.display(), "the directory was gone and is made again");
                }
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    self.lock = None;
                    self.told.lock().closed = true;
                    self.warn(&format!("no prefix is kept there any more: {error}"));
                }
                Err(error) => self.warn(&error.to_string()),
            }
        }
        let there = match &self.lock {
            Some(_) => names(&self.dir),
            None => Ok(HashSet::new()),
        };
        let there = match there {
            Ok(there) => there,
            // What cannot be seen may be there still.
            Err(error) => return self.warn(&error.to_string()),
        };
        let gone: Vec<String> =
            self.files.keys().filter(|file| !there.contains(*file)).cloned().collect();
        for file in &gone {
            self.files.remove(file);
        }
        self.told.lock().gone.extend(gone);
        self.publish();
    }

    fn publish(&self) {
        let bytes: u64 = self.files.values().sum();
        self.told.counts.entries.store(self.files.len(), Relaxed);
        self.told.counts.bytes.store(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
    }

    /// Says what is wrong, but not each time.
    fn warn(&mut self, what: &str) {
        if self.warned.is_none_or(|last| last.elapsed() >= WARN) {
            self.warned = Some(Instant::now());
            tracing::warn!(dir = %self.dir.display(), "{what}");
        }
    }
}

/// What lies in a directory; nothing where there is none.
fn names(dir: &Path) -> Result<HashSet<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(HashSet::new());
        }
        entries => entries?,
    };
    let name = |entry: Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    entries.filter_map(|entry| name(entry).transpose()).collect()
}

/// Makes the directory where it is not there, and takes its lock.
///
/// # Errors
/// It cannot be made, or another process has it.
pub(super) fn take(dir: &Path) -> Result<File> {
    fs::create_dir_all(dir)?;
    let lock = File::create(dir.join(LOCK))?;
    lock.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => Error::new(ErrorKind::ResourceBusy, IN_USE),
        TryLockError::Error(error) => error,
    })?;
    Ok(lock)
}

/// Whether the open file is the one at `path`.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(own), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (own.dev(), own.ino()) == (there.dev(), there.ino())
}

/// Whether the open file is the one at `path`: where files have no numbers, whether there is one.
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> bool {
    path.exists()
}
