//! Safetensors shards mapped read-only, the tensor directory, and the writer of the same layout.
//!
//! [`Checkpoint::open`] maps every shard of a directory and reads only their headers: opening costs
//! the same whether the weights are 4 MB or 400 GB. A [`Tensor`] is a name, a dtype, a shape and a
//! range of a mapped shard; its bytes are never copied. [`write()`] makes the same layout from a
//! list of [`Entry`] and a function that streams each one's bytes.
//!
//! There is no arithmetic here: what the bytes mean is the model's business.

mod checkpoint;
mod dtype;
mod error;
mod file;
mod header;
mod index;
mod map;
mod tensor;
mod writer;

pub use checkpoint::{Checkpoint, INDEX_FILE};
pub use dtype::Dtype;
pub use error::{Error, Result};
pub use file::{is_there, read_file};
pub use header::{HEADER_BYTES_MAX, Header, HeaderTensor, parse_header};
pub use tensor::{Advice, Tensor};
pub use writer::{Entry, Sink, write, write_file};
