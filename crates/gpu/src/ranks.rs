//! Several devices as one backend: each call is made on all of them, in the same order.
//!
//! The first device works on the caller's thread, every other one on a thread of its own, which runs
//! behind until something is read: then all have answered, and alike. A call that all refuse alike harms
//! nothing. One that only some fail leaves them different, so it ends all of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use finback_kernels::device::Device;
use finback_kernels::meeting::Seat;
use finback_ops::{Limits, ModelSpec, OpsError, OpsResult};

use crate::hosted::ExpertsOn;
use crate::ops::GpuOps;
use crate::start::Setup;

/// A call that any device can make.
type Job = Arc<dyn Fn(&mut GpuOps) -> OpsResult + Send + Sync>;

/// The backend over several devices that share a model.
pub struct Ranks {
    pub(crate) first: Rank,
    others: Vec<Worker>,
    /// Calls that were made.
    calls: u64,
    /// Why no call is made any more.
    ended: Option<String>,
}

/// A device's backend and its seat.
pub(crate) struct Rank {
    pub(crate) ops: GpuOps,
    seat: Seat,
    /// Counts failures on all devices.
    failures: Arc<AtomicU64>,
    /// The call that failed and was not settled; no other is made before.
    failed: Option<Failed>,
}

/// A call that failed on a device.
struct Failed {
    call: u64,
    /// The failures before it on all devices: one that others fail by comes before theirs.
    before: u64,
    error: OpsError,
}

/// What a device's thread is asked for.
enum Ask {
    Call(u64, Job),
    /// To say that all calls before are over, and which failed.
    Settle(Sender<(usize, Option<Failed>)>),
}

struct Worker {
    asks: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

impl Rank {
    fn run(&mut self, call: u64, job: &Job) -> bool {
        self.seat.begin(call);
        if let Some(Failed { error, .. }) = &self.failed {
            self.seat.fail(&error.to_string());
            return false;
        }
        let done = catch_unwind(AssertUnwindSafe(|| job(&mut self.ops)));
        let Err(error) = done.unwrap_or_else(|panic| Err(self.panicked(panic.as_ref()))) else {
            return true;
        };
        let before = self.failures.fetch_add(1, Ordering::SeqCst);
        self.seat.fail(&error.to_string());
        self.failed = Some(Failed { call, before, error });
        false
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> OpsError {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_string());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned());
        let reason = format!("it panicked: {}", said.unwrap_or_default());
        OpsError::Failed { backend: self.ops.queue.name(), step: "a call", reason }
    }

    fn work(mut self, asks: &Receiver<Ask>) {
        for ask in asks {
            match ask {
                Ask::Call(call, job) => {
                    self.run(call, &job);
                }
                Ask::Settle(to) => {
                    // Nobody listens where the backend is being dropped.
                    let _ = to.send((self.seat.rank, self.failed.take()));
                }
            }
        }
    }
}

