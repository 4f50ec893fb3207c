//! Any bytes give a kept prefix that is written as it was read, or one line.

/// Reads `data` as the file of a kept prefix, as it is and with its sum set right; panics where what
/// comes out is wrong.
pub fn run(data: &[u8]) {
    for mend in [false, true] {
        match finback_engine::testing::reread_prefix(data, mend) {
            Ok(again) => {
                assert_eq!(again.len(), data.len());
                let sum = if mend { 32 } else { 0 };
                assert!(again[..again.len() - sum] == data[..data.len() - sum], "read otherwise");
            }
            Err(line) => assert!(!line.is_empty() && !line.contains('\n'), "{line:?}"),
        }
    }
}
