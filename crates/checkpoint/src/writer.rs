//! Writes shards and their index.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use crate::checkpoint::INDEX_FILE;
use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// A tensor to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// How its elements are stored.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
}

/// Takes the bytes of one tensor.
pub struct Sink<'a> {
    out: &'a mut BufWriter<File>,
    left: usize,
}

impl Sink<'_> {
    /// Bytes still wanted.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Leaves the rest of the tensor unwritten: it reads as zeros and, where the file system can,
    /// takes no disk space.
    ///
    /// # Errors
    /// The file cannot be positioned.
    pub fn hole(&mut self) -> io::Result<()> {
        self.out.seek(SeekFrom::Current(i64::try_from(self.left).map_err(io::Error::other)?))?;
        self.left = 0;
        Ok(())
    }
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.left {
            let text = format!("{} bytes more than its shape holds", bytes.len() - self.left);
            return Err(io::Error::other(text));
        }
        let n = self.out.write(bytes)?;
        self.left -= n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes `shards` and their index into `dir`, which is made if it is not there.
///
/// `fill` streams each tensor's little-endian bytes, in the order they stand in the file (widest
/// elements first, so that each tensor is aligned to its own element). Shards are written at once by
/// as many threads as the machine has. Everything is written under temporary names and renamed at the
/// end, the index last; after an error nothing is left behind.
///
/// # Errors
/// A name given twice, a size that is no whole number of bytes, a `fill` that writes another
/// number of bytes than the shape says, or the file system.
pub fn write(
    dir: &Path,
    shards: &[Vec<Entry>],
    fill: impl Fn(&Entry, &mut Sink<'_>) -> io::Result<()> + Sync,
) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(Error::io(dir))?;
    let count = shards.len();
    let name = |i: usize| format!("model-{:05}-of-{count:05}.safetensors", i + 1);
    let mut weight_map = Map::new();
    for (i, entries) in shards.iter().enumerate() {
        for e in entries {
            if weight_map.insert(e.name.clone(), Value::String(name(i))).is_some() {
                return Err(Error::tensor(
                    &dir.join(name(i)),
                    &e.name,
                    "the name twice",
                    "unique names",
                ));
            }
        }
    }
    let (next, written) = (AtomicUsize::new(0), Mutex::new(Ok((Pending::default(), 0))));
    let work = || {
        while let Some((i, entries)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            shards.get(i).map(|entries| (i, entries))
        } {
            let mut shard = Pending::default();
            let bytes = shard.shard(&dir.join(name(i)), entries, &mut &fill);
            let mut all = written.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match (&mut *all, bytes) {
                (Ok((pending, total)), Ok(bytes)) => {
                    pending.0.append(&mut shard.0);
                    *total += bytes;
                }
                (Ok(_), Err(error)) => *all = Err(error),
                (Err(_), _) => {}
            }
            if all.is_err() {
                return;
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(count);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let (mut pending, total) =
        written.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
    pending.bytes(&dir.join(INDEX_FILE), format!("{index:#}\n").as_bytes())?;
    pending.commit()
}

/// Writes one safetensors file at `path`, under the rules of [`write()`].
///
/// # Errors
/// As [`write()`].
pub fn write_file(
    path: &Path,
    entries: &[Entry],
    mut fill: impl FnMut(&Entry, &mut Sink<'_>) -> io::Result<()>,
) -> Result<()> {
    let mut pending = Pending::default();
    pending.shard(path, entries, &mut fill)?;
    pending.commit()
}

/// Files written under temporary names. Dropped before `commit`, it removes them.
#[derive(Default)]
struct Pending(Vec<(PathBuf, PathBuf)>);

impl Pending {
    fn create(&mut self, path: &Path) -> Result<File> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(Error::io(&temporary))?;
        self.0.push((temporary, path.to_owned()));
        Ok(file)
    }

    fn bytes(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        self.create(path)?.write_all(bytes).map_err(Error::io(path))
    }

    /// Writes one shard and returns its data bytes.
    fn shard(
        &mut self,
        path: &Path,
        entries: &[Entry],
        fill: &mut impl FnMut(&Entry, &mut Sink<'_>) -> io::Result<()>,
    ) -> Result<usize> {
        let mut ordered: Vec<&Entry> = entries.iter().collect();
        ordered.sort_by_key(|e| std::cmp::Reverse(e.dtype.bits()));
        let (header, sizes) = header(path, &ordered)?;
        let mut out = BufWriter::with_capacity(1 << 20, self.create(path)?);
        out.write_all(&header).map_err(Error::io(path))?;
        for (entry, &size) in ordered.iter().zip(&sizes) {
            let mut sink = Sink { out: &mut out, left: size };
            fill(entry, &mut sink).map_err(Error::io(path))?;
            if sink.left > 0 {
                let found = format!("{} bytes written", size - sink.left);
                return Err(Error::tensor(path, &entry.name, found, size.to_string()));
            }
        }
        let total: usize = sizes.iter().sum();
        let file = out.into_inner().map_err(|e| Error::io(path)(e.into_error()))?;
        // A hole at the end of the last tensor moves the position but not the end of the file.
        file.set_len((header.len() + total) as u64).map_err(Error::io(path))?;
        Ok(total)
    }

    fn commit(mut self) -> Result<()> {
        for (temporary, path) in &self.0 {
            std::fs::rename(temporary, path).map_err(Error::io(path))?;
        }
        self.0.clear();
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for (temporary, _) in &self.0 {
            // Nothing can be done about a file that stays; its name says that it is no shard.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// The length and JSON of a shard's header, and each tensor's bytes.
fn header(path: &Path, entries: &[&Entry]) -> Result<(Vec<u8>, Vec<usize>)> {
    let mut directory = Map::new();
    directory.insert("__metadata__".into(), json!({ "format": "pt" }));
    let (mut at, mut sizes) = (0usize, Vec::with_capacity(entries.len()));
    for e in entries {
        let size = e.dtype.bytes(&e.shape).filter(|s| at.checked_add(*s).is_some());
        let Some(size) = size else {
            let found = format!("{} {:?}", e.dtype, e.shape);
            return Err(Error::tensor(path, &e.name, found, "a size in whole bytes"));
        };
        let info =
            json!({ "dtype": e.dtype.name(), "shape": e.shape, "data_offsets": [at, at + size] });
        if directory.insert(e.name.clone(), info).is_some() {
            return Err(Error::tensor(path, &e.name, "the name twice", "unique names"));
        }
        at += size;
        sizes.push(size);
    }
    let mut json = Value::Object(directory).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    Ok((bytes, sizes))
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
