//! The dialects of streams.

use crate::config::UiDialect;

/// The format of a stream, which determines the releases of the AI SDK that can read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// `data-v1`: the data stream of AI SDK 4.
    DataV1,
    /// The UI message stream of AI SDK 5 and later.
    Ui(UiDialect),
}

impl Dialect {
    /// Returns the traits of the clients that read this dialect.
    pub(crate) const fn client(self) -> ClientTraits {
        match self {
            Self::DataV1 => ClientTraits {
                reposts_until_settled: false,
                needs_earlier_steps: false,
                resumes_by_get: true,
            },
            Self::Ui(_) => {
                ClientTraits { reposts_until_settled: true, needs_earlier_steps: true, resumes_by_get: false }
            }
        }
    }
}

/// How a client behaves beside the bytes that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClientTraits {
    /// The client posts a decision again and again until the outcome of the call shows.
    pub(crate) reposts_until_settled: bool,
    /// The client reads a continuation as more of the message that it continues. So a client that has nothing
    /// of that message needs its earlier steps first. Other clients read a message of its own.
    pub(crate) needs_earlier_steps: bool,
    /// The client resumes a run with a GET, after it learned of a decision.
    pub(crate) resumes_by_get: bool,
}

impl ClientTraits {
    /// No client reads.
    pub(crate) const NO_CLIENT: Self =
        Self { reposts_until_settled: false, needs_earlier_steps: false, resumes_by_get: false };
}
