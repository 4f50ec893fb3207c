//! Safetensors shards mapped read-only, the tensor directory, and the writer of the same layout.
