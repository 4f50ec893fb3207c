//! The embedded demo checkpoint: unpacked to the cache directory once, then an ordinary checkpoint.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context, bail};
use finback_model::synth::Vocabulary;
use finback_tokenizer::{SYNTHETIC, Tokenizer};
use sha2::{Digest, Sha256};

/// The file of an unpacked checkpoint that holds the hashes of the others.
const MANIFEST: &str = "sha256.txt";

/// A file of `demo/`, by its name there.
macro_rules! demo_file {
    ($name:literal) => {
        ($name, include_bytes!(concat!("../../../demo/", $name)).as_slice())
    };
}

/// The checkpoint that the binary carries.
const FILES: [(&str, &[u8]); 5] = [
    demo_file!("config.json"),
    demo_file!("generation_config.json"),
    demo_file!("model.safetensors.index.json"),
    demo_file!("model-00001-of-00001.safetensors"),
    demo_file!("tokenizer.json"),
];

/// The demo's directory, unpacked first where it is not there whole.
pub fn directory(cache_dir: Option<&str>) -> anyhow::Result<PathBuf> {
    let mut key = Sha256::new();
    for (name, content) in FILES {
        key.update(name);
        key.update(content);
    }
    let directory = cache(cache_dir)?.join(format!("demo-{}", &hex(&key.finalize())[..16]));
    install(&directory, |temporary| {
        for (name, content) in FILES {
            fs::write(temporary.join(name), content)?;
        }
        Ok(())
    })?;
    Ok(directory)
}

/// The vocabulary of synthetic checkpoints: that of their own small tokenizer.
pub fn vocabulary(tokenizer: &Tokenizer) -> anyhow::Result<Vocabulary<'static>> {
    let distinct = tokenizer.engram_token_map()?.into_iter().max().map_or(0, |id| id as usize + 1);
    let size = tokenizer.vocab_size();
    Ok(Vocabulary {
        tokenizer: Some(SYNTHETIC),
        size,
        compressed_size: distinct,
        // The release's noise token is an id of its last ones, too.
        noise: size.saturating_sub(1) as u32,
    })
}

/// `--cache-dir`, else `finback` under the user's cache directory.
pub fn cache(cache_dir: Option<&str>) -> anyhow::Result<PathBuf> {
    if let Some(directory) = cache_dir {
        return Ok(directory.into());
    }
    let absolute = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|directory| directory.is_absolute())
    };
    let user = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    match user {
        Some(user) => Ok(user.join("finback")),
        None => bail!("neither XDG_CACHE_HOME nor HOME is set; give a directory by --cache-dir"),
    }
}

/// Leaves a whole checkpoint at `directory`: the one that is there, if its hashes are right, else
/// the one that `write` makes under a temporary name beside it.
fn install(
    directory: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    if is_whole(directory) {
        return Ok(());
    }
    let writes = || {
        let wanted = "the demo model is unpacked under --cache-dir, accepted: a directory that can be written";
        format!("cannot write {}: {wanted}", directory.display())
    };
    let temporary = beside(directory, "tmp");
    fs::create_dir_all(&temporary).with_context(writes)?;
    let result = write(&temporary)
        .and_then(|()| Ok(fs::write(temporary.join(MANIFEST), manifest(&temporary)?)?))
        .and_then(|()| replace(&temporary, directory))
        .with_context(writes);
    if temporary.exists() {
        // What stays is only disk space; its name says what it is.
        let _ = fs::remove_dir_all(&temporary);
    }
    result
}

/// Renames `temporary` to `directory`; another process that was first is as good.
fn replace(temporary: &Path, directory: &Path) -> anyhow::Result<()> {
    match fs::rename(temporary, directory) {
        Ok(()) => return Ok(()),
        Err(_) if is_whole(directory) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(error.into()),
        Err(_) => {}
    }
    let broken = beside(directory, "broken");
    fs::rename(directory, &broken)?;
    let result = fs::rename(temporary, directory);
    let _ = fs::remove_dir_all(&broken);
    Ok(result?)
}

/// A name in the same directory that no other process or thread takes.
pub fn beside(directory: &Path, what: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let mut name = OsString::from(directory.file_name().unwrap_or_default());
    name.push(format!(".{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed)));
    directory.with_file_name(name)
}

fn is_whole(directory: &Path) -> bool {
    let Ok(wanted) = fs::read_to_string(directory.join(MANIFEST)) else { return false };
    manifest(directory).is_ok_and(|found| found == wanted)
}

/// One line `hash  name` for every other file, by name.
fn manifest(directory: &Path) -> anyhow::Result<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != MANIFEST {
            // In pieces: a block as large as the shards would stay with the process.
            let mut hash = Sha256::new();
            io::copy(&mut fs::File::open(entry.path())?, &mut hash)?;
            lines.push((name.clone(), format!("{}  {name}\n", hex(&hash.finalize()))));
        }
    }
    lines.sort();
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// Bytes as lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(text: &'static str) -> impl FnOnce(&Path) -> anyhow::Result<()> {
        move |directory| Ok(fs::write(directory.join("config.json"), text)?)
    }

    #[test]
    fn a_whole_directory_stays_and_a_broken_one_is_replaced() {
        let cache = tempfile::tempdir().unwrap();
        let demo = cache.path().join("deep/demo");
        let config = demo.join("config.json");
        install(&demo, write("one")).unwrap();
        install(&demo, write("two")).unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), "one");
        fs::write(&config, "torn").unwrap();
        install(&demo, write("three")).unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), "three");
        fs::remove_file(&config).unwrap();
        install(&demo, write("four")).unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), "four");
        let left: Vec<_> = fs::read_dir(demo.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing temporary stays: {left:?}");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let demo = cache.path().join("demo");
        let error = install(&demo, |_| bail!("no space")).unwrap_err();
        assert!(format!("{error:#}").contains("no space"));
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    }
}
