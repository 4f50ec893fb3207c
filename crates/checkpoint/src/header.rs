//! The header of one shard: its bounds, and the directory it holds.
//!
//! A shard is 8 bytes of little-endian header length, that many bytes of JSON (name -> dtype,
//! shape, data_offsets), then the data. The tensors must tile the data: no gap, no overlap, no rest.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, de};

use crate::dtype::Dtype;
use crate::error::{Error, Result};

/// The longest header accepted, in bytes (the format's own bound).
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

const METADATA: &str = "__metadata__";

/// A shard's directory.
#[derive(Debug)]
pub struct Header {
    /// Tensors in the order of their bytes; ranges count from the start of the file.
    pub tensors: Vec<HeaderTensor>,
}

/// One tensor of a shard.
#[derive(Debug, PartialEq)]
pub struct HeaderTensor {
    /// Name, unique in the shard.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Bytes in the file.
    pub range: Range<usize>,
}

/// Reads the directory of a shard whose whole content is `bytes`; `file` is for messages only.
///
/// Touches nothing behind the header. Never panics, whatever the bytes are.
pub fn parse_header(file: &Path, bytes: &[u8]) -> Result<Header> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(Error::file(
            file,
            format!("{} bytes", bytes.len()),
            "a safetensors file of at least 8 bytes",
        ));
    };
    let length = u64::from_le_bytes(*length);
    if length > HEADER_BYTES_MAX {
        return Err(Error::file(
            file,
            format!("a header of {length} bytes"),
            format!("at most {HEADER_BYTES_MAX} (a safetensors file)"),
        ));
    }
    // Cannot lose bits: checked against the bound above.
    let length = length as usize;
    let Some((json, data)) = rest.split_at_checked(length) else {
        return Err(Error::file(
            file,
            format!("{} bytes", bytes.len()),
            format!("{} for the header alone (is the file cut short?)", length + 8),
        ));
    };
    let raw: RawHeader = serde_json::from_slice(json).map_err(|e| {
        Error::file(file, format!("a header that does not parse ({e})"), "a safetensors header")
    })?;
    check(file, raw, 8 + length, data.len())
}

/// The rules the JSON alone does not enforce. `start` is where the data begins in the file.
fn check(file: &Path, raw: RawHeader, start: usize, data_bytes: usize) -> Result<Header> {
    let mut names = HashSet::new();
    for (name, _) in &raw.0 {
        if !names.insert(name) {
            return Err(Error::tensor(file, name, "the name twice in the header", "unique names"));
        }
    }
    let mut tensors = Vec::with_capacity(raw.0.len());
    for (name, info) in raw.0 {
        tensors.push(check_tensor(file, name, info, data_bytes)?);
    }
    tensors.sort_by_key(|t| (t.range.start, t.range.end));
    let mut at = 0;
    for t in &mut tensors {
        let Range { start: begin, end } = t.range;
        if begin != at {
            let how = if begin < at { "overlaps the tensor before it" } else { "leaves a gap" };
            let found = format!("an offset of {begin}, which {how}");
            return Err(Error::tensor(file, &t.name, found, at.to_string()));
        }
        t.range = start + begin..start + end;
        at = end;
    }
    if at != data_bytes {
        let found = format!("{} bytes after the last tensor", data_bytes - at);
        return Err(Error::file(file, found, "none"));
    }
    Ok(Header { tensors })
}

fn check_tensor(file: &Path, name: String, info: RawTensor, data: usize) -> Result<HeaderTensor> {
    let bad = |found: String, wanted: String| Err(Error::tensor(file, &name, found, wanted));
    let Some(dtype) = Dtype::from_name(&info.dtype) else {
        let known: Vec<_> = Dtype::ALL.iter().map(|d| d.name()).collect();
        return bad(format!("dtype {:?}", info.dtype), format!("one of {}", known.join(", ")));
    };
    let Some(bytes) = dtype.bytes(&info.shape) else {
        let found = format!("{dtype} {:?}", info.shape);
        return bad(found, "a size in whole bytes that fits memory".into());
    };
    let [begin, end] = info.data_offsets;
    if begin > end {
        return bad(format!("offsets {begin}..{end}"), "the first not above the second".into());
    }
    if end > data {
        let found = format!("offsets {begin}..{end} in {data} bytes of data");
        return bad(found, "offsets inside the file (is it cut short?)".into());
    }
    if end - begin != bytes {
        let found = format!("{} bytes (offsets {begin}..{end})", end - begin);
        return bad(found, format!("{bytes} for {dtype} {:?}", info.shape));
    }
    Ok(HeaderTensor { name, dtype, shape: info.shape, range: begin..end })
}

/// The JSON as it stands: a list, so that a name given twice is seen.
struct RawHeader(Vec<(String, RawTensor)>);

#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<RawHeader, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let tensor = map
                        .next_value()
                        .map_err(|e| de::Error::custom(format_args!("tensor {name:?}: {e}")))?;
                    entries.push((name, tensor));
                }
                Ok(RawHeader(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

#[cfg(test)]
#[path = "header_tests.rs"]
mod tests;
