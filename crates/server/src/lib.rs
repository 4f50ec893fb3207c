//! HTTP routes, streaming and errors.
