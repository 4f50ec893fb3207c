//! Why a checkpoint is not one that this model can run.

use std::path::{Path, PathBuf};

/// Shorthand for results of loading.
pub type LoadResult<T> = Result<T, LoadError>;

/// A checkpoint that cannot be loaded. Each displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file or tensor of the checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] finback_checkpoint::Error),
    /// A field of the config.
    #[error("{}: {field}: found {found}, wanted {wanted}", file.display())]
    Config {
        /// The config file.
        file: PathBuf,
        /// The field, with the object that holds it.
        field: String,
        /// Its value.
        found: String,
        /// What is accepted.
        wanted: String,
    },
}

impl LoadError {
    pub(crate) fn config(
        file: &Path,
        field: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        LoadError::Config {
            file: file.to_owned(),
            field: field.into(),
            found: found.into(),
            wanted: wanted.into(),
        }
    }
}
