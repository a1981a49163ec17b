//! A body that goes on with another model in it.

use std::sync::atomic::{AtomicBool, Ordering};

use codecs::Decoder;
use picker_core::{ModelPlace, RenameFault};

use crate::host::{self, Buffer, Headers, HostError};
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

/// Gives the model another name in the body that the host keeps, and mends the headers that tell of
/// it; the length of the body now. A body that was encoded, and may have `limit` bytes decoded, is
/// plain then.
pub(crate) fn rename(
    place: &ModelPlace,
    name: &str,
    (encoding, limit): (Encoding, u64),
) -> Result<usize, Unrenamed> {
    let sent = host::buffer(Buffer::RequestBody, 0, usize::MAX);
    let renamed = match encoding {
        Encoding::Known(coding) => {
            let body = decoded(Decoder::new(coding, limit), &sent).ok_or(OTHER_BODY)?;
            place.rename(&body, name)
        }
        Encoding::Identity | Encoding::Unknown => place.rename(&sent, name),
    };
    let renamed = renamed.map_err(Unrenamed::Body)?;
    let length = host::header(Headers::Request, LENGTH);
    let replaced = host::replace_buffer(Buffer::RequestBody, &renamed).and_then(|()| {
        let mended = mend_headers(length.is_some(), renamed.len(), encoding);
        if mended.is_err() {
            // The host has just taken a body and does so again.
            let _ = host::replace_buffer(Buffer::RequestBody, &sent);
            let _ =
                length.map(|it| host::set_request_header(LENGTH, &String::from_utf8_lossy(&it)));
        }
        mended
    });
    match replaced {
        Ok(()) => Ok(renamed.len()),
        Err(error) => {
            if !LOGGED.swap(true, Ordering::Relaxed) {
                log::error!("picker: the host does not let a model be rewritten: {error:?}");
            }
            Err(Unrenamed::Host(error))
        }
    }
}

/// Says how long the body is, where that was said, and that it is plain.
fn mend_headers(has_length: bool, length: usize, encoding: Encoding) -> Result<(), HostError> {
    if has_length {
        host::set_request_header(LENGTH, &length.to_string())?;
    }
    match encoding {
        Encoding::Known(_) => host::remove_request_header("content-encoding"),
        Encoding::Identity | Encoding::Unknown => Ok(()),
    }
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

const LENGTH: &str = "content-length";
