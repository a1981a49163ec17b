//! What the picker knows about a request.
//!
//! Nothing here fails: a body that cannot be read gives a [`Request`] with what was understood
//! and a [`RequestFault`] for each thing that was not, and is routed by load. Prompt text is not
//! kept, only the hashes of its blocks.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::block::BlockHash;
use crate::shape::Shape;

/// A request as the decision sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// The API, or `None` when the body was not read.
    pub shape: Option<Shape>,
    /// The model or adapter asked for; `None` when absent, `null` or not a string.
    pub model: Option<String>,
    /// Whether the answer is asked for as a stream.
    pub stream: bool,
    /// The most tokens that may be generated, when the body says so.
    pub output_cap: Option<u64>,
    /// The text that keeps this request's cache entries apart from others'.
    pub cache_salt: Option<String>,
    /// The prompts, in body order; empty when there is none or it could not be read.
    pub prompts: Vec<Prompt>,
    /// What this request shares with those that belong together, so that they have one home.
    ///
    /// In a conversation the last full block before the end of the first message of the user,
    /// and so the same in all its turns, in branches of it and in requests that begin alike. For
    /// a plain prompt its block [`GROUP_BLOCKS_MAX`], or the last when there are fewer, of the
    /// first prompt. `None` when no block is full.
    pub group: Option<BlockHash>,
    /// Images, sound and the like, in body order, at most [`MEDIA_MAX`].
    pub media: Vec<Media>,
    /// What was wrong with the body; empty when it was read in full.
    pub faults: Vec<RequestFault>,
    /// Whether it is only for an endpoint that holds some of its prompt, as `prefer: if-available`
    /// says.
    pub only_cached: bool,
    /// How much it matters; below 0 it may be refused when the pool is full.
    pub priority: i32,
    /// Who shares with others of the same priority what there is; `None` for those who do not say.
    pub fairness_id: Option<String>,
    /// The headers that the pool's plan asks for, with names in lower case.
    pub headers: Vec<(String, String)>,
}

/// One prompt: an engine treats each prompt of a body as a request of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Prompt {
    /// Bytes of text, unescaped; four for each token id, and for each token that a part which is
    /// not text is taken for.
    ///
    /// `blocks.len() * BLOCK_BYTES` can be a little more than this, for some blocks hold framing
    /// (which message, which role), and the tools end in a block that is not full.
    pub bytes: u64,
    /// The leading blocks, at most `PROMPT_BLOCKS_MAX`; the partial block at the end has none.
    pub blocks: Vec<BlockHash>,
}

/// A part of a prompt that is not text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Media {
    /// What kind of part.
    pub kind: MediaKind,
    /// The hash of its address or of its encoded data, as written in the body.
    pub hash: u64,
}

/// What a part that is not text contains; the number is hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MediaKind {
    /// Sound.
    Audio = 0,
    /// A document.
    File = 1,
    /// A picture.
    Image = 2,
    /// A film.
    Video = 3,
}

/// Something in a body that could not be used.
///
/// Offsets count bytes from the start of the body, as it is once decoded. After those up to
/// `WindowTooLarge` the body was not read to its end and no prompt is offered; nor after the next
/// four, for its hashes could be taken for those of another model, salt or prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestFault {
    /// The body begins with a UTF-8 byte order mark.
    ByteOrderMark,
    /// The body is not JSON from this byte on.
    Malformed {
        /// The first byte that cannot be.
        offset: u64,
    },
    /// The body is not a JSON object.
    NotAnObject {
        /// The first byte that begins none.
        offset: u64,
    },
    /// The body is not a form from this byte on.
    NotAForm {
        /// The byte after the line that cannot be.
        offset: u64,
    },
    /// Objects and lists are nested deeper than `NESTING_MAX`.
    TooDeep {
        /// The bracket that is one too many.
        offset: u64,
    },
    /// Something follows the JSON object.
    TrailingBytes {
        /// The first byte that follows.
        offset: u64,
    },
    /// The body ends before its JSON, or its form, does.
    Truncated {
        /// The length of the body.
        offset: u64,
    },
    /// The body is not of its content coding, or ends before that does.
    Undecodable,
    /// The body needs a larger window than is set apart for decoding.
    WindowTooLarge,
    /// The cache salt is longer than `CACHE_SALT_BYTES_MAX` or not UTF-8.
    CacheSaltUnusable,
    /// The model's name is longer than `MODEL_BYTES_MAX` or not UTF-8.
    ModelUnusable,
    /// The prompt mixes texts, token ids and lists, or holds something that is neither.
    PromptMixed,
    /// The prompt or the messages are of a type that the API does not take.
    PromptOfWrongType,
    /// The model is neither a string nor `null`.
    ModelNotText,
    /// More prompts than `PROMPTS_MAX`: the others were not read.
    PromptsOverMax {
        /// How many were not read.
        ignored: u64,
    },
}

