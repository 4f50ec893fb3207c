//! Splitting a step's rows and buffers over the team, each worker with its own part.

use std::ops::Range;
use std::sync::Mutex;

use crate::team::{Team, TeamError};

/// `range` in at most `parts` even pieces, none empty.
pub fn parts(range: Range<usize>, parts: usize) -> Vec<Range<usize>> {
    let (start, len) = (range.start, range.len());
    let n = parts.clamp(1, len.max(1));
    (0..n)
        .map(|i| start + len * i / n..start + len * (i + 1) / n)
        .filter(|r| !r.is_empty())
        .collect()
}

/// The part of a row-major buffer that belongs to each of the consecutive `parts`.
pub fn cut<'a, T>(buffer: &'a mut [T], width: usize, parts: &[Range<usize>]) -> Vec<&'a mut [T]> {
    let mut rest = match parts.first() {
        Some(first) => &mut buffer[first.start * width..],
        None => &mut [],
    };
    parts
        .iter()
        .map(|part| {
            let (own, others) = std::mem::take(&mut rest).split_at_mut(part.len() * width);
            rest = others;
            own
        })
        .collect()
}

/// Runs `body(index, context)` once for each context.
pub fn each<C: Send>(
    team: &mut Team,
    contexts: &mut [C],
    body: impl Fn(usize, &mut C) + Sync,
) -> Result<(), TeamError> {
    if let [only] = contexts {
        return team.alone(|| body(0, only));
    }
    // Each lock is taken once.
    let cells: Vec<Mutex<&mut C>> = contexts.iter_mut().map(Mutex::new).collect();
    team.each(cells.len(), |_, index| {
        if let Ok(mut context) = cells[index].lock() {
            body(index, &mut context);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_in_order() {
        for len in 0..40 {
            for n in 1..9 {
                let p = parts(5..5 + len, n);
                assert_eq!(p.iter().map(ExactSizeIterator::len).sum::<usize>(), len);
                assert!(p.len() <= n && p.iter().all(|r| !r.is_empty()));
                assert!(p.windows(2).all(|w| w[0].end == w[1].start));
            }
        }
    }

    #[test]
    fn cuts_follow_their_parts() {
        let mut buffer: Vec<usize> = (0..30).collect();
        let cuts = cut(&mut buffer, 3, &parts(2..9, 3));
        assert_eq!(cuts.iter().map(|c| c[0]).collect::<Vec<_>>(), [6, 12, 18]);
        assert_eq!(cuts.iter().map(|c| c.len()).collect::<Vec<_>>(), [6, 6, 9]);
    }

    #[test]
    fn a_panic_in_the_only_part_is_an_error_too() {
        let mut team = Team::new(2).unwrap();
        for contexts in [&mut [1][..], &mut [1, 2]] {
            let result = each(&mut team, contexts, |_, context| assert_ne!(*context, 1, "part 1"));
            let message = result.unwrap_err().to_string();
            assert!(message.contains("part 1"), "{message}");
        }
        each(&mut team, &mut [2], |_, context| assert_eq!(*context, 2)).unwrap();
    }
}
