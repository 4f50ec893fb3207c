//! The tensor directory of a checkpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::file::is_there;
use crate::header::parse_header;
use crate::index::{WeightMap, read_index};
use crate::map::Map;
use crate::tensor::Tensor;

/// The file that says which shard holds which tensor.
pub const INDEX_FILE: &str = "model.safetensors.index.json";

/// A directory of shards, all mapped, with every tensor by name.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    shards: Vec<Arc<Map>>,
    tensors: BTreeMap<Arc<str>, Tensor>,
}

impl Checkpoint {
    /// Opens the checkpoint in `dir`: the shards that its index names, or without an index every
    /// `*.safetensors`. Reads headers only, never a tensor's bytes.
    ///
    /// # Errors
    /// A missing, cut or malformed shard or index; a tensor that is not where the index says; the
    /// same name in two shards where no index decides. With an index, tensors that it does not
    /// list are not part of the checkpoint.
    pub fn open(dir: &Path) -> Result<Checkpoint> {
        let about = std::fs::metadata(dir).map_err(Error::io(dir))?;
        if !about.is_dir() {
            return Err(Error::file(dir, "a file", "a checkpoint directory"));
        }
        let index_file = dir.join(INDEX_FILE);
        let index = if is_there(&index_file) { Some(read_index(&index_file)?) } else { None };
        let names = match &index {
            Some(map) => map.values().cloned().collect(),
            None => list_shards(dir)?,
        };
        let mut shards = Vec::new();
        let mut tensors = BTreeMap::new();
        for name in names {
            let path = dir.join(&name);
            if let Some((tensor, _)) = index.iter().flatten().find(|(_, shard)| **shard == name)
                && !path.exists()
            {
                let wanted = format!("the shard that {INDEX_FILE} names");
                return Err(Error::tensor(&path, tensor, "no such file", wanted));
            }
            let map = Arc::new(Map::open(&path)?);
            shards.push(Arc::clone(&map));
            for tensor in read_directory(&map)? {
                if index.as_ref().is_some_and(|i| i.get(tensor.name()) != Some(&name)) {
                    continue;
                }
                if let Some(other) = tensors.insert(Arc::clone(&tensor.name), tensor) {
                    let found = format!("the name in {} too", map.path().display());
                    return Err(other.refuse(found, "unique names, or an index that decides"));
                }
            }
        }
        if let Some(index) = &index {
            check_index(&index_file, index, &tensors)?;
        }
        Ok(Checkpoint { dir: dir.to_owned(), shards, tensors })
    }

    /// The tensor called `name`.
    ///
    /// # Errors
    /// There is none.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        self.get(name).cloned().ok_or_else(|| {
            let wanted = format!("it in one of {} shards", self.shards.len());
            Error::tensor(&self.dir, name, "no such tensor", wanted)
        })
    }

    /// The tensor called `name`, if there is one.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Every tensor, by ascending name.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = &Tensor> {
        self.tensors.values()
    }

    /// The directory it was opened from.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path and mapped bytes of each shard, by ascending name.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = (&Path, &[u8])> {
        self.shards.iter().map(|m| (m.path(), m.bytes()))
    }

    /// Bytes of all shards: what the mappings span, not what is resident.
    pub fn mapped_bytes(&self) -> usize {
        self.shards.iter().map(|m| m.bytes().len()).sum()
    }
}

/// The `*.safetensors` files of `dir`.
fn list_shards(dir: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io(dir))? {
        let name = entry.map_err(Error::io(dir))?.file_name();
        // A name that is not UTF-8 could not be given in a message or an index.
        if let Some(name) = name.to_str().filter(|n| n.ends_with(".safetensors")) {
            names.insert(name.to_owned());
        }
    }
    if names.is_empty() {
        let wanted = format!("{INDEX_FILE} or *.safetensors");
        return Err(Error::file(dir, "a directory without shards", wanted));
    }
    Ok(names)
}

fn read_directory(map: &Arc<Map>) -> Result<impl Iterator<Item = Tensor>> {
    let header = parse_header(map.path(), map.bytes())?;
    let map = Arc::clone(map);
    Ok(header.tensors.into_iter().map(move |t| Tensor {
        name: t.name.into(),
        dtype: t.dtype,
        shape: t.shape.into(),
        map: Arc::clone(&map),
        range: t.range,
    }))
}

fn check_index(file: &Path, index: &WeightMap, tensors: &BTreeMap<Arc<str>, Tensor>) -> Result<()> {
    match index.iter().find(|(name, _)| !tensors.contains_key(name.as_str())) {
        Some((name, shard)) => {
            Err(Error::tensor(file, name, format!("no such tensor in {shard}"), "it in that shard"))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
