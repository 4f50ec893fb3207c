//! What a kept state depends on beside its tokens, as a key: prefixes on disk are used under the same
//! key alone.

use std::time::UNIX_EPOCH;

use anyhow::Context;
use finback_checkpoint::read_file;
use finback_model::config::CONFIG_FILE;
use sha2::{Digest, Sha256};

use crate::open::Opened;

/// Shards up to this size are read whole.
const SMALL: usize = 64 << 20;
/// Of larger ones so many pages are read, evenly spaced, the header's first.
const PAGES: usize = 512;
const PAGE: usize = 4096;

/// The key of this binary's version, this backend and its options, and the checkpoint's bytes. Of a
/// large shard the size, the time of its last change and a sample stand for the rest.
///
/// # Errors
/// A file of the checkpoint cannot be read.
pub fn key(
    opened: &Opened,
    backend: &str,
    numerics: &str,
    drafts: bool,
) -> anyhow::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for part in [env!("CARGO_PKG_VERSION"), backend, numerics, if drafts { "drafts" } else { "" }] {
        add(part.as_bytes());
    }
    add(&read_file(&opened.directory.join(CONFIG_FILE))?);
    for id in opened.token_map()?.unwrap_or_default() {
        add(&id.to_le_bytes());
    }
    for (path, bytes) in opened.checkpoint.shards() {
        add(path.file_name().unwrap_or_default().as_encoded_bytes());
        if bytes.len() <= SMALL {
            add(bytes);
            continue;
        }
        let about = path.metadata().and_then(|about| about.modified());
        let changed = about.with_context(|| path.display().to_string())?;
        let changed = changed.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        add(&changed.to_le_bytes());
        add(&bytes.len().to_le_bytes());
        for page in 0..PAGES {
            let at = (bytes.len() - PAGE) / (PAGES - 1) * page;
            add(&bytes[at..at + PAGE]);
        }
    }
    Ok(hash.finalize().into())
}
