use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::writer::IN_USE;
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

/// States in the index.
fn entries(disk: &Disk) -> usize {
    disk.index.size().0
}

fn wait_for(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < Duration::from_secs(120), "waited too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn written(disk: &Disk, count: u64) {
    wait_for(|| disk.counts().written.load(Relaxed) == count);
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
    assert_eq!(entries(&disk), 2);
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
    assert_eq!(entries(&foreign.unwrap()), 0);
    assert!(files(dir.path()) > 1, "files of another key stay while there is room");
}

#[test]
fn files_of_other_keys_go_first_and_the_oldest_before_others() {
    let dir = tempfile::tempdir().unwrap();
    let each = file::size(300, 1000);
    let open = |key: u8, count: u64| {
        let (dir, key) = (dir.path().to_owned(), [key; 32]);
        // The tokens of a state count as well where it is weighed.
        let bytes = count * each + 4 * 300;
        Disk::open(DiskOptions { dir, bytes, key }).unwrap()
    };
    let path = |key: u8, first: u32| dir.path().join(name(&[key; 32], &ids(first, 300)));
    for key in [2, 3] {
        let mut disk = open(key, 4);
        put(&mut disk, &ids(0, 300), &[key; 1000]);
        drop(disk);
        let age = Duration::from_secs(1000 * u64::from(10 - key));
        let file = fs::File::options().append(true).open(path(key, 0)).unwrap();
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
    }
    fs::write(dir.path().join("y.prefix"), b"foreign").unwrap();
    let mut disk = open(1, 3);
    put(&mut disk, &ids(0, 300), &[1; 1000]);
    written(&disk, 1);
    assert!(path(2, 0).exists() && path(3, 0).exists());
    put(&mut disk, &ids(1000, 300), &[1; 1000]);
    written(&disk, 2);
    drop(disk);
    assert!(!path(2, 0).exists() && path(3, 0).exists());
    drop(open(1, 1));
    assert!(!path(3, 0).exists() && dir.path().join("y.prefix").exists());
    assert_eq!(files(dir.path()), 2, "one of this key, one of nobody's");
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
            written(&disk, u64::from(n) + 1);
        }
        assert_eq!(entries(&disk), 2);
        drop(disk);
        assert_eq!(files(dir.path()), 2);
    }
    // One that is larger than the limit leaves nothing.
    let dir = tempfile::tempdir().unwrap();
    let mut disk = open(dir.path(), each / 2);
    put(&mut disk, &ids(0, 300), &[1; 1000]);
    assert_eq!(entries(&disk), 0);
    drop(disk);
    assert_eq!(files(dir.path()), 0);
}

#[test]
fn a_directory_has_one_user_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path(), 1 << 20);
    let options = DiskOptions { dir: dir.path().to_owned(), bytes: 1 << 20, key: [2; 32] };
    let busy = options.check().unwrap_err().to_string();
    assert!(busy.ends_with(IN_USE), "{busy}");
    assert_eq!(Disk::open(options.clone()).unwrap_err().to_string(), busy);
    drop(first);
    // Having looked takes it from nobody.
    options.check().unwrap();
    open(dir.path(), 1 << 20);
}

#[test]
fn files_that_others_removed_are_no_longer_counted_and_are_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut disk = open(dir.path(), 1 << 20);
    let (one, two, three) = (ids(0, 300), ids(1000, 300), ids(2000, 300));
    put(&mut disk, &one, b"one");
    put(&mut disk, &two, b"two");
    written(&disk, 2);
    fs::remove_file(dir.path().join(name(&KEY, &one))).unwrap();
    // A write looks around.
    put(&mut disk, &three, b"three");
    wait_for(|| {
        disk.counts().entries.load(Relaxed) == 2 && disk.counts().written.load(Relaxed) == 3
    });
    let bytes = 2 * (file::size(300, 0) as usize) + "two".len() + "three".len();
    wait_for(|| disk.counts().bytes.load(Relaxed) == bytes);
    wait_for(|| disk.told.has_news());
    put(&mut disk, &one, b"one");
    written(&disk, 4);
    assert_eq!(take(&mut disk, &ids(0, 500), 0), Some((300, b"one".to_vec())));
}

#[test]
fn a_directory_that_was_removed_is_made_again_with_its_lock() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("deep/cache");
    let mut disk = open(&dir, 1 << 20);
    put(&mut disk, &ids(0, 300), b"one");
    written(&disk, 1);
    // At once, whatever the writer is looking at.
    fs::rename(parent.path().join("deep"), parent.path().join("away")).unwrap();
    put(&mut disk, &ids(1000, 300), b"two");
    written(&disk, 2);
    assert_eq!(disk.counts().failed.load(Relaxed), 0);
    let options = DiskOptions { dir: dir.clone(), bytes: 1 << 20, key: KEY };
    assert!(Disk::open(options).unwrap_err().to_string().ends_with(IN_USE));
    assert_eq!(files(&dir), 1);
    assert_eq!(take(&mut disk, &ids(0, 500), 0), None, "it went with its directory");
    assert_eq!(entries(&disk), 1);
}

