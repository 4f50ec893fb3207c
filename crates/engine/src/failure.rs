//! Why a call to the runner gave nothing: it refused or failed, or it panicked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use finback_model::{RunnerError, RunnerResult, SlotId};

/// What went wrong in a call; displays as one line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Runner(#[from] RunnerError),
    #[error("the model's code panicked: {0}")]
    Panic(String),
}

impl Failure {
    /// The one slot at fault. Such a call was refused and changed nothing for the others.
    pub(crate) fn slot(&self) -> Option<SlotId> {
        match self {
            Self::Runner(
                RunnerError::WrongState { slot, .. }
                | RunnerError::SlotTwice { slot }
                | RunnerError::KeepTooMany { slot, .. }
                | RunnerError::NotFinite { slot, .. }
                | RunnerError::NoSuchSlot { slot, .. },
            ) => Some(*slot),
            _ => None,
        }
    }
}

/// Makes a call. After a panic the slots of the call are in an unknown state: they must be released
/// before anything else is asked of them. Drafts and windows alone leave them as they were.
pub(crate) fn attempt<T>(call: impl FnOnce() -> RunnerResult<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Ok(result?),
        Err(panic) => Err(Failure::Panic(panic_text(&*panic).to_owned())),
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no text")
}
