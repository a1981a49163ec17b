//! A body that goes on with another model in it.

use std::sync::atomic::{AtomicBool, Ordering};

use codecs::Decoder;
use picker_core::{ModelPlace, RenameFault};

use crate::host::{self, Buffer, HostError};
use crate::reading::Encoding;

/// Why a body is as it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unrenamed {
    /// It does not allow it.
    Body(RenameFault),
    /// The host does not.
    Host(HostError),
    /// It was not read to its end.
    Unread,
}

/// A body as it came.
pub(crate) struct Sent {
    pub(crate) body: Vec<u8>,
    /// Whether a header says how long it is.
    pub(crate) has_length: bool,
    pub(crate) encoding: Encoding,
    /// How long it may be once it is decoded.
    pub(crate) limit: u64,
}

/// Gives the model another name in the body that the host keeps, and mends the headers that tell of
/// it; the length of the body now. A body that was encoded is plain then.
pub(crate) fn rename(place: &ModelPlace, name: &str, sent: Sent) -> Result<usize, Unrenamed> {
    let old_length = sent.body.len();
    let mut body = match sent.encoding {
        Encoding::Known(coding) => {
            decoded(Decoder::new(coding, sent.limit), &sent.body).ok_or(OTHER_BODY)?
        }
        Encoding::Identity | Encoding::Unknown => sent.body,
    };
    place.rename(&mut body, name).map_err(Unrenamed::Body)?;
    // Headers first, for nothing is changed yet where the host refuses them; and the length can be
    // taken back, where keeping a body twice would cost more.
    let is_coded = matches!(sent.encoding, Encoding::Known(_));
    let has_other_length = sent.has_length && body.len() != old_length;
    let coding = is_coded.then(|| host::remove_request_header("content-encoding"));
    let mended = coding.unwrap_or(Ok(())).and_then(|()| {
        let said = has_other_length.then(|| say_length(body.len()));
        said.unwrap_or(Ok(()))
    });
    let replaced = mended.and_then(|()| {
        let replaced = host::replace_buffer(Buffer::RequestBody, &body);
        if replaced.is_err() && has_other_length {
            let _ = say_length(old_length);
        }
        replaced
    });
    match replaced {
        Ok(()) => Ok(body.len()),
        Err(error) => {
            if !LOGGED.swap(true, Ordering::Relaxed) {
                log::error!("picker: the host does not let a model be rewritten: {error:?}");
            }
            Err(Unrenamed::Host(error))
        }
    }
}

fn say_length(length: usize) -> Result<(), HostError> {
    host::set_request_header("content-length", &length.to_string())
}

fn decoded(mut decoder: Decoder, sent: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    let mut take = |piece: &[u8]| body.extend_from_slice(piece);
    decoder.push(sent, &mut take).ok()?;
    decoder.finish(&mut take).ok()?;
    Some(body)
}

/// Whether it was said that the host refuses, which it then does for every request.
static LOGGED: AtomicBool = AtomicBool::new(false);

/// A body that could be decoded once and cannot be again.
const OTHER_BODY: Unrenamed = Unrenamed::Body(RenameFault::OtherBody);
