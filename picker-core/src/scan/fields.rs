//! Which members of a body are read, and as what.
//!
//! A body is a tree, but only a few of its nodes are entered: each of those is a [`Place`]. In a
//! place every member has a [`Field`] that says what its value means; a value that no field
//! names is stepped over whole. Another API is another [`Place`] for its body and its rows here.

use crate::request::MediaKind;
use crate::shape::Shape;

/// A list or object that is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The object that is the body.
    Body(Shape),
    /// The object with the address or data of a part that is not text.
    Media(MediaKind),
    /// One message.
    Message,
    /// The list of messages.
    Messages,
    /// One part of a message's content.
    Part,
    /// The list of parts.
    Parts,
    /// A list of prompts, or of the token ids of one prompt.
    Prompts,
    /// The token ids of one prompt in a list of prompts.
    TokenIds,
}

/// What a value means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    CacheSalt,
    /// A message's content: text or parts.
    Content,
    Ignored,
    /// A part that is not text: an object, or its address at once.
    Media(MediaKind),
    /// The address or data of such a part.
    MediaSource(MediaKind),
    Message,
    Messages,
    Model,
    /// The most tokens to generate; the first in order of [`OutputCap`] that is there counts.
    OutputCap(OutputCap),
    Part,
    /// The text of a part.
    PartText,
    Prompt,
    /// One item of a list of prompts.
    PromptItem,
    Stream,
    /// Text of a message besides its content.
    Text(Mark),
    TokenId,
    Tools,
    /// A list or object in a message that templates render as JSON.
    Verbatim(Mark),
}

/// Names of the output cap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputCap {
    /// The name that wins where an API has two.
    Preferred,
    /// The older name.
    Other,
}

/// Bytes that stand before a piece of a message in the hashed text.
///
/// They occur in no UTF-8 text, so no text can pass for a boundary.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Mark {
    Content = 0xF5,
    /// After a message.
    End = 0xF6,
    FunctionCall = 0xF7,
    Media = 0xF8,
    Name = 0xF9,
    /// Between the parts of a content, so that one part hashes like the same plain text.
    Part = 0xFA,
    Reasoning = 0xFB,
    Refusal = 0xFC,
    Role = 0xFD,
    ToolCallId = 0xFE,
    ToolCalls = 0xFF,
}

impl Place {
    /// What the member `key` of an object means.
    pub(super) fn member(self, key: &[u8]) -> Field {
        match self {
            Self::Body(shape) => body_member(shape, key),
            Self::Media(kind) => match key {
                b"data" | b"file_data" | b"file_id" | b"url" => Field::MediaSource(kind),
                _ => Field::Ignored,
            },
            Self::Message => message_member(key),
            Self::Part => part_member(key),
            Self::Messages | Self::Parts | Self::Prompts | Self::TokenIds => Field::Ignored,
        }
    }

    /// What the items of a list mean; `None` for an object, whose members have keys.
    pub(super) fn item(self) -> Option<Field> {
        match self {
            Self::Messages => Some(Field::Message),
            Self::Parts => Some(Field::Part),
            Self::Prompts => Some(Field::PromptItem),
            Self::TokenIds => Some(Field::TokenId),
            Self::Body(_) | Self::Media(_) | Self::Message | Self::Part => None,
        }
    }
}

fn body_member(shape: Shape, key: &[u8]) -> Field {
    match (shape, key) {
        (_, b"cache_salt") => Field::CacheSalt,
        (_, b"model") => Field::Model,
        (_, b"stream") => Field::Stream,
        (Shape::ChatCompletions, b"max_completion_tokens") => {
            Field::OutputCap(OutputCap::Preferred)
        }
        (_, b"max_tokens") => Field::OutputCap(OutputCap::Other),
        (Shape::ChatCompletions, b"messages") => Field::Messages,
        (Shape::ChatCompletions, b"tools") => Field::Tools,
        (Shape::Completions, b"prompt") => Field::Prompt,
        _ => Field::Ignored,
    }
}

fn message_member(key: &[u8]) -> Field {
    match key {
        b"content" => Field::Content,
        b"function_call" => Field::Verbatim(Mark::FunctionCall),
        b"name" => Field::Text(Mark::Name),
        b"reasoning" | b"reasoning_content" => Field::Text(Mark::Reasoning),
        b"refusal" => Field::Text(Mark::Refusal),
        b"role" => Field::Text(Mark::Role),
        b"tool_call_id" => Field::Text(Mark::ToolCallId),
        b"tool_calls" => Field::Verbatim(Mark::ToolCalls),
        _ => Field::Ignored,
    }
}

/// The type of a part is not looked at: it may stand after the text, and each type has its own
/// key for what it holds.
fn part_member(key: &[u8]) -> Field {
    match key {
        b"refusal" | b"text" => Field::PartText,
        b"audio_url" | b"input_audio" => Field::Media(MediaKind::Audio),
        b"file" => Field::Media(MediaKind::File),
        b"image_embeds" | b"image_url" => Field::Media(MediaKind::Image),
        b"video_url" => Field::Media(MediaKind::Video),
        _ => Field::Ignored,
    }
}

/// Bytes of a key that are looked at: no key above is longer than 21.
pub(super) const KEY_BYTES_MAX: usize = 24;
