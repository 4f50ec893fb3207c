//! A kept state as a file, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `FINBACK1` |
//! | 32 | the key |
//! | 8, 8, 8 | tokens, fewest tokens of a prompt it serves, 1 where it serves exactly its own; else 0 |
//! | 8 | bytes of the state |
//! | 4 a token | the tokens |
//! | | the state, as the runner exports it |
//! | 32 | SHA-256 of all before |

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// What a whole file's name ends with.
pub(super) const SUFFIX: &str = "prefix";
/// What a file's name ends with while it is written.
pub(super) const PARTIAL: &str = "part";

const MAGIC: &[u8; 8] = b"FINBACK1";
const HEAD: usize = 8 + 32 + 4 * 8;
const SUM: usize = 32;
const SHORT: &str = "it is too short for a kept prefix";

/// Which prompts a state serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) least: usize,
    pub(super) exact: bool,
}

/// Why a file is passed over; displays as one line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unread {
    /// No file of this tier at all, as far as can be seen.
    #[error("{0}")]
    Foreign(&'static str),
    /// One of this tier that another server wrote.
    #[error("it is of another checkpoint, backend, numerics, build, or other drafts")]
    OtherKey,
    /// One of this key that holds no state any more.
    #[error("{0}")]
    Broken(String),
}

fn broken(reason: impl Into<String>) -> Unread {
    Unread::Broken(reason.into())
}

/// Bytes of a file.
pub(super) fn size(tokens: usize, state: usize) -> u64 {
    (HEAD + 4 * tokens + state + SUM) as u64
}

/// A state's file name, by its key and tokens.
pub(super) fn name(key: &[u8; 32], ids: &[u32]) -> String {
    let mut hash = Sha256::new_with_prefix(key);
    ids.iter().for_each(|id| hash.update(id.to_le_bytes()));
    let mut name: String =
        hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    name.push('.');
    name.push_str(SUFFIX);
    name
}

/// Writes a state under its name, whole or not at all.
pub(super) fn write(
    dir: &Path,
    key: &[u8; 32],
    head: &Head,
    ids: &[u32],
    state: &[u8],
) -> std::io::Result<()> {
    let path = dir.join(name(key, ids));
    let part = path.with_extension(PARTIAL);
    let bytes = front(key, head, ids, state.len());
    let sum = Sha256::new_with_prefix(&bytes).chain_update(state).finalize();
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.write_all(state)?;
        file.write_all(&sum)?;
        // The name must not come to stand before the bytes do.
        file.sync_all()
    });
    let done = written.and_then(|()| fs::rename(&part, &path));
    if done.is_err() {
        // What is left of it is of no use; the error says what happened.
        let _ = fs::remove_file(&part);
    }
    done
}

/// All that stands before the state.
fn front(key: &[u8; 32], head: &Head, ids: &[u32], state: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + 4 * ids.len());
    bytes.extend(MAGIC);
    bytes.extend(key);
    let counts = [ids.len(), head.least, usize::from(head.exact), state];
    bytes.extend(counts.iter().flat_map(|&count| (count as u64).to_le_bytes()));
    bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    bytes
}

/// The head and tokens of a file of this key, and its size; its sum is checked when it is read.
pub(super) fn head(path: &Path, key: &[u8; 32]) -> Result<(Head, Vec<u32>, u64), Unread> {
    let file = File::open(path).map_err(|_| Unread::Foreign("it cannot be opened"))?;
    let length = file.metadata().map_err(|error| broken(error.to_string()))?.len();
    let (head, ids) = head_of(file, length, key)?;
    Ok((head, ids, length))
}

/// The head and tokens of a file of `length` bytes.
fn head_of(mut file: impl Read, length: u64, key: &[u8; 32]) -> Result<(Head, Vec<u32>), Unread> {
    let mut bytes = [0; HEAD];
    file.read_exact(&mut bytes).map_err(|_| Unread::Foreign(SHORT))?;
    let (head, tokens, state) = parse(&bytes, key)?;
    if Some(length) != whole(tokens, state) {
        return Err(broken(format!("it has {length} bytes, not those its head says")));
    }
    // The length bounds it: a head cannot ask for more than there is.
    let mut ids = vec![0; 4 * tokens];
    file.read_exact(&mut ids).map_err(|error| broken(error.to_string()))?;
    let ids = ids.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
    Ok((head, ids))
}

/// The state in a file of this key and these tokens.
pub(super) fn read(path: &Path, key: &[u8; 32], ids: &[u32]) -> Result<Vec<u8>, Unread> {
    state(fs::read(path).map_err(|error| broken(error.to_string()))?, key, ids)
}

/// The state in the bytes of a whole file.
fn state(mut bytes: Vec<u8>, key: &[u8; 32], ids: &[u32]) -> Result<Vec<u8>, Unread> {
    let from = check(&bytes, key, ids)?;
    bytes.truncate(bytes.len() - SUM);
    bytes.drain(..from);
    Ok(bytes)
}