impl Ranks {
    /// Allocates for the limits on each device and copies its part of the weights there; `progress`
    /// takes the bytes that are there, of the sum of all devices' [`Needs::weights`](crate::Needs).
    ///
    /// # Errors
    /// Devices that do not share one model, or what [`GpuOps::with`] refuses on one of them.
    pub fn new(
        spec: &Arc<ModelSpec>,
        limits: Limits,
        setup: Setup,
        devices: Vec<Box<dyn Device>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, OpsError> {
        let name = devices.first().map_or("gpu", |device| device.name());
        let mut seats: Vec<Seat> = devices.iter().filter_map(|device| device.seat()).collect();
        let in_order = seats.iter().enumerate().all(|(i, seat)| seat.rank == i);
        let whole = |seat: &Seat| seat.count() == devices.len();
        if seats.len() != devices.len() || seats.is_empty() || !in_order || !seats.iter().all(whole)
        {
            let reason = format!("{} devices that do not share one model", devices.len());
            return Err(OpsError::Unsupported { backend: name, step: "on several GPUs", reason });
        }
        if setup.experts != ExpertsOn::Device {
            let (step, reason) = ("on several GPUs", "experts on the host take one GPU".into());
            return Err(OpsError::Unsupported { backend: name, step, reason });
        }
        let failures = Arc::new(AtomicU64::new(0));
        let mut ranks = Vec::new();
        let mut ready = load(spec, limits, setup, devices, progress);
        // Others may have ended because the first to end did; of those that failed alike the lowest is named.
        let said = |ops: &Result<_, OpsError>| ops.as_ref().err().map(OpsError::to_string);
        let cause =
            seats.first().and_then(Seat::first_gone).and_then(|rank| said(ready.get(rank)?));
        let first = ready.iter().position(|ops| cause.is_some() && said(ops) == cause).unwrap_or(0);
        ready.rotate_left(first);
        seats.rotate_left(first);
        for (ops, seat) in ready.into_iter().zip(seats) {
            let ops = ops.map_err(|error| named(seat.rank, error, name))?;
            ranks.push(Rank { ops, seat, failures: failures.clone(), failed: None });
        }
        let mut ranks = ranks.into_iter();
        let Some(first) = ranks.next() else {
            let (step, reason) = ("on several GPUs", "no device".into());
            return Err(OpsError::Unsupported { backend: name, step, reason });
        };
        let others = ranks.map(|rank| Worker::new(rank, name)).collect::<Result<_, _>>()?;
        Ok(Self { first, others, calls: 0, ended: None })
    }

    /// Sets the rows up to which a pass's launches go to each device as one tape.
    ///
    /// # Errors
    /// A device that failed before.
    pub fn tape_up_to(&mut self, rows: usize) -> OpsResult {
        self.all(move |ops| {
            ops.tape_up_to(rows);
            Ok(())
        })
    }

    /// Makes a call on all devices.
    pub(crate) fn all(
        &mut self,
        job: impl Fn(&mut GpuOps) -> OpsResult + Send + Sync + 'static,
    ) -> OpsResult {
        let job: Job = Arc::new(job);
        if self.call(&job)? { Ok(()) } else { self.settle() }
    }

    /// Makes a call whose answer all devices must give alike; the answer.
    pub(crate) fn ask<T: PartialEq + Send + 'static>(
        &mut self,
        step: &'static str,
        job: impl Fn(&mut GpuOps) -> Result<T, OpsError> + Send + Sync + 'static,
    ) -> Result<T, OpsError> {
        let answers: Arc<Mutex<Vec<T>>> = Arc::default();
        let own = answers.clone();
        let job: Job = Arc::new(move |ops| {
            let answer = job(ops)?;
            own.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
            Ok(())
        });
        self.call(&job)?;
        self.settle()?;
        let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = answers.iter().all(|answer| *answer == answers[0]);
        match answers.pop() {
            Some(answer) if alike => Ok(answer),
            _ => Err(self.end(step, "the GPUs do not answer alike".into())),
        }
    }

    /// Hands a call to the other devices and makes it on the first; whether it did not fail there.
    fn call(&mut self, job: &Job) -> Result<bool, OpsError> {
        if let Some(why) = &self.ended {
            let reason = format!("it has ended: {why}");
            return Err(OpsError::Failed { backend: self.name(), step: "a call", reason });
        }
        self.calls += 1;
        for worker in &self.others {
            worker.send(Ask::Call(self.calls, job.clone()));
        }
        Ok(self.first.run(self.calls, job))
    }

