use std::fs;
use std::io::Write;

use super::*;
use crate::{Advice, Dtype, Entry, write};

fn entry(name: &str, dtype: Dtype, shape: &[usize]) -> Entry {
    Entry { name: name.into(), dtype, shape: shape.into() }
}

/// Two shards: `a` counts bytes, `b` is 1.0, `c` is four bytes of 7.
fn sample(dir: &Path) {
    let shards = [
        vec![entry("a", Dtype::U8, &[2, 8])],
        vec![entry("c", Dtype::F8E4M3, &[4]), entry("b", Dtype::F32, &[1])],
    ];
    write(dir, &shards, |e, out| match e.name.as_str() {
        "a" => out.write_all(&(0..16).collect::<Vec<u8>>()),
        "b" => out.write_all(&1f32.to_le_bytes()),
        _ => out.write_all(&[7; 4]),
    })
    .unwrap();
}

fn refusal(dir: &Path) -> String {
    let text = Checkpoint::open(dir).unwrap_err().to_string();
    text.replace(&dir.display().to_string(), "DIR")
}

const ONE: &str = "model-00001-of-00002.safetensors";
const TWO: &str = "model-00002-of-00002.safetensors";

#[test]
fn tensors_read_back_with_and_without_an_index() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    for indexed in [true, false] {
        if !indexed {
            fs::remove_file(dir.path().join(INDEX_FILE)).unwrap();
        }
        let ck = Checkpoint::open(dir.path()).unwrap();
        let names: Vec<_> = ck.tensors().map(|t| t.name().to_owned()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let a = ck.tensor("a").unwrap();
        assert_eq!((a.dtype(), a.shape(), a.elements()), (Dtype::U8, &[2, 8][..], 16));
        assert_eq!(a.bytes(), (0..16).collect::<Vec<u8>>());
        assert_eq!(a.file(), dir.path().join(ONE));
        assert_eq!(&fs::read(a.file()).unwrap()[a.file_range()], a.bytes());
        assert_eq!(ck.tensor("b").unwrap().bytes(), 1f32.to_le_bytes());
        assert_eq!(ck.tensor("c").unwrap().bytes(), [7; 4]);
        assert_eq!(ck.shards().len(), 2);
        assert_eq!(ck.mapped_bytes(), ck.shards().map(|(_, b)| b.len()).sum::<usize>());
        assert!(ck.get("d").is_none());
        assert_eq!(
            ck.tensor("d")
                .unwrap_err()
                .to_string()
                .replace(&dir.path().display().to_string(), "DIR"),
            "DIR: tensor \"d\": found no such tensor, wanted it in one of 2 shards"
        );
    }
}

#[test]
fn a_tensor_outlives_its_checkpoint_and_crosses_threads() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let a = Checkpoint::open(dir.path()).unwrap().tensor("a").unwrap();
    for advice in [Advice::Random, Advice::Sequential, Advice::WillNeed] {
        a.advise(advice);
    }
    let b = a.clone();
    assert_eq!(std::thread::spawn(move || b.bytes()[15]).join().unwrap(), 15);
    let mut two = [0; 2];
    a.read_at(14, &mut two).unwrap();
    assert_eq!(two, [14, 15]);
    let text = a.read_at(15, &mut two).unwrap_err().to_string();
    assert!(text.ends_with("found a read of 2 bytes at 15, wanted a range inside its 16 bytes"));
    assert!(a.read_at(usize::MAX, &mut two).is_err());
}

#[test]
fn what_is_no_checkpoint_directory() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        refusal(dir.path()),
        "DIR: found a directory without shards, wanted model.safetensors.index.json or *.safetensors"
    );
    let file = dir.path().join("file");
    fs::write(&file, "x").unwrap();
    assert_eq!(refusal(&file), "DIR: found a file, wanted a checkpoint directory");
    assert_eq!(refusal(&dir.path().join("none")), "DIR: No such file or directory (os error 2)");
}