/// Reads the bytes of a file as a start and then a prompt do, under the key that they name, and writes
/// what was read again; with `mend` their sum is set right before, which no random change does.
///
/// # Errors
/// One line: why they are passed over.
#[cfg(feature = "testing")]
pub fn reread_prefix(bytes: &[u8], mend: bool) -> Result<Vec<u8>, String> {
    let mut bytes = bytes.to_vec();
    if mend && let Some(at) = bytes.len().checked_sub(SUM) {
        let sum = Sha256::digest(&bytes[..at]);
        bytes[at..].copy_from_slice(&sum);
    }
    let named = bytes.get(MAGIC.len()..).and_then(<[u8]>::first_chunk::<32>);
    let key = named.copied().unwrap_or_default();
    let (head, ids) =
        head_of(&bytes[..], bytes.len() as u64, &key).map_err(|reason| reason.to_string())?;
    let state = state(bytes, &key, &ids).map_err(|reason| reason.to_string())?;
    let mut again = front(&key, &head, &ids, state.len());
    again.extend(state);
    let sum = Sha256::digest(&again);
    again.extend(sum);
    Ok(again)
}

/// Where the state begins in the bytes of a whole file.
fn check(bytes: &[u8], key: &[u8; 32], ids: &[u32]) -> Result<usize, Unread> {
    let head = bytes.first_chunk().ok_or(Unread::Foreign(SHORT))?;
    let (_, tokens, state) = parse(head, key)?;
    if Some(bytes.len() as u64) != whole(tokens, state) {
        return Err(broken(format!("it has {} bytes, not those its head says", bytes.len())));
    }
    let (body, sum) = bytes.split_at(bytes.len() - SUM);
    if Sha256::digest(body).as_slice() != sum {
        return Err(broken("its sum is another"));
    }
    let found = &body[HEAD..HEAD + 4 * tokens];
    if !found.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).eq(ids.iter().copied()) {
        return Err(broken("it is of other tokens"));
    }
    Ok(HEAD + 4 * tokens)
}

fn whole(tokens: usize, state: usize) -> Option<u64> {
    let ids = tokens.checked_mul(4)?;
    (HEAD + SUM).checked_add(ids)?.checked_add(state).map(|bytes| bytes as u64)
}

/// A head, its tokens and the bytes of its state.
fn parse(bytes: &[u8; HEAD], key: &[u8; 32]) -> Result<(Head, usize, usize), Unread> {
    let (magic, rest) = bytes.split_at(MAGIC.len());
    let (own, counts) = rest.split_at(key.len());
    if magic != MAGIC {
        return Err(Unread::Foreign("it is no kept prefix of this version"));
    }
    if own != key {
        return Err(Unread::OtherKey);
    }
    let mut counts = counts.as_chunks().0.iter().map(|count| u64::from_le_bytes(*count));
    let mut count = || counts.next().and_then(|count| usize::try_from(count).ok());
    let (tokens, least, exact, state) = (count(), count(), count(), count());
    let (Some(tokens), Some(least), Some(exact @ (0 | 1)), Some(state)) =
        (tokens, least, exact, state)
    else {
        return Err(broken("its head counts what cannot be"));
    };
    if tokens == 0 || least < tokens {
        return Err(broken("its head counts what cannot be"));
    }
    Ok((Head { least, exact: exact == 1 }, tokens, state))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 32] = [7; 32];

    /// The bytes of a written file.
    fn written(head: &Head, ids: &[u32], state: &[u8]) -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), &KEY, head, ids, state).unwrap();
        let bytes = fs::read(dir.path().join(name(&KEY, ids))).unwrap();
        assert_eq!(bytes.len() as u64, size(ids.len(), state.len()));
        (dir, bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_damaged_file_is_refused_wherever_it_is_damaged(
            ids in prop::collection::vec(any::<u32>(), 1..20),
            state in prop::collection::vec(any::<u8>(), 0..80),
            exact in any::<bool>(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), 1..=255u8), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let head = Head { least: ids.len() + 5, exact };
            let (dir, bytes) = written(&head, &ids, &state);
            let path = dir.path().join(name(&KEY, &ids));
            prop_assert_eq!(read(&path, &KEY, &ids), Ok(state));
            let found = super::head(&path, &KEY);
            prop_assert_eq!(found, Ok((head, ids.clone(), bytes.len() as u64)));
            // Another key, other tokens.
            prop_assert!(read(&path, &[8; 32], &ids).is_err());
            prop_assert!(super::head(&path, &[8; 32]).is_err());
            prop_assert!(read(&path, &KEY, &ids[1..]).is_err());
            let mut changed = bytes.clone();
            for (at, by) in &damage {
                changed[at.index(bytes.len())] ^= by;
            }
            if changed != bytes {
                fs::write(&path, &changed).unwrap();
                prop_assert!(read(&path, &KEY, &ids).is_err());
                let _ = super::head(&path, &KEY);
            }
            fs::write(&path, &bytes[..cut.index(bytes.len())]).unwrap();
            prop_assert!(read(&path, &KEY, &ids).is_err());
            prop_assert!(super::head(&path, &KEY).is_err());
            fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
            prop_assert!(read(&path, &KEY, &ids).is_err());
            prop_assert!(super::head(&path, &KEY).is_err());
        }

        /// Bytes nobody wrote.
        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(check(&bytes, &KEY, &[1]).is_err());
            let mut own = MAGIC.to_vec();
            own.extend(KEY);
            own.extend(&bytes);
            prop_assert!(check(&own, &KEY, &[1]).is_err());
        }
    }
}
