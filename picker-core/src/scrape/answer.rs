//! What comes of a scrape.

use alloc::vec::Vec;
use core::fmt;

use crate::reading::{PageError, Warning};

/// What came of a scrape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// An HTTP response, perhaps one that Envoy wrote in place of the endpoint.
    Response {
        /// The status.
        status: u16,
        /// The whole body.
        body: &'a [u8],
    },
    /// No response: the exchange was cut, or the body was too large.
    Nothing,
    /// The host did not send the request: it does not know the cluster.
    NotSent,
}

/// Why a scrape taught nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrapeFailure {
    /// The page was cut or the connection was reset.
    Cut,
    /// The host does not know the cluster named by `scrape.cluster`.
    NoCluster,
    /// The page holds nothing that the engine's table knows.
    Page(PageError),
    /// The endpoint answered with this status.
    Status(u16),
    /// No answer in `scrape.timeout`.
    Timeout,
    /// Nothing listens at the address.
    Unreachable,
    /// The answer is no list of models.
    NoModels,
}

impl ScrapeFailure {
    /// The failure as a label.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::NoCluster => "no-cluster",
            Self::Page(_) | Self::NoModels => "page",
            Self::Status(_) => "status",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for ScrapeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("the answer was cut"),
            Self::NoCluster => f.write_str("Envoy has no cluster of the name scrape.cluster"),
            Self::Page(error) => write!(f, "the page says nothing: {error}"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Timeout => f.write_str("no answer within scrape.timeout"),
            Self::Unreachable => f.write_str("nothing listens there"),
            Self::NoModels => f.write_str("the answer is no list of models"),
        }
    }
}

/// What a scrape taught.
#[derive(Clone, PartialEq, Debug)]
pub enum ScrapeOutcome {
    /// The page was read.
    Read(Vec<Warning>),
    /// The page was read, and it is that of a new process: its cache is empty.
    Restarted,
    /// Nothing new.
    Failed(ScrapeFailure),
    /// The endpoint has left the pool meanwhile.
    Unlisted,
}

/// The page in an answer, or why there is none.
///
/// Envoy answers in the endpoint's place when it cannot reach it, and only the text tells such an
/// answer apart.
pub(crate) fn page_of(answer: Answer<'_>) -> Result<&[u8], ScrapeFailure> {
    let (status, body) = match answer {
        Answer::Response { status: 200, body } => return Ok(body),
        Answer::Response { status, body } => (status, body),
        Answer::Nothing => return Err(ScrapeFailure::Cut),
        Answer::NotSent => return Err(ScrapeFailure::NoCluster),
    };
    let says = |text: &str| memchr::memmem::find(body, text.as_bytes()).is_some();
    Err(match status {
        503 if says("remote connection failure") || says("connection timeout") => {
            ScrapeFailure::Unreachable
        }
        504 if says("upstream request timeout") => ScrapeFailure::Timeout,
        _ => ScrapeFailure::Status(status),
    })
}
