/// Why a server could not be asked, or a reply is not whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// An address that is none.
    #[error(
        "the server's address: found {found:?}, accepted: http://HOST:PORT or https://HOST, with \
         or without /v1"
    )]
    Url {
        /// What was given.
        found: String,
    },
    /// No connection, or one that broke.
    #[error("{url}: {reason}")]
    Transport {
        /// What was asked.
        url: String,
        /// The transport's words.
        reason: String,
    },
    /// An answer with an error status.
    #[error("{url}: status {status}: {message}")]
    Status {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// The error's message, or the body's beginning.
        message: String,
    },
    /// A reply that broke off or is not in OpenAI's form.
    #[error("{url}: the reply {problem}")]
    Reply {
        /// What was asked.
        url: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A process whose memory cannot be read.
    #[error("--pid: found {pid}, accepted: the id of a running process here, on Linux")]
    Process {
        /// What was given.
        pid: u32,
    },
}

/// Result of asking a server.
pub type BenchResult<T> = Result<T, BenchError>;