#[test]
fn shards_that_are_missing_empty_cut_or_directories() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let shard = dir.path().join(ONE);
    let whole = fs::read(&shard).unwrap();

    fs::write(&shard, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(
        refusal(dir.path()),
        format!(
            "DIR/{ONE}: tensor \"a\": found offsets 0..16 in 15 bytes of data, \
             wanted offsets inside the file (is it cut short?)"
        )
    );
    fs::write(&shard, b"").unwrap();
    assert_eq!(
        refusal(dir.path()),
        format!("DIR/{ONE}: found an empty file, wanted a safetensors file")
    );
    fs::remove_file(&shard).unwrap();
    assert_eq!(
        refusal(dir.path()),
        format!(
            "DIR/{ONE}: tensor \"a\": found no such file, \
             wanted the shard that model.safetensors.index.json names"
        )
    );
    fs::create_dir(&shard).unwrap();
    assert_eq!(
        refusal(dir.path()),
        format!("DIR/{ONE}: found a directory, wanted a safetensors file")
    );
}

#[cfg(unix)]
#[test]
fn pipes_are_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    for name in [ONE, INDEX_FILE] {
        sample(dir.path());
        let file = dir.path().join(name);
        fs::remove_file(&file).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let text = refusal(dir.path());
        assert!(text.starts_with(&format!("DIR/{name}: found not a regular file, ")), "{text}");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn an_index_that_lies() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let index = dir.path().join(INDEX_FILE);
    let say = |map: &str| {
        fs::write(&index, format!(r#"{{"weight_map":{map}}}"#)).unwrap();
        refusal(dir.path())
    };
    assert_eq!(
        say(&format!(r#"{{"a":"{TWO}"}}"#)),
        format!(
            "DIR/{INDEX_FILE}: tensor \"a\": found no such tensor in {TWO}, wanted it in that shard"
        )
    );
    for name in ["../x.safetensors", "/x", "", "..", "a\\\\b", "a\\nb"] {
        let text = say(&format!(r#"{{"a":"{name}"}}"#));
        assert!(text.ends_with(", wanted the name of a file beside the index"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    assert_eq!(
        say("{}"),
        format!("DIR/{INDEX_FILE}: found an empty weight_map, wanted at least one tensor")
    );
    let text = say(&format!(r#"{{"a":"{ONE}","a":"{ONE}"}}"#));
    assert!(text.contains("tensor \"a\" listed twice"), "{text}");
    let text = say("[]");
    assert!(text.contains("expected an object of shard names"), "{text}");
}

#[cfg(unix)]
#[test]
fn an_index_that_is_a_link_to_nothing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    let index = dir.path().join(INDEX_FILE);
    fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink("nothing", &index).unwrap();
    assert_eq!(
        refusal(dir.path()),
        format!("DIR/{INDEX_FILE}: No such file or directory (os error 2)")
    );
}

#[test]
fn one_name_in_two_shards_needs_an_index() {
    let dir = tempfile::tempdir().unwrap();
    sample(dir.path());
    fs::copy(dir.path().join(ONE), dir.path().join("z.safetensors")).unwrap();
    assert_eq!(Checkpoint::open(dir.path()).unwrap().tensors().len(), 3);
    fs::remove_file(dir.path().join(INDEX_FILE)).unwrap();
    assert_eq!(
        refusal(dir.path()),
        format!(
            "DIR/{ONE}: tensor \"a\": found the name in DIR/z.safetensors too, \
             wanted unique names, or an index that decides"
        )
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_huge_sparse_tensor_opens_and_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let table = entry("table", Dtype::F8E4M3, &[400_000_000, 256]);
    write(dir.path(), &[vec![table]], |_, out| out.hole()).unwrap();

    let resident = || -> usize {
        let text = fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    };
    let before = resident();
    let table = Checkpoint::open(dir.path()).unwrap().tensor("table").unwrap();
    let grown = resident().saturating_sub(before);
    assert_eq!(table.bytes().len(), 102_400_000_000);
    // Other tests of this process run beside this one; the table is a hundred times larger.
    assert!(grown < 1_000_000_000, "opening took {grown} bytes");

    table.advise(Advice::Random);
    let mut row = [1; 256];
    table.read_at(102_399_999_744, &mut row).unwrap();
    assert_eq!(row, [0; 256]);
    assert_eq!(table.bytes()[102_399_999_999], 0);
}
