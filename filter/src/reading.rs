//! A request's body while it is read.

use codecs::{Coding, DecodeError, Decoder};
use picker_core::{HashSeed, Pools, Refusal, Request, RequestFault, RequestScanner, Shape};

use crate::host::{self, Buffer};
use crate::renaming::{self, Sent, Unrenamed};

/// What a stream holds while its body comes.
pub(crate) struct Reading {
    /// The pools of which one will be its own.
    pub(crate) pools: Pools,
    scanner: RequestScanner,
    encoding: Encoding,
    decoder: Option<Decoder>,
    limit: u64,
    /// Bytes of the body that were read, as they came or as they were put in its place.
    read: usize,
    public_name: Option<Box<str>>,
    /// The body as it came, as long as it is short and may have to be changed: asking the host for it
    /// again costs more than keeping it.
    kept: Option<Vec<u8>>,
    /// Whether a header says how long the body is.
    has_length: bool,
}

/// What was read of a request besides itself.
pub(crate) struct Read {
    /// How the body in the host's buffer is encoded.
    pub(crate) encoding: Encoding,
    /// How many bytes of it were read.
    pub(crate) bytes: u64,
    /// The client's name of its model, where another has taken its place and answers are to show it.
    pub(crate) public_name: Option<Box<str>>,
}

/// How a body is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Known(Coding),
    /// By several codings, or by one that is not decoded here.
    Unknown,
}

/// Why a body is not read to its end.
pub(crate) enum Unread {
    /// It is answered by us.
    Refused(Refusal),
    /// It cannot be decoded.
    Undecodable(RequestFault),
}

impl Encoding {
    /// What a `content-encoding` says.
    pub(crate) fn of(header: Option<&[u8]>) -> Self {
        let Some(value) = header else {
            return Self::Identity;
        };
        let Ok(value) = std::str::from_utf8(value) else {
            return Self::Unknown;
        };
        if value.trim().eq_ignore_ascii_case("identity") {
            return Self::Identity;
        }
        Coding::named(value).map_or(Self::Unknown, Self::Known)
    }
}

impl Reading {
    /// `limit` is for the body as it was sent and for what is decoded of it.
    pub(crate) fn new(pools: Pools, shape: Shape, encoding: Encoding, limit: u64) -> Self {
        Self {
            pools,
            scanner: RequestScanner::new(shape),
            encoding,
            decoder: match encoding {
                Encoding::Known(coding) => Some(Decoder::new(coding, limit)),
                Encoding::Identity | Encoding::Unknown => None,
            },
            limit,
            read: 0,
            public_name: None,
            kept: None,
            has_length: false,
        }
    }

    /// Says that the body may have to be changed, and whether a header says how long it is.
    pub(crate) fn expect_change(&mut self, has_length: bool) {
        self.kept = Some(Vec::new());
        self.has_length = has_length;
    }

    /// What was read so far.
    pub(crate) fn how(&self) -> Read {
        Read {
            encoding: self.encoding,
            bytes: self.read as u64,
            public_name: self.public_name.clone(),
        }
    }

    pub(crate) fn shape(&self) -> Shape {
        self.scanner.shape()
    }

    /// Reads what is new of the buffered body; `size` is all of it.
    pub(crate) fn read(&mut self, size: usize) -> Result<(), Unread> {
        if self.limit < size as u64 {
            return Err(self.too_large());
        }
        if size <= self.read {
            return Ok(());
        }
        let chunk = host::buffer(Buffer::RequestBody, self.read, size - self.read);
        let taken = self.take(&chunk);
        self.keep(chunk);
        taken
    }

    fn keep(&mut self, chunk: Vec<u8>) {
        let is_short = self.read <= KEPT_BYTES_MAX;
        let Some(kept) = self.kept.as_mut().filter(|_| is_short) else {
            self.kept = None;
            return;
        };
        if kept.is_empty() {
            *kept = chunk;
        } else {
            kept.extend_from_slice(&chunk);
        }
    }

    fn take(&mut self, chunk: &[u8]) -> Result<(), Unread> {
        self.read += chunk.len();
        let Some(decoder) = &mut self.decoder else {
            self.scanner.push(chunk);
            return Ok(());
        };
        let decoded = decoder.push(chunk, &mut |piece| self.scanner.push(piece));
        decoded.map_err(|error| self.unread(error))
    }

    /// Reads all that is buffered, which is the whole body.
    pub(crate) fn read_all(&mut self) -> Result<(), Unread> {
        let body = host::buffer(Buffer::RequestBody, 0, usize::MAX);
        self.take(&body)
    }

    /// Says that the body is complete.
    pub(crate) fn complete(&mut self) -> Result<(), Unread> {
        let Some(decoder) = self.decoder.take() else {
            return Ok(());
        };
        let decoded = decoder.finish(&mut |piece| self.scanner.push(piece));
        decoded.map_err(|error| self.unread(error))
    }

    /// The model that the complete body asks for.
    pub(crate) fn model(&self) -> Option<&str> {
        self.scanner.model()
    }

    /// Whether the complete body names models besides the one that counts.
    pub(crate) fn has_other_models(&self) -> bool {
        let place = self.scanner.model_place();
        place.is_some_and(|it| !it.is_only())
    }

    /// Lets the complete body ask for another model, also where the host keeps it for the server;
    /// whether answers are to show the one that it had.
    pub(crate) fn rename(&mut self, name: &str, is_shown: bool) -> Result<(), Unrenamed> {
        let place = self.scanner.model_place().ok_or(Unrenamed::Unread)?;
        let kept = self.kept.take();
        let sent = Sent {
            body: kept.unwrap_or_else(|| host::buffer(Buffer::RequestBody, 0, usize::MAX)),
            has_length: self.has_length,
            encoding: self.encoding,
            limit: self.limit,
        };
        self.read = renaming::rename(place, name, sent)?;
        let old = self.scanner.model().filter(|_| is_shown);
        self.public_name = old.map(Box::from);
        self.encoding = Encoding::Identity;
        self.scanner.rename_model(name);
        Ok(())
    }

    /// The request of the complete body.
    pub(crate) fn finish(self, seed: HashSeed) -> Request {
        self.scanner.finish(seed)
    }

    fn unread(&self, error: DecodeError) -> Unread {
        match error {
            DecodeError::TooLarge => self.too_large(),
            DecodeError::Corrupt => Unread::Undecodable(RequestFault::Undecodable),
            DecodeError::WindowTooLarge => Unread::Undecodable(RequestFault::WindowTooLarge),
        }
    }

    fn too_large(&self) -> Unread {
        Unread::Refused(Refusal::BodyTooLarge { limit: self.limit })
    }
}

/// Bytes of a body that are kept while it is read: those of most prompts.
const KEPT_BYTES_MAX: usize = 64 << 10;