impl Request {
    /// The first header of this name, of those that the pool's plan asks for.
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(it, _)| it == name);
        header.map(|(_, value)| value.as_str())
    }

    /// A request without a readable body: load alone decides.
    pub fn bodiless() -> Self {
        Self::default()
    }

    /// A request of an API whose body could not be read.
    pub fn unread(shape: Shape, fault: RequestFault) -> Self {
        Self {
            shape: Some(shape),
            faults: [fault].into(),
            ..Self::default()
        }
    }
}

impl RequestFault {
    /// Whether the bytes of the body are at fault: they are not JSON, or a form, that can be read.
    ///
    /// Not when the body is fine and means something that is not taken here, for that is for the
    /// server to judge; nor when a limit of ours on decoding kept it from being read.
    pub(crate) fn is_of_bytes(&self) -> bool {
        match self {
            Self::ByteOrderMark
            | Self::Malformed { .. }
            | Self::NotAnObject { .. }
            | Self::NotAForm { .. }
            | Self::TooDeep { .. }
            | Self::TrailingBytes { .. }
            | Self::Truncated { .. }
            | Self::Undecodable => true,
            Self::WindowTooLarge
            | Self::CacheSaltUnusable
            | Self::ModelUnusable
            | Self::PromptMixed
            | Self::PromptOfWrongType
            | Self::ModelNotText
            | Self::PromptsOverMax { .. } => false,
        }
    }

    /// Whether no prompt is offered because of this fault.
    pub(crate) fn hides_prompts(&self) -> bool {
        !matches!(self, Self::ModelNotText | Self::PromptsOverMax { .. })
    }
}

impl MediaKind {
    /// Bytes of prompt that stand for a part of this kind, four for each token.
    ///
    /// Engines put as many tokens in its place as its pixels or seconds make. Those are not known
    /// here, so it is taken for a part of the usual size; too few tokens cost some of its weight
    /// in the choice, none would make a prompt that is mostly image look like an empty one.
    pub(crate) fn placeholder_bytes(self) -> usize {
        4 * match self {
            Self::Audio => AUDIO_TOKENS,
            Self::File | Self::Image => IMAGE_TOKENS,
            Self::Video => VIDEO_TOKENS,
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::File => "file",
            Self::Image => "image",
            Self::Video => "video",
        }
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByteOrderMark => f.write_str("the body has a byte order mark at byte 0"),
            Self::Malformed { offset } => write!(f, "the body is not JSON at byte {offset}"),
            Self::NotAnObject { offset } => {
                write!(f, "the body is not a JSON object at byte {offset}")
            }
            Self::NotAForm { offset } => write!(f, "the body is not a form at byte {offset}"),
            Self::TooDeep { offset } => write!(f, "the body is nested too deep at byte {offset}"),
            Self::TrailingBytes { offset } => {
                write!(f, "something follows the JSON object at byte {offset}")
            }
            Self::Truncated { offset } => write!(f, "the body breaks off at byte {offset}"),
            Self::Undecodable => f.write_str("the body is not of its content coding"),
            Self::WindowTooLarge => f.write_str("the body needs too large a window to be decoded"),
            Self::CacheSaltUnusable => f.write_str("the cache salt is too long or not UTF-8"),
            Self::ModelUnusable => f.write_str("the model name is too long or not UTF-8"),
            Self::PromptMixed => f.write_str("the prompt mixes kinds of items"),
            Self::PromptOfWrongType => f.write_str("the prompt is of a type the API does not take"),
            Self::ModelNotText => f.write_str("the model is not a string"),
            Self::PromptsOverMax { ignored } => {
                write!(f, "{ignored} prompts past the limit were not read")
            }
        }
    }
}

/// Blocks of a plain prompt that tell what it belongs to: 8 KiB, longer than most instructions
/// and shorter than the documents that follow them.
pub const GROUP_BLOCKS_MAX: usize = 32;

/// Tokens of a picture of 640 x 360, at 1,024 pixels a token, as the reference picker estimates.
const IMAGE_TOKENS: usize = 225;

/// Tokens of ten seconds of film at two such pictures a second, the reference picker's defaults.
const VIDEO_TOKENS: usize = 20 * IMAGE_TOKENS;

/// Tokens of ten seconds of sound, at 25 a second.
const AUDIO_TOKENS: usize = 250;

/// Parts that are not text which a request lists, and which take up room in a prompt; the hashes
/// of further ones still enter the blocks.
///
/// Engines take a handful for each prompt by default, and 256 frames are a short film.
pub const MEDIA_MAX: usize = 256;
