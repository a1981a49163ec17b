//! The bodies of answers, and what becomes of a request whose client goes away.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::mpsc::UnboundedReceiver;

use super::answer::{Token, Usage, Writer};
use super::engine_loop::{Command, Delta};
use super::shared::Shared;

/// The body of an answer.
pub(super) enum AnswerBody {
    /// All of it; `None` once it has been sent.
    Full(Option<Bytes>),
    /// The beginning of it, and then the connection closes.
    Cut {
        /// `None` once it has been handed over.
        bytes: Option<Bytes>,
        /// Whether the connection has had a chance to send it.
        flushed: bool,
    },
    /// Tokens as they come.
    Events(Box<Events>),
}

/// The connection is closed in the middle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut;

/// The tokens of one HTTP request, possibly of several engine requests.
pub(super) struct Events {
    pub(super) tokens: UnboundedReceiver<Delta>,
    pub(super) guard: Guard,
    pub(super) writer: Writer,
    pub(super) usage: UsageCount,
    /// Whether the client asked for the usage at the end.
    pub(super) include_usage: bool,
    /// Whether the client asked for the usage in every event.
    pub(super) continuous_usage: bool,
}

/// Adds up what the choices of a request cost.
pub(super) struct UsageCount {
    usage: Usage,
    choices: Vec<ChoiceState>,
    /// Choices with the same prompt.
    choices_per_prompt: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ChoiceState {
    begun: bool,
    ended: bool,
}

/// Aborts the engine requests of an HTTP request when it is dropped before its end.
pub(super) struct Guard {
    pub(super) shared: Arc<Shared>,
    pub(super) tickets: Vec<u64>,
}

impl Guard {
    /// Counts a request as in flight until the guard is dropped.
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            tickets: Vec::new(),
        }
    }
}

impl UsageCount {
    pub(super) fn new(prompt_tokens: usize, choices: usize, choices_per_prompt: usize) -> Self {
        let usage = Usage {
            prompt_tokens,
            ..Usage::default()
        };
        Self {
            usage,
            choices: vec![ChoiceState::default(); choices],
            choices_per_prompt,
        }
    }

    /// Counts a token; tells whether it is the first of its choice.
    pub(super) fn add(&mut self, delta: &Delta) -> bool {
        self.usage.completion_tokens += 1;
        let Some(choice) = self.choices.get_mut(delta.choice) else {
            return false;
        };
        let is_first = !std::mem::replace(&mut choice.begun, true);
        choice.ended |= delta.is_last;
        // Choices of one prompt share it, and so it is counted once.
        if is_first && delta.choice.is_multiple_of(self.choices_per_prompt) {
            self.usage.cached_tokens += delta.cached_tokens;
        }
        is_first
    }

    pub(super) fn is_complete(&self) -> bool {
        self.choices.iter().all(|choice| choice.ended)
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }
}

impl Events {
    /// The text of an event, and of the closing ones behind the last.
    fn write(&mut self, delta: &Delta) -> String {
        let is_first = self.usage.add(delta);
        let mut text = if is_first {
            self.writer.opening(delta.choice)
        } else {
            String::new()
        };
        let Delta {
            choice,
            token,
            is_last,
            ..
        } = *delta;
        let running = self.continuous_usage.then(|| self.usage.usage());
        text.push_str(&self.writer.token(
            Token {
                choice,
                token,
                is_last,
            },
            running,
        ));
        if self.usage.is_complete() {
            let usage = self.include_usage.then(|| self.usage.usage());
            text.push_str(&self.writer.closing(usage));
        }
        text
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Cut { bytes, flushed } => match bytes.take() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                // An error now would take along what has not been sent yet.
                None if !std::mem::replace(flushed, true) => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Ready(Some(Err(Cut))),
            },
            Self::Events(events) => {
                if events.usage.is_complete() {
                    return Poll::Ready(None);
                }
                events.tokens.poll_recv(cx).map(|delta| match delta {
                    Some(delta) => Some(Ok(Frame::data(Bytes::from(events.write(&delta))))),
                    // The engine is gone and takes the stream with it.
                    None => Some(Err(Cut)),
                })
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Full(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Cut { .. } | Self::Events(_) => SizeHint::default(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.in_flight.fetch_sub(1, Ordering::Relaxed);
        for &ticket in &self.tickets {
            // One that has finished is not known to the engine any more.
            let _ = self.shared.engine.send(Command::Abort(ticket));
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection is closed on purpose")
    }
}

impl std::error::Error for Cut {}
