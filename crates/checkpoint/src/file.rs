//! Files of a checkpoint beside its shards.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// Whether there is an entry at `path`, be it a link that leads nowhere: opening that one says so.
pub fn is_there(path: &Path) -> bool {
    !fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

/// The whole content of the regular file at `path`.
///
/// # Errors
/// It cannot be read, or is a directory, a pipe or a device.
pub fn read_file(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, "a regular file")?.read_to_end(&mut bytes).map_err(Error::io(path))?;
    Ok(bytes)
}

/// Opens the regular file at `path`, which should be `wanted`.
pub(crate) fn open_regular(path: &Path, wanted: &str) -> Result<File> {
    // Asked before it is opened: opening a pipe waits for a writer.
    let about = fs::metadata(path).map_err(Error::io(path))?;
    if !about.is_file() {
        let found = if about.is_dir() { "a directory" } else { "not a regular file" };
        return Err(Error::file(path, found, wanted));
    }
    File::open(path).map_err(Error::io(path))
}
