//! How the token of a logit row is chosen: the parameters that cross the device boundary.

/// Parameters of one row's choice.
///
/// Filters apply in this order: temperature, `top_k`, `top_p`, `min_p`. A token's draw is keyed by
/// (`seed`, position, token id), so the choice depends on nothing that ran beside it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 is greedy (the largest logit, ties to the lowest id).
    pub temperature: f32,
    /// Keeps the `top_k` largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keeps the smallest set of largest probabilities whose sum reaches `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens whose probability is at least `min_p` times the largest; 0 keeps all.
    pub min_p: f32,
    /// Keys the draw.
    pub seed: u64,
}

impl Sampling {
    /// The largest logit, ties to the lowest id.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };
}

/// How tokens that were said weigh against being said again; depends only on the tokens before.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Penalties {
    /// Taken off the logit of every token that was said.
    pub presence: f32,
    /// Taken off once for each time it was said.
    pub frequency: f32,
}

impl Penalties {
    /// Whether nothing is taken off.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What is added to a few logits of each of several rows before their tokens are chosen.
///
/// Two flat lists, so that a device takes them in one upload; the logit rows themselves keep their
/// values. Rows that were not pushed have nothing added.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Adjust {
    /// Where each row's entries end.
    ends: Vec<usize>,
    /// Token id, below the vocabulary and once a row, and what is added to its logit.
    entries: Vec<(u32, f32)>,
}

impl Adjust {
    /// Adds the next row's entries.
    pub fn push(&mut self, row: impl IntoIterator<Item = (u32, f32)>) {
        self.entries.extend(row);
        self.ends.push(self.entries.len());
    }

    /// The entries of row `i`.
    #[must_use]
    pub fn row(&self, i: usize) -> &[(u32, f32)] {
        let start = i.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        match (start, self.ends.get(i)) {
            (Some(start), Some(&end)) => &self.entries[start..end],
            _ => &[],
        }
    }

    /// All entries, and where each row's end.
    #[must_use]
    pub fn parts(&self) -> (&[(u32, f32)], &[usize]) {
        (&self.entries, &self.ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_adjustments_come_back_as_they_were_pushed() {
        let mut adjust = Adjust::default();
        assert!(adjust.row(0).is_empty());
        adjust.push([(3, 1.0), (1, -2.0)]);
        adjust.push([]);
        adjust.push([(7, 0.5)]);
        assert_eq!(adjust.row(0), [(3, 1.0), (1, -2.0)]);
        assert!(adjust.row(1).is_empty());
        assert_eq!(adjust.row(2), [(7, 0.5)]);
        assert!(adjust.row(3).is_empty());
        assert_eq!(adjust.parts().1, [2, 2, 3]);
    }
}
