//! What a request adds to logits before a choice: its bias, and penalties for what was said.

use std::collections::BTreeMap;

use finback_ops::Penalties;

use crate::request::Request;

/// How often each reply token was said.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts(BTreeMap<u32, u32>);

impl Counts {
    pub(crate) fn add(&mut self, id: u32) {
        *self.0.entry(id).or_default() += 1;
    }
}

/// What is added to the logits of the row that follows the said tokens and then `drafts`; empty where
/// the request asks for nothing. It depends on the request and those tokens alone.
pub(crate) fn adds(request: &Request, said: &Counts, drafts: &[u32]) -> Vec<(u32, f32)> {
    let mut adds: BTreeMap<u32, f32> = request.bias.iter().copied().collect();
    if !request.penalties.is_none() {
        let mut counts = said.clone();
        drafts.iter().for_each(|&id| counts.add(id));
        for (id, count) in counts.0 {
            *adds.entry(id).or_default() -= penalty(request.penalties, count);
        }
    }
    adds.into_iter().collect()
}

/// What a token that was said `count` times loses.
fn penalty(penalties: Penalties, count: u32) -> f32 {
    penalties.presence + penalties.frequency * count as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bias_and_penalties_add_up_over_said_tokens_and_drafts() {
        let mut said = Counts::default();
        [4, 9, 4].into_iter().for_each(|id| said.add(id));
        let mut request = Request::greedy(vec![1], 1);
        assert!(adds(&request, &said, &[9]).is_empty());
        request.bias = vec![(9, 5.0), (2, -100.0)];
        assert_eq!(adds(&request, &said, &[9]), [(2, -100.0), (9, 5.0)]);
        request.penalties = Penalties { presence: 0.5, frequency: 0.25 };
        assert_eq!(adds(&request, &said, &[]), [(2, -100.0), (4, -1.0), (9, 4.25)]);
        let want = [(2, -100.0), (4, -1.0), (7, -0.75), (9, 4.0)];
        assert_eq!(adds(&request, &said, &[9, 7]), want);
    }
}
