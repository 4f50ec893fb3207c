use proptest::prelude::*;

use super::*;
use crate::Checkpoint;

fn entry(name: &str, dtype: Dtype, shape: &[usize]) -> Entry {
    Entry { name: name.into(), dtype, shape: shape.into() }
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_fill_of_the_wrong_size_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.safetensors");
    let two = [entry("x", Dtype::F32, &[2])];
    let say = |bytes: &'static [u8]| {
        let e = write_file(&path, &two, |_, out| out.write_all(bytes)).unwrap_err();
        e.to_string().replace(&dir.path().display().to_string(), "DIR")
    };
    assert_eq!(say(&[0; 7]), "DIR/t.safetensors: tensor \"x\": found 7 bytes written, wanted 8");
    assert_eq!(say(&[0; 9]), "DIR/t.safetensors: 1 bytes more than its shape holds");
    assert!(files(dir.path()).is_empty());
}

#[test]
fn names_given_twice_and_odd_sizes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let x = entry("x", Dtype::F32, &[1]);
    let zeros = |_: &Entry, out: &mut Sink<'_>| out.hole();
    let e = write(dir.path(), &[vec![x.clone()], vec![x]], zeros).unwrap_err();
    assert!(e.to_string().ends_with("tensor \"x\": found the name twice, wanted unique names"));
    let e = write(dir.path(), &[vec![entry("y", Dtype::F4, &[3])]], zeros).unwrap_err();
    assert!(e.to_string().ends_with("found F4 [3], wanted a size in whole bytes"));
    assert!(files(dir.path()).is_empty());
}

#[test]
fn a_rewrite_replaces_the_file_whole() {
    let dir = tempfile::tempdir().unwrap();
    for value in [1u8, 2] {
        let entries = [vec![entry("x", Dtype::U8, &[3])]];
        write(dir.path(), &entries, |_, out| out.write_all(&[value; 3])).unwrap();
        let ck = Checkpoint::open(dir.path()).unwrap();
        assert_eq!(ck.tensor("x").unwrap().bytes(), [value; 3]);
    }
    assert_eq!(files(dir.path()), ["model-00001-of-00001.safetensors", INDEX_FILE]);
}

fn any_entries() -> impl Strategy<Value = Vec<(Entry, Vec<u8>)>> {
    let dtype = prop::sample::select(
        Dtype::ALL.iter().copied().filter(|d| d.bits() >= 8).collect::<Vec<_>>(),
    );
    let one = (dtype, prop::collection::vec(0usize..5, 0..4), any::<u8>());
    prop::collection::vec(one, 0..6).prop_map(|all| {
        let make = |(i, (dtype, shape, seed)): (usize, (Dtype, Vec<usize>, u8))| {
            let size = dtype.bytes(&shape).unwrap();
            let bytes = (0..size).map(|b| (b as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            (Entry { name: format!("t.{i}"), dtype, shape }, bytes)
        };
        all.into_iter().enumerate().map(make).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_written_reads_back_here_and_in_the_format_crate(
        tensors in any_entries(),
        cut in 0usize..6,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let entries: Vec<Entry> = tensors.iter().map(|(e, _)| e.clone()).collect();
        let (left, right) = entries.split_at(cut.min(entries.len()));
        let find = |name: &str| &tensors.iter().find(|(e, _)| e.name == name).unwrap().1;
        let shards = [left.to_vec(), right.to_vec()];
        write(dir.path(), &shards, |e, out| out.write_all(find(&e.name))).unwrap();
        if !entries.is_empty() {
            let ck = Checkpoint::open(dir.path()).unwrap();
            prop_assert_eq!(ck.tensors().len(), entries.len());
            for (e, bytes) in &tensors {
                let t = ck.tensor(&e.name).unwrap();
                prop_assert_eq!((t.dtype(), t.shape(), t.bytes()), (e.dtype, &e.shape[..], &bytes[..]));
                // Aligned to its own element.
                prop_assert_eq!(t.file_range().start % (e.dtype.bits() / 8), 0);
            }
        }
        for (i, shard) in shards.iter().enumerate() {
            let file = std::fs::read(dir.path().join(format!("model-{:05}-of-00002.safetensors", i + 1)));
            let file = file.unwrap();
            let theirs = safetensors::SafeTensors::deserialize(&file).unwrap();
            prop_assert_eq!(theirs.len(), shard.len());
            for e in shard {
                prop_assert_eq!(theirs.tensor(&e.name).unwrap().data(), &find(&e.name)[..]);
            }
        }
    }
}
