//! Where the devices that share one model meet, each driven by a thread of its own.
//!
//! All of them are asked for the same calls in the same order. A device that fails in a call does not
//! come to what is left of it, so who waits for it in that call fails with its error; in another call it
//! may come again. One that is gone comes to nothing any more.

use std::ops::RangeInclusive;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long one waits for the others: far longer than any launch takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// A device's place among those that share one model.
#[derive(Debug, Clone)]
pub struct Seat {
    /// Which it is, from 0.
    pub rank: usize,
    /// Where it meets the others.
    pub meeting: Arc<Meeting>,
}

/// The parts of one meeting, in order of rank.
pub type Parts = Arc<Vec<Vec<u8>>>;

/// A meeting place for a fixed number of devices.
#[derive(Debug)]
pub struct Meeting {
    state: Mutex<State>,
    changed: Condvar,
    patience: Duration,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// Meetings that took place.
    held: u64,
    /// What was brought to the last one.
    parts: Parts,
    /// Who was gone before anyone else.
    first_gone: Option<usize>,
}

#[derive(Debug, Clone, Default)]
struct Member {
    /// What it brought to the meeting to come.
    part: Option<Vec<u8>>,
    /// The call that it is in or was in last.
    call: u64,
    /// The calls in a row that it failed in last, and why.
    failed: Option<(RangeInclusive<u64>, String)>,
    /// Why it comes to nothing any more.
    gone: Option<String>,
}

impl Meeting {
    /// One for so many devices; their seats in order.
    pub fn seats(count: usize) -> Vec<Seat> {
        Self::with_patience(count, PATIENCE)
    }

