use std::path::Path;

use super::*;

const KEY: [u8; 32] = [1; 32];

fn open(dir: &Path, bytes: u64) -> Disk {
    Disk::open(DiskOptions { dir: dir.to_owned(), bytes, key: KEY }).unwrap()
}

fn ids(first: u32, count: usize) -> Vec<u32> {
    (first..).take(count).collect()
}

fn snapshot(at: usize) -> Snapshot {
    Snapshot { id: 0, at, least: at, exact: false, bytes: 0 }
}

fn put(disk: &mut Disk, ids: &[u32], state: &[u8]) {
    assert!(disk.wants(ids, &snapshot(ids.len())));
    disk.put(ids, &snapshot(ids.len()), state.to_vec());
}

fn take(disk: &mut Disk, prompt: &[u32], than: usize) -> Option<(usize, Vec<u8>)> {
    let reading = disk.begin(prompt, than)?;
    disk.end(prompt, reading)
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == SUFFIX))
        .count()
}

#[test]
fn states_outlive_the_process_and_what_is_broken_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = open(dir.path(), 1 << 20);
    let (short, long, other) = (ids(0, 300), ids(0, 400), ids(9, 300));
    put(&mut disk, &short, b"short");
    put(&mut disk, &long, b"long");
    put(&mut disk, &other, b"other");
    assert!(!disk.wants(&short, &snapshot(300)), "it is there");
    assert!(!disk.wants(&ids(5, 255), &snapshot(255)), "it is too short");
    drop(disk);
    assert_eq!(files(dir.path()), 3);
    // What a crash leaves, what others leave, what a disk loses.
    fs::write(dir.path().join("x.part"), b"half").unwrap();
    fs::write(dir.path().join("y.prefix"), b"foreign").unwrap();
    let broken = dir.path().join(name(&KEY, &long));
    let mut bytes = fs::read(&broken).unwrap();
    let at = bytes.len() - 33;
    bytes[at] ^= 1;
    fs::write(&broken, bytes).unwrap();
    let torn = dir.path().join(name(&KEY, &other));
    let bytes = fs::read(&torn).unwrap();
    fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();

    let mut disk = open(dir.path(), 1 << 20);
    assert!(!dir.path().join("x.part").exists());
    assert!(dir.path().join("y.prefix").exists() && !torn.exists());
    assert_eq!(disk.size().0, 2);
    assert_eq!(take(&mut disk, &ids(9, 500), 0), None);
    // The longer one is found out when it is read, and then the shorter one serves.
    assert_eq!(take(&mut disk, &ids(0, 500), 0), None);
    assert_eq!(take(&mut disk, &ids(0, 500), 0), Some((300, b"short".to_vec())));
    assert_eq!(take(&mut disk, &ids(0, 500), 300), None);
    assert_eq!(take(&mut disk, &ids(0, 300), 0), None, "no row is left to choose from");
    drop(disk);
    assert!(!broken.exists());
    let key = [2; 32];
    let foreign = Disk::open(DiskOptions { dir: dir.path().to_owned(), bytes: 1 << 20, key });
    assert_eq!(foreign.unwrap().size().0, 0);
    assert!(files(dir.path()) > 1, "files of another key stay");
}

#[test]
fn files_over_the_limit_go() {
    let dir = tempfile::tempdir().unwrap();
    let each = file::size(300, 1000) + 4 * 300;
    for round in 0..3u32 {
        let mut disk = open(dir.path(), 2 * each);
        for n in 0..3 {
            let ids = ids(1000 * (3 * round + n), 300);
            put(&mut disk, &ids, &[n as u8; 1000]);
            // The writer takes a few at once only.
            while disk.counts().0 < u64::from(n) + 1 {
                std::thread::yield_now();
            }
        }
        assert_eq!(disk.size().0, 2);
        drop(disk);
        assert_eq!(files(dir.path()), 2);
    }
    // One that is larger than the limit leaves nothing.
    let dir = tempfile::tempdir().unwrap();
    let mut disk = open(dir.path(), each / 2);
    put(&mut disk, &ids(0, 300), &[1; 1000]);
    assert_eq!(disk.size().0, 0);
    drop(disk);
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn a_directory_has_one_user_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), 1 << 20);
    let options = DiskOptions { dir: dir.path().to_owned(), bytes: 1 << 20, key: [2; 32] };
    assert_eq!(Disk::open(options).unwrap_err().to_string(), IN_USE);
    drop(first);
    open(dir.path(), 1 << 20);
}
