//! Short texts of a body that are kept.

use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

/// A member that should be a short text.
#[derive(Default)]
pub(super) enum Name {
    /// Not there, or `null`.
    #[default]
    Absent,
    /// Of another type.
    NotText,
    /// The text so far; it does not count before it has ended, for half a name is another name.
    Open(Vec<u8>),
    /// The text.
    Text(Vec<u8>),
    /// Longer than its limit.
    TooLong,
}

/// Why a name cannot be used.
pub(super) enum NameFault {
    NotText,
    Unusable,
}

impl Name {
    pub(super) fn begin() -> Self {
        Self::Open(Vec::new())
    }

    /// This text, unless it is too long.
    pub(super) fn of(text: &str, bytes_max: usize) -> Self {
        let mut name = Self::begin();
        name.push(text.as_bytes(), bytes_max);
        name.end();
        name
    }

    pub(super) fn push(&mut self, text: &[u8], bytes_max: usize) {
        if let Self::Open(name) = self {
            if bytes_max - name.len() < text.len() {
                *self = Self::TooLong;
            } else {
                name.extend_from_slice(text);
            }
        }
    }

    pub(super) fn end(&mut self) {
        if let Self::Open(name) = self {
            *self = Self::Text(mem::take(name));
        }
    }

    /// The text, when it has ended and is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(name) => str::from_utf8(name).ok(),
            _ => None,
        }
    }

    pub(super) fn finish(self) -> Result<Option<String>, NameFault> {
        match self {
            Self::Absent | Self::Open(_) => Ok(None),
            Self::NotText => Err(NameFault::NotText),
            Self::Text(name) => String::from_utf8(name)
                .map(Some)
                .map_err(|_| NameFault::Unusable),
            Self::TooLong => Err(NameFault::Unusable),
        }
    }
}

/// Bytes of a model's name.
///
/// Names are paths of model hubs or file systems; 1,024 is four times the longest file name.
pub(super) const MODEL_BYTES_MAX: usize = 1024;

/// Bytes of a cache salt; `vLLM` refuses more than 128 characters, up to four bytes each.
pub(super) const CACHE_SALT_BYTES_MAX: usize = 512;