    fn with_patience(count: usize, patience: Duration) -> Vec<Seat> {
        let state = State { members: vec![Member::default(); count], ..State::default() };
        let meeting =
            Arc::new(Self { state: Mutex::new(state), changed: Condvar::new(), patience });
        (0..count).map(|rank| Seat { rank, meeting: meeting.clone() }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// How many devices there are.
    pub fn count(&self) -> usize {
        self.meeting.lock().members.len()
    }

    /// Begins a call; calls are numbered alike on all devices.
    pub fn begin(&self, call: u64) {
        self.meeting.lock().members[self.rank].call = call;
    }

    /// Says that the call it is in has failed.
    pub fn fail(&self, why: &str) {
        let mut state = self.meeting.lock();
        let member = &mut state.members[self.rank];
        let call = member.call;
        // One that is behind may still wait in the first of the calls in a row that this one failed in.
        let first = match &member.failed {
            Some((calls, _)) if calls.end() + 1 >= call => *calls.start(),
            _ => call,
        };
        member.failed = Some((first..=call, why.into()));
        member.part = None;
        self.meeting.changed.notify_all();
    }

    /// Says that it comes to nothing any more.
    pub fn leave(&self, why: &str) {
        let mut state = self.meeting.lock();
        state.first_gone.get_or_insert(self.rank);
        let member = &mut state.members[self.rank];
        member.gone.get_or_insert_with(|| why.into());
        member.part = None;
        self.meeting.changed.notify_all();
    }

    /// Which device was gone before any other: the one that no other's going made go.
    pub fn first_gone(&self) -> Option<usize> {
        self.meeting.lock().first_gone
    }

    /// Why another device will not come to what is left of this one's call.
    pub fn alone(&self) -> Option<String> {
        self.meeting.lock().missing(self.rank)
    }

    /// Brings a part and waits until every device has; the parts of all.
    ///
    /// # Errors
    /// Who does not come and why, parts of different sizes, or a wait beyond all reason.
    pub fn exchange(&self, part: Vec<u8>) -> Result<Parts, String> {
        let until = Instant::now() + self.meeting.patience;
        let mut state = self.meeting.lock();
        let held = state.held;
        state.members[self.rank].part = Some(part);
        state.hold();
        self.meeting.changed.notify_all();
        while state.held == held {
            let left = until.saturating_duration_since(Instant::now());
            let why = state.missing(self.rank).or_else(|| {
                let late = state.members.iter().position(|member| member.part.is_none());
                let seconds = self.meeting.patience.as_secs();
                late.filter(|_| left.is_zero())
                    .map(|rank| format!("GPU {rank} did not come within {seconds} s"))
            });
            if let Some(why) = why {
                state.members[self.rank].part = None;
                return Err(why);
            }
            state = match self.meeting.changed.wait_timeout(state, left) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        let parts = state.parts.clone();
        drop(state);
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        match sizes.iter().position(|&size| size != sizes[0]) {
            None => Ok(parts),
            Some(rank) => {
                let (first, other) = (sizes[0], sizes[rank]);
                Err(format!("GPU 0 brought {first} bytes and GPU {rank} {other}"))
            }
        }
    }
}

impl State {
    /// Holds the meeting where everyone is there.
    fn hold(&mut self) {
        if self.members.iter().any(|member| member.part.is_none()) {
            return;
        }
        let parts = self.members.iter_mut().filter_map(|member| member.part.take());
        self.parts = Arc::new(parts.collect());
        self.held += 1;
    }

    /// Who does not come to what is left of this device's call, and why.
    fn missing(&self, rank: usize) -> Option<String> {
        let call = self.members[rank].call;
        let mut others = self.members.iter().enumerate().filter(|(other, _)| *other != rank);
        others.find_map(|(other, member)| {
            let failed = member.failed.as_ref().filter(|(calls, _)| calls.contains(&call));
            let why = member.gone.as_ref().or(failed.map(|(_, why)| why))?;
            Some(format!("GPU {other}: {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_all_parts_in_order_at_every_meeting() {
        let seats = Meeting::seats(3);
        let threads: Vec<_> = seats
            .into_iter()
            .map(|seat| {
                std::thread::spawn(move || {
                    (0..50u8).map(|i| seat.exchange(vec![seat.rank as u8, i]).unwrap()).collect()
                })
            })
            .collect();
        for thread in threads {
            let met: Vec<Parts> = thread.join().unwrap();
            for (i, parts) in met.iter().enumerate() {
                let i = i as u8;
                assert_eq!(**parts, [vec![0, i], vec![1, i], vec![2, i]]);
            }
        }
    }

    #[test]
    fn one_that_fails_in_a_call_or_is_gone_is_named_to_who_waits() {
        let [first, second] = Meeting::seats(2).try_into().unwrap();
        for seat in [&first, &second] {
            seat.begin(4);
        }
        let waits = std::thread::spawn(move || (first.exchange(vec![1]), first));
        second.fail("it broke");
        let (met, first) = waits.join().unwrap();
        assert_eq!(met.unwrap_err(), "GPU 1: it broke");
        assert_eq!(first.alone().as_deref(), Some("GPU 1: it broke"));
        // The call after is another.
        for seat in [&first, &second] {
            seat.begin(5);
        }
        assert_eq!(first.alone(), None);
        let waits = std::thread::spawn(move || (first.exchange(vec![1]), first));
        assert_eq!(*second.exchange(vec![2]).unwrap(), [vec![1], vec![2]]);
        let (met, first) = waits.join().unwrap();
        assert_eq!(*met.unwrap(), [vec![1], vec![2]]);
        // A failure that is not settled is one in every call that follows, while others are behind.
        for call in [6, 7, 8] {
            second.begin(call);
            second.fail("it broke");
        }
        for (call, wanted) in
            [(5, None), (6, Some("GPU 1: it broke")), (8, Some("GPU 1: it broke"))]
        {
            first.begin(call);
            assert_eq!(first.alone().as_deref(), wanted, "{call}");
        }
        second.begin(10);
        second.fail("again");
        assert_eq!(first.alone(), None, "of call 8");
        assert_eq!(first.first_gone(), None);
        second.leave("it went");
        second.leave("later");
        first.begin(11);
        assert_eq!(first.exchange(vec![1]).unwrap_err(), "GPU 1: it went");
        first.leave("it cannot go on");
        assert_eq!(first.first_gone(), Some(1));
    }

    #[test]
    fn parts_of_different_sizes_and_one_that_never_comes_are_refused() {
        let [first, second] = Meeting::seats(2).try_into().unwrap();
        let waits = std::thread::spawn(move || first.exchange(vec![1]));
        let text = "GPU 0 brought 1 bytes and GPU 1 3";
        assert_eq!(second.exchange(vec![2; 3]).unwrap_err(), text);
        assert_eq!(waits.join().unwrap().unwrap_err(), text);
        let seats = Meeting::with_patience(2, Duration::ZERO);
        assert_eq!(seats[1].exchange(vec![]).unwrap_err(), "GPU 0 did not come within 0 s");
    }
}