    /// Waits for all devices. Where a call failed on all of them alike its error comes back; where it
    /// did not, they all end.
    fn settle(&mut self) -> OpsResult {
        let (to, answers) = channel();
        for worker in &self.others {
            worker.send(Ask::Settle(to.clone()));
        }
        drop(to);
        let mut failed = vec![(0, self.first.failed.take())];
        failed.extend(answers.iter());
        let all_here = failed.len() == self.others.len() + 1;
        let text = |failed: &Option<Failed>| {
            failed.as_ref().map(|failed| (failed.call, failed.error.to_string()))
        };
        let first = text(&failed[0].1);
        let alike = all_here && failed.iter().all(|(_, failed)| text(failed) == first);
        let failed = failed.into_iter().filter_map(|(rank, failed)| Some((rank, failed?)));
        let cause = failed.min_by_key(|(_, failed)| (failed.call, failed.before));
        match cause {
            None if alike => Ok(()),
            Some((_, Failed { error, .. })) if alike => Err(error),
            Some((rank, Failed { error, .. })) => {
                let error = named(rank, error, self.name());
                self.end("a call", error.to_string());
                Err(error)
            }
            None => Err(self.end("a call", "a GPU's thread ended".into())),
        }
    }

    /// Ends all devices.
    fn end(&mut self, step: &'static str, why: String) -> OpsError {
        self.ended = Some(why.clone());
        self.close(&why);
        OpsError::Failed { backend: self.name(), step, reason: why }
    }

    fn close(&mut self, why: &str) {
        self.first.seat.leave(why);
        for worker in &mut self.others {
            worker.asks = None;
        }
        for worker in &mut self.others {
            // A thread catches its calls' panics.
            let _ = worker.thread.take().map(JoinHandle::join);
        }
    }

    fn name(&self) -> &'static str {
        self.first.ops.queue.name()
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.close("the backend was closed");
    }
}

impl Worker {
    fn new(rank: Rank, backend: &'static str) -> Result<Self, OpsError> {
        let (asks, asked) = channel();
        let thread = std::thread::Builder::new().name(format!("gpu-{}", rank.seat.rank));
        let thread = thread.spawn(move || rank.work(&asked)).map_err(|error| OpsError::Failed {
            backend,
            step: "a GPU's thread",
            reason: error.to_string(),
        })?;
        Ok(Self { asks: Some(asks), thread: Some(thread) })
    }

    /// A thread that is gone says so when all is settled.
    fn send(&self, ask: Ask) {
        if let Some(asks) = &self.asks {
            let _ = asks.send(ask);
        }
    }
}

/// What a device's start says.
enum Said {
    Bytes(usize, u64),
    Over(usize, Box<Result<GpuOps, OpsError>>),
}

/// Starts all devices at once; their backends in order.
fn load(
    spec: &Arc<ModelSpec>,
    limits: Limits,
    setup: Setup,
    devices: Vec<Box<dyn Device>>,
    progress: &mut dyn FnMut(u64),
) -> Vec<Result<GpuOps, OpsError>> {
    let mut bytes = vec![0; devices.len()];
    let mut ready = Vec::new();
    std::thread::scope(|scope| {
        let (to, said) = channel();
        for (rank, device) in devices.into_iter().enumerate() {
            let to = to.clone();
            scope.spawn(move || {
                let watch = to.clone();
                let mut watch = move |bytes| {
                    // The other end waits for all of them.
                    let _ = watch.send(Said::Bytes(rank, bytes));
                };
                let ops = GpuOps::with(spec.clone(), limits, setup, device, &mut watch);
                let _ = to.send(Said::Over(rank, Box::new(ops)));
            });
        }
        drop(to);
        for said in said {
            match said {
                Said::Bytes(rank, done) => {
                    bytes[rank] = done;
                    progress(bytes.iter().sum());
                }
                Said::Over(rank, ops) => ready.push((rank, *ops)),
            }
        }
    });
    ready.sort_by_key(|(rank, _)| *rank);
    ready.into_iter().map(|(_, ops)| ops).collect()
}

/// An error with the device that it came from.
fn named(rank: usize, error: OpsError, backend: &'static str) -> OpsError {
    let with = |reason: String| format!("GPU {rank}: {reason}");
    match error {
        OpsError::Failed { backend, step, reason } => {
            OpsError::Failed { backend, step, reason: with(reason) }
        }
        OpsError::Unsupported { backend, step, reason } => {
            OpsError::Unsupported { backend, step, reason: with(reason) }
        }
        error => OpsError::Failed { backend, step: "its start", reason: with(error.to_string()) },
    }
}
