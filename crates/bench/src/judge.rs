//! Whether replies have the same tokens, by their hashes.

use serde_json::{Value, json};

/// What a comparison of two replies says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Both hashes are there and equal.
    Equal,
    /// Both hashes are there and differ.
    Unequal,
    /// A hash is missing, so nothing is known.
    Failed,
}

impl Verdict {
    /// As tables and JSON name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Unequal => "unequal",
            Self::Failed => "unverified",
        }
    }
}

/// Compares two hashes. A missing one never counts as equal, not even to another missing one.
#[must_use]
pub fn judge(this: Option<&str>, reference: Option<&str>) -> Verdict {
    match (this, reference) {
        (Some(this), Some(reference)) if this == reference => Verdict::Equal,
        (Some(_), Some(_)) => Verdict::Unequal,
        _ => Verdict::Failed,
    }
}

/// Verdicts counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Of [`Verdict::Equal`].
    pub equal: usize,
    /// Of [`Verdict::Unequal`].
    pub unequal: usize,
    /// Of [`Verdict::Failed`].
    pub failed: usize,
}

impl Tally {
    /// Counts one more.
    pub fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Equal => self.equal += 1,
            Verdict::Unequal => self.unequal += 1,
            Verdict::Failed => self.failed += 1,
        }
    }

    /// Whether something was compared and all of it is equal.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.equal > 0 && self.unequal == 0 && self.failed == 0
    }

    /// `equal`, `unequal` and `failed`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"equal": self.equal, "unequal": self.unequal, "failed": self.failed})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_hash_is_never_equal() {
        assert_eq!(judge(Some("a"), Some("a")), Verdict::Equal);
        assert_eq!(judge(Some("a"), Some("b")), Verdict::Unequal);
        for (this, reference) in [(None, None), (Some("a"), None), (None, Some("a"))] {
            assert_eq!(judge(this, reference), Verdict::Failed);
        }
    }

    #[test]
    fn a_tally_passes_only_if_something_was_equal_and_nothing_else() {
        let mut tally = Tally::default();
        assert!(!tally.passed());
        tally.add(Verdict::Equal);
        assert!(tally.passed());
        for other in [Verdict::Unequal, Verdict::Failed] {
            let mut tally = tally;
            tally.add(other);
            assert!(!tally.passed());
        }
    }
}
