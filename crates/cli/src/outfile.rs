//! A file that a command fills at its end, and directories that go with the program.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, bail};

use crate::demo::beside;

/// Temporary directories that are there now.
static OPEN: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<PathBuf>> {
    // A list of names is whole whatever its holder was doing.
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the program at once, without the temporary directories that are dropped by none.
pub fn exit(code: i32) -> ! {
    // Held to the end: nothing new may come while this goes.
    let open = open();
    open.iter().for_each(|directory| remove(directory));
    std::process::exit(code)
}

/// Removes a directory, whatever is made in it meanwhile.
fn remove(directory: &Path) {
    let again = |error: &io::Error| error.kind() == ErrorKind::DirectoryNotEmpty;
    // One that stays has a name that says what it is.
    while fs::remove_dir_all(directory).as_ref().is_err_and(again) {}
}

/// A directory that goes when this does, or when a signal ends the program.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes it at `path`.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let mut open = open();
        fs::create_dir_all(&path)?;
        open.push(path.clone());
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        remove(&self.0);
        open().retain(|other| *other != self.0);
    }
}

/// A place that was found writable before the work began. The file appears whole, by a rename, or not
/// at all.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    /// Beside it; the file is made in there.
    temporary: Temporary,
    /// The setting that names it.
    flag: &'static str,
}

impl OutFile {
    /// Makes a temporary directory beside `path`, which `flag` gave.
    ///
    /// # Errors
    /// Nothing can be written there, or what is there is no file.
    pub fn create(flag: &'static str, path: impl Into<PathBuf>) -> anyhow::Result<Self> {
        let path = path.into();
        // The rename would put a file in a device's or a directory's place.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            bail!("{} ({flag}): found a directory or a device, wanted a file", path.display());
        }
        // Only the last part may be new.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let there = parent.map_or(Ok(()), |parent| parent.metadata().map(drop));
        let temporary = there.and_then(|()| Temporary::create(beside(&path, "tmp")));
        let temporary = temporary.with_context(|| cannot(&path, flag))?;
        Ok(Self { path, temporary, flag })
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
        let cannot = || cannot(&self.path, self.flag);
        let file = self.temporary.path().join(self.path.file_name().unwrap_or_default());
        write(&file).with_context(cannot)?;
        fs::rename(&file, &self.path).with_context(cannot)
    }

    /// [`OutFile::write`] of a text.
    ///
    /// # Errors
    /// The file system's.
    pub fn text(&self, text: &str) -> anyhow::Result<()> {
        self.write(|path| fs::write(path, text))
    }
}

fn cannot(path: &Path, flag: &str) -> String {
    format!("cannot write {} ({flag})", path.display())
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
