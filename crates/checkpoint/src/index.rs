//! `model.safetensors.index.json`: which shard holds which tensor.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};

use crate::error::{Error, Result};
use crate::file::read_file;

/// Tensor name -> shard file name.
pub(crate) type WeightMap = BTreeMap<String, String>;

/// Reads the index at `file`. Shards are plain names of files beside it.
pub(crate) fn read_index(file: &Path) -> Result<WeightMap> {
    let text = read_file(file)?;
    let raw: RawIndex = serde_json::from_slice(&text).map_err(|e| {
        let found = format!("an index that does not parse ({e})");
        Error::file(file, found, "an object with a weight_map of tensor names to shard names")
    })?;
    for (tensor, shard) in &raw.weight_map.0 {
        // A line end in the name would break the messages that hold it.
        let odd = |c: char| matches!(c, '/' | '\\') || c.is_control();
        if shard.is_empty() || shard == "." || shard == ".." || shard.contains(odd) {
            let found = format!("shard {shard:?}");
            return Err(Error::tensor(file, tensor, found, "the name of a file beside the index"));
        }
    }
    if raw.weight_map.0.is_empty() {
        return Err(Error::file(file, "an empty weight_map", "at least one tensor"));
    }
    Ok(raw.weight_map.0)
}

#[derive(Deserialize)]
struct RawIndex {
    weight_map: RawMap,
}

struct RawMap(WeightMap);

impl<'de> Deserialize<'de> for RawMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of shard names")
            }

            fn visit_map<A: MapAccess<'de>>(
                self,
                mut map: A,
            ) -> std::result::Result<RawMap, A::Error> {
                let mut entries = WeightMap::new();
                while let Some((name, shard)) = map.next_entry::<String, String>()? {
                    if let Some((name, _)) = entries.remove_entry(&name) {
                        let text = format_args!("tensor {name:?} listed twice");
                        return Err(de::Error::custom(text));
                    }
                    entries.insert(name, shard);
                }
                Ok(RawMap(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
