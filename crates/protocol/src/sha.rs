use sha2::{Digest, Sha256};

/// The hash of a reply: SHA-256 over its token ids as little-endian `u32`.
#[derive(Debug, Clone, Default)]
pub struct TokenSha(Sha256);

impl TokenSha {
    /// Takes the next id.
    pub fn push(&mut self, id: u32) {
        self.0.update(id.to_le_bytes());
    }

    /// The hash so far, in lower-case hex.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Extend<u32> for TokenSha {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, ids: T) {
        ids.into_iter().for_each(|id| self.push(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_over_little_endian_ids() {
        assert_eq!(
            TokenSha::default().hex(),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        let mut sha = TokenSha::default();
        sha.extend([1, 0x0102_0304]);
        let mut bytes = Sha256::new();
        bytes.update([1, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(sha.0.finalize(), bytes.finalize());
    }
}
