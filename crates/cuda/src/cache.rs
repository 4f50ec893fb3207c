//! Compiled kernels on disk: one file a program, named by all that its code depends on.

use std::fs;
use std::io::Write;
use std::path::Path;

use sha2::{Digest, Sha256};

/// In front of the code in a file.
const MAGIC: &[u8; 8] = b"finbackK";
/// Bytes of a hash.
const HASH: usize = 32;

/// The name of the file of a program, from its text, its options and the compiler's version.
pub fn name(text: &str, options: &[String], compiler: (i32, i32)) -> String {
    let mut hash = Sha256::new();
    let (major, minor) = compiler;
    for part in [text, &options.join(" "), &format!("{major}.{minor}")] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("kernels-{}.cubin", hex(&hash.finalize()[..16]))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The code of a file; `None` where it is not there, torn or damaged.
pub fn read(file: &Path) -> Option<Vec<u8>> {
    let bytes = fs::read(file).ok()?;
    let (hash, code) = bytes.strip_prefix(MAGIC)?.split_at_checked(HASH)?;
    (Sha256::digest(code).as_slice() == hash).then(|| code.to_vec())
}

/// Keeps code in a file, which another process sees whole or not at all. A full or read-only disk is no
/// failure: the next start compiles again.
pub fn write(file: &Path, code: &[u8]) {
    let keep = || -> std::io::Result<()> {
        let directory = file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory)?;
        let temporary = file.with_extension(format!("{}.tmp", std::process::id()));
        let mut to = fs::File::create(&temporary)?;
        for part in [MAGIC.as_slice(), &Sha256::digest(code), code] {
            to.write_all(part)?;
        }
        to.sync_all()?;
        fs::rename(temporary, file)
    };
    let _ = keep();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comes_back_and_damage_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("deep").join("a.cubin");
        assert_eq!(read(&file), None);
        write(&file, b"machine code");
        assert_eq!(read(&file).unwrap(), b"machine code");
        let whole = fs::read(&file).unwrap();
        for torn in [0, 7, 30, whole.len() - 1] {
            fs::write(&file, &whole[..torn]).unwrap();
            assert_eq!(read(&file), None, "{torn} bytes of it");
        }
        let mut other = whole;
        *other.last_mut().unwrap() ^= 1;
        fs::write(&file, other).unwrap();
        assert_eq!(read(&file), None);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "temporaries stay");
    }

    #[test]
    fn a_name_depends_on_all_that_code_depends_on() {
        let options = |name: &str| vec![name.to_owned()];
        let one = name("text", &options("-a"), (13, 0));
        let others = [
            name("texts", &options("-a"), (13, 0)),
            name("text", &options("-b"), (13, 0)),
            name("text", &options("-a"), (13, 1)),
        ];
        assert!(others.iter().all(|other| *other != one), "{one} {others:?}");
    }
}