#[cfg(unix)]
#[test]
fn files_that_cannot_be_seen_are_not_taken_for_gone() {
    use std::os::unix::fs::symlink;
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name);
    let mut disk = open(&path("cache"), 1 << 20);
    put(&mut disk, &ids(0, 300), b"one");
    written(&disk, 1);
    fs::rename(path("cache"), path("away")).unwrap();
    // A link to itself can neither be read nor made a directory.
    symlink(path("cache"), path("cache")).unwrap();
    put(&mut disk, &ids(1000, 300), b"two");
    wait_for(|| disk.counts().failed.load(Relaxed) == 1);
    fs::remove_file(path("cache")).unwrap();
    fs::rename(path("away"), path("cache")).unwrap();
    put(&mut disk, &ids(2000, 300), b"three");
    written(&disk, 2);
    wait_for(|| disk.counts().entries.load(Relaxed) == 2);
    assert_eq!(take(&mut disk, &ids(0, 500), 0), Some((300, b"one".to_vec())));
}

#[cfg(unix)]
#[test]
fn a_directory_that_another_process_has_by_now_is_left_alone() {
    use std::os::unix::fs::symlink;
    let parent = tempfile::tempdir().unwrap();
    let path = |name: &str| parent.path().join(name);
    fs::create_dir(path("own")).unwrap();
    symlink(path("own"), path("cache")).unwrap();
    let mut disk = open(&path("cache"), 1 << 20);
    put(&mut disk, &ids(0, 300), b"one");
    written(&disk, 1);
    let other = open(&path("other"), 1 << 20);
    symlink(path("other"), path("link")).unwrap();
    fs::rename(path("link"), path("cache")).unwrap();
    put(&mut disk, &ids(1000, 300), b"two");
    // It notices by the lock, at the latest after that write, and ends.
    wait_for(|| disk.told.has_news());
    assert!(!disk.wants(&ids(2000, 300), &snapshot(300)));
    assert_eq!((entries(&disk), disk.counts().entries.load(Relaxed)), (0, 0));
    drop(other);
}

/// Writes as long as the directory holds fewer than three states.
fn narrow(dir: &Path, key: &[u8; 32], head: &Head, ids: &[u32], state: &[u8]) -> Result<()> {
    match files(dir) < 3 {
        true => file::write(dir, key, head, ids, state),
        false => Err(Error::from(ErrorKind::StorageFull)),
    }
}

#[test]
fn on_a_full_disk_files_of_other_keys_make_room_first() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        |key: u8| DiskOptions { dir: dir.path().to_owned(), bytes: 1 << 20, key: [key; 32] };
    let mut disk = Disk::open(options(2)).unwrap();
    for first in [0, 1000] {
        put(&mut disk, &ids(first, 300), &[2; 1000]);
    }
    drop(disk);
    let mut disk = Disk::open_with(options(1), narrow).unwrap();
    put(&mut disk, &ids(0, 300), &[1; 1000]);
    written(&disk, 1);
    put(&mut disk, &ids(1000, 300), &[1; 1000]);
    wait_for(|| disk.counts().failed.load(Relaxed) == 1);
    // The next one finds what the disk lacked, and the room that a file of another key left.
    assert!(disk.wants(&ids(1000, 300), &snapshot(300)));
    wait_for(|| files(dir.path()) == 2);
    put(&mut disk, &ids(1000, 300), &[1; 1000]);
    written(&disk, 2);
    assert_eq!(entries(&disk), 2);
    assert!(disk.files.values().all(|file| dir.path().join(file).exists()));
}

#[test]
fn on_a_full_disk_old_states_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions { dir: dir.path().to_owned(), bytes: 1 << 20, key: KEY };
    let mut disk = Disk::open_with(options, narrow).unwrap();
    for n in 0..3 {
        put(&mut disk, &ids(1000 * n, 300), b"old");
        written(&disk, u64::from(n) + 1);
    }
    put(&mut disk, &ids(9000, 300), b"new");
    wait_for(|| disk.counts().failed.load(Relaxed) == 1);
    assert_eq!((entries(&disk), files(dir.path())), (4, 3));
    // Not that one, but the next: the oldest has made room.
    put(&mut disk, &ids(10_000, 300), b"new");
    written(&disk, 4);
    assert_eq!((entries(&disk), files(dir.path())), (3, 3));
    assert!(!dir.path().join(name(&KEY, &ids(0, 300))).exists());
    assert_eq!(disk.counts().failed.load(Relaxed), 1);
}
