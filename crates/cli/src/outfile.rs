//! A file that a command fills at its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};

use crate::demo::beside;

/// Temporary files that are there now.
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of names is whole whatever its holder was doing.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files of a program that ends without dropping them.
pub fn remove_temporaries() {
    for temporary in open().drain(..) {
        // One that stays has a name that says what it is.
        let _ = fs::remove_file(temporary);
    }
}

/// A place that was found writable before the work began. The file appears whole, by a rename, or not
/// at all.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    temporary: PathBuf,
    /// The setting that names it.
    flag: &'static str,
}

impl OutFile {
    /// Opens a temporary file beside `path`, which `flag` gave.
    ///
    /// # Errors
    /// Nothing can be written there, or what is there is no file.
    pub fn create(flag: &'static str, path: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let path = path.into();
        // The rename would put a file in a device's or a directory's place.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            bail!("{} ({flag}): found a directory or a device, wanted a file", path.display());
        }
        let temporary = beside(&path, "tmp");
        open().push(temporary.clone());
        let file = Self { path, temporary, flag };
        File::create(&file.temporary).with_context(|| file.cannot())?;
        Ok(file)
    }

    /// Its name, once it is written.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `write` fill the temporary file, then gives it its name.
    ///
    /// # Errors
    /// As `write`, or the file system.
    pub fn write<E>(&self, write: impl FnOnce(&Path) -> Result<(), E>) -> anyhow::Result<()>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        write(&self.temporary).with_context(|| self.cannot())?;
        fs::rename(&self.temporary, &self.path).with_context(|| self.cannot())
    }

    /// [`OutFile::write`] of a text.
    ///
    /// # Errors
    /// The file system's.
    pub fn text(&self, text: &str) -> anyhow::Result<()> {
        self.write(|path| fs::write(path, text))
    }

    fn cannot(&self) -> String {
        format!("cannot write {} ({})", self.path.display(), self.flag)
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        // After the rename there is none; one that stays has a name that says what it is.
        let _ = fs::remove_file(&self.temporary);
        open().retain(|other| *other != self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out.json");
        let names = || -> Vec<_> {
            fs::read_dir(directory.path())
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect()
        };
        drop(OutFile::create("--json", &path).unwrap());
        assert!(names().is_empty(), "{:?}", names());
        fs::write(&path, "old").unwrap();
        let file = OutFile::create("--json", &path).unwrap();
        let failed = file.write(|temporary| {
            fs::write(temporary, "half")?;
            Err(std::io::Error::other("no space"))
        });
        let text = format!("cannot write {} (--json): no space", path.display());
        assert_eq!(format!("{:#}", failed.unwrap_err()), text);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.text("new").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(), ["out.json"]);
    }

    #[test]
    fn places_that_cannot_be_written_are_named_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let error = OutFile::create("--logits", directory.path()).unwrap_err().to_string();
        assert!(error.ends_with("(--logits): found a directory or a device, wanted a file"));
        let nowhere = directory.path().join("none/rows");
        let error = format!("{:#}", OutFile::create("--logits", &nowhere).unwrap_err());
        let wanted = format!("cannot write {} (--logits): ", nowhere.display());
        assert!(error.starts_with(&wanted), "{error}");
        #[cfg(unix)]
        assert!(OutFile::create("--logits", "/dev/null").is_err());
    }
}
