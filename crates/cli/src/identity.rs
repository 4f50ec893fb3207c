//! What a kept state depends on beside its tokens, as a key: prefixes on disk are used under the same
//! key alone.

use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::Context;
use finback_checkpoint::read_file;
use finback_model::config::CONFIG_FILE;
use sha2::{Digest, Sha256};

use crate::open::Opened;

/// Files up to this size are read whole.
const SMALL: usize = 64 << 20;
/// Of larger ones so many pages are read, evenly spaced, the header's first.
const PAGES: usize = 512;
const PAGE: usize = 4096;

/// The key of this program's own file, this backend and its options, and the checkpoint's bytes: another build
/// may add in another order. Of a large file the size, the time of its last change and a sample stand for the rest.
///
/// # Errors
/// A file of the checkpoint, or the program's own, cannot be read.
pub fn key(
    opened: &Opened,
    backend: &str,
    numerics: &str,
    drafts: bool,
) -> anyhow::Result<[u8; 32]> {
    let mut key = Key::default();
    key.add_program(&std::env::current_exe()?)?;
    for part in [backend, numerics, if drafts { "drafts" } else { "" }] {
        key.add(part.as_bytes());
    }
    key.add(&read_file(&opened.directory.join(CONFIG_FILE))?);
    for id in opened.token_map()?.unwrap_or_default() {
        key.add(&id.to_le_bytes());
    }
    for (path, bytes) in opened.checkpoint.shards() {
        key.add(path.file_name().unwrap_or_default().as_encoded_bytes());
        key.add_file(path, bytes)?;
    }
    Ok(key.0.finalize().into())
}

#[derive(Default)]
struct Key(Sha256);

impl Key {
    fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn add_program(&mut self, path: &Path) -> anyhow::Result<()> {
        self.add_file(path, &read_file(path)?)
    }

    fn add_file(&mut self, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        if bytes.len() <= SMALL {
            self.add(bytes);
            return Ok(());
        }
        let about = path.metadata().and_then(|about| about.modified());
        let changed = about.with_context(|| path.display().to_string())?;
        let changed = changed.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        self.add(&changed.to_le_bytes());
        self.add(&bytes.len().to_le_bytes());
        for page in 0..PAGES {
            let at = (bytes.len() - PAGE) / (PAGES - 1) * page;
            self.add(&bytes[at..at + PAGE]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_build_of_the_program_has_another_key() {
        let dir = tempfile::tempdir().unwrap();
        let key_of = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let mut key = Key::default();
            key.add_program(&path).unwrap();
            key.0.finalize()
        };
        let first = key_of("first", b"adds in one order");
        assert_eq!(first, key_of("copy", b"adds in one order"));
        assert_ne!(first, key_of("second", b"adds in 1 order"));
        let missing = Key::default().add_program(&dir.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("none"), "{missing}");
    }
}
