//! Any bytes give a directory whose tensors tile the file, or one line.

use std::collections::HashSet;
use std::path::Path;

/// Parses `data` as a shard and checks what comes out; panics where it is wrong.
pub fn run(data: &[u8]) {
    let header = match finback_checkpoint::parse_header(Path::new("shard"), data) {
        Ok(header) => header,
        Err(e) => {
            let line = e.to_string();
            assert!(line.starts_with("shard: ") && !line.contains('\n'), "{line:?}");
            return;
        }
    };
    let mut names = HashSet::new();
    let mut at = header.tensors.first().map_or(data.len(), |t| t.range.start);
    assert!(at >= 8);
    for t in &header.tensors {
        assert!(names.insert(&t.name), "{} twice", t.name);
        assert_eq!(t.range.start, at, "{} follows the tensor before it", t.name);
        assert_eq!(t.dtype.bytes(&t.shape), Some(t.range.len()), "{}", t.name);
        at = t.range.end;
    }
    assert_eq!(at, data.len());
}
