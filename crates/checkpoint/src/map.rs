//! One shard, mapped read-only. The only unsafe code of this crate.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::file::open_regular;
use crate::tensor::Advice;

/// A mapped file. Dropping it unmaps.
#[derive(Debug)]
pub(crate) struct Map {
    path: PathBuf,
    #[cfg_attr(not(unix), allow(dead_code))]
    file: File,
    bytes: Mmap,
}

impl Map {
    /// Maps the regular file at `path`. Reads none of it.
    pub(crate) fn open(path: &Path) -> Result<Map> {
        let file = open_regular(path, "a safetensors file")?;
        let about = file.metadata().map_err(Error::io(path))?;
        if about.len() == 0 {
            return Err(Error::file(path, "an empty file", "a safetensors file"));
        }
        // SAFETY: nothing here writes to the map or the file. That nobody else rewrites or cuts a
        // shard while it is mapped is the contract of every mapped weight file.
        let bytes = unsafe { Mmap::map(&file) }.map_err(Error::io(path))?;
        Ok(Map { path: path.to_owned(), file, bytes })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Tells the system how `range` will be read. A hint: a refusal changes nothing.
    #[cfg(unix)]
    pub(crate) fn advise(&self, advice: Advice, range: &Range<usize>) {
        let advice = match advice {
            Advice::Random => memmap2::Advice::Random,
            Advice::Sequential => memmap2::Advice::Sequential,
            Advice::WillNeed => memmap2::Advice::WillNeed,
        };
        let _ = self.bytes.advise_range(advice, range.start, range.len());
    }

    /// Tells the system how `range` will be read: nothing to tell on this system.
    #[cfg(not(unix))]
    pub(crate) fn advise(&self, _: Advice, _: &Range<usize>) {}

    /// Fills `out` from byte `at` of the file without touching the map.
    #[cfg(unix)]
    pub(crate) fn read_at(&self, at: usize, out: &mut [u8]) -> Result<()> {
        use std::os::unix::fs::FileExt;
        self.file.read_exact_at(out, at as u64).map_err(Error::io(&self.path))
    }

    /// Fills `out` from byte `at` of the file. The caller has checked the range.
    #[cfg(not(unix))]
    pub(crate) fn read_at(&self, at: usize, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.bytes[at..at + out.len()]);
        Ok(())
    }
}
