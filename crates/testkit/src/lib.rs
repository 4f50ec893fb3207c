//! Checkpoints and right answers for tests.
