//! What can be wrong with a checkpoint: the file, the tensor, what was found, what was wanted.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A checkpoint that cannot be read or written. Each displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file as a whole is not what it should be.
    #[error("{}: found {found}, wanted {wanted}", file.display())]
    File {
        /// The file or directory.
        file: PathBuf,
        /// What is there.
        found: String,
        /// What is accepted.
        wanted: String,
    },
    /// One tensor is not what it should be.
    #[error("{}: tensor {tensor:?}: found {found}, wanted {wanted}", file.display())]
    Tensor {
        /// The shard that holds the tensor, or the index or directory that should list it.
        file: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// What is there.
        found: String,
        /// What is accepted.
        wanted: String,
    },
}

impl Error {
    /// A refusal of one tensor of `file`.
    pub fn tensor(
        file: &Path,
        tensor: &str,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        Error::Tensor {
            file: file.to_owned(),
            tensor: tensor.to_owned(),
            found: found.into(),
            wanted: wanted.into(),
        }
    }

    /// A refusal of `file` as a whole.
    pub fn file(file: &Path, found: impl Into<String>, wanted: impl Into<String>) -> Self {
        Error::File { file: file.to_owned(), found: found.into(), wanted: wanted.into() }
    }

    pub(crate) fn io(file: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::Io { file: file.to_owned(), source }
    }
}
