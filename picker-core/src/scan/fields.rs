//! Which members of a body are read, and as what.
//!
//! A body is a tree, but only a few of its nodes are entered: each of those is a [`Place`]. In a
//! place every member has a [`Field`] that says what its value means; a value that no field
//! names is stepped over whole. Another API is another [`Shape`] and its rows here.

use crate::request::MediaKind;
use crate::shape::Shape;

/// A list or object that is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The object that is the body.
    Body,
    /// A document to sort, as an object.
    Document,
    /// Images and the like among token ids.
    Features,
    /// Their hashes: an object with a list for each kind.
    FeatureHashes,
    /// One of these lists.
    FeatureHashList,
    /// One place.
    FeatureSpan,
    /// Their places: an object with a list for each kind.
    FeatureSpans,
    /// One of these lists.
    FeatureSpanList,
    /// The object with the address or data of a part that is not text.
    Media(MediaKind),
    /// A list of addresses or data beside the prompt, or a list of such lists.
    MediaItems(MediaKind),
    /// One message, or one item of the Responses API.
    Message,
    /// The list of messages.
    Messages,
    /// One part of a message's content.
    Part,
    /// The list of parts.
    Parts,
    /// A list of prompts, or of the token ids of one prompt.
    Prompts,
    /// The texts that stand before each prompt.
    Queries,
    /// The sampling parameters, where they are an object of their own.
    Sampling,
    /// One block of the system text.
    SystemBlock,
    /// The blocks of the system text.
    SystemBlocks,
    /// The token ids of one prompt in a list of prompts.
    TokenIds,
}

/// What a value means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    CacheSalt,
    /// Text or parts of a message.
    Content(Mark),
    /// The text of a document to sort.
    DocumentText,
    Features,
    FeatureHash,
    FeatureHashes,
    FeatureHashList,
    FeatureOffset,
    FeatureSpan,
    FeatureSpans,
    FeatureSpanList,
    Ignored,
    /// A part that is not text: an object, or its address at once.
    Media(MediaKind),
    /// Addresses or data of images and the like beside the prompt.
    MediaItems(MediaKind),
    /// The address or data of such a part.
    MediaSource(MediaKind),
    Message,
    /// A list of messages; or, in the Responses API, the text of the only one.
    Messages,
    Model,
    /// The most tokens to generate; the first in order of [`OutputCap`] that is there counts.
    OutputCap(OutputCap),
    Part,
    /// The text of a part.
    PartText,
    /// What comes before this prompt and is known to the server alone.
    Previous,
    Prompt,
    /// One item of a list of prompts.
    PromptItem,
    /// What stands before each prompt: a text or a list of texts.
    Query,
    QueryItem,
    Sampling,
    Stream,
    /// The text that templates render before the messages: a text or a list of blocks.
    System,
    SystemBlock,
    SystemText,
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
    Arguments = 0xC0,
    Output = 0xC1,
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
    pub(super) fn member(self, shape: Shape, key: &[u8]) -> Field {
        match self {
            Self::Body => body_member(shape, key),
            Self::Document if key == b"text" => Field::DocumentText,
            Self::Features => match key {
                b"mm_hashes" => Field::FeatureHashes,
                b"mm_placeholders" => Field::FeatureSpans,
                _ => Field::Ignored,
            },
            Self::FeatureHashes => Field::FeatureHashList,
            Self::FeatureSpans => Field::FeatureSpanList,
            Self::FeatureSpan if key == b"offset" => Field::FeatureOffset,
            Self::Media(kind) => match key {
                b"data" | b"file_data" | b"file_id" | b"url" => Field::MediaSource(kind),
                _ => Field::Ignored,
            },
            Self::Message => match shape {
                Shape::Conversations | Shape::Responses => item_member(key),
                _ => message_member(key),
            },
            Self::Part => match shape {
                Shape::CountTokens | Shape::Messages => block_member(key),
                Shape::Conversations | Shape::Responses => item_part_member(key),
                _ => part_member(key),
            },
            Self::Sampling => match (shape, key) {
                (Shape::Generate, b"max_tokens") | (Shape::SglangGenerate, b"max_new_tokens") => {
                    Field::OutputCap(OutputCap::Other)
                }
                _ => Field::Ignored,
            },
            Self::SystemBlock if key == b"text" => Field::SystemText,
            _ => Field::Ignored,
        }
    }

    /// What the items of a list mean; `None` for an object, whose members have keys.
    pub(super) fn item(self) -> Option<Field> {
        match self {
            Self::FeatureHashList => Some(Field::FeatureHash),
            Self::FeatureSpanList => Some(Field::FeatureSpan),
            Self::MediaItems(kind) => Some(Field::MediaItems(kind)),
            Self::Messages => Some(Field::Message),
            Self::Parts => Some(Field::Part),
            Self::Prompts => Some(Field::PromptItem),
            Self::Queries => Some(Field::QueryItem),
            Self::SystemBlocks => Some(Field::SystemBlock),
            Self::TokenIds => Some(Field::TokenId),
            Self::Body
            | Self::Document
            | Self::Features
            | Self::FeatureHashes
            | Self::FeatureSpan
            | Self::FeatureSpans
            | Self::Media(_)
            | Self::Message
            | Self::Part
            | Self::Sampling
            | Self::SystemBlock => None,
        }
    }
}

fn body_member(shape: Shape, key: &[u8]) -> Field {
    match key {
        b"extra_key" if shape == Shape::SglangGenerate => return Field::CacheSalt,
        b"cache_salt" if shape != Shape::SglangGenerate => return Field::CacheSalt,
        // This API has no model, for a server has but one; what differs is the adapter.
        b"lora_path" if shape == Shape::SglangGenerate => return Field::Model,
        b"model" => return Field::Model,
        b"stream" => return Field::Stream,
        _ => {}
    }
    match shape {
        Shape::ChatCompletions | Shape::ChatRender => match key {
            b"max_completion_tokens" => Field::OutputCap(OutputCap::Preferred),
            b"max_tokens" => Field::OutputCap(OutputCap::Other),
            b"messages" => Field::Messages,
            b"tools" => Field::Tools,
            _ => Field::Ignored,
        },
        Shape::Completions | Shape::CompletionsRender => match key {
            b"max_tokens" => Field::OutputCap(OutputCap::Other),
            b"prompt" => Field::Prompt,
            _ => Field::Ignored,
        },
        Shape::Responses => match key {
            b"input" => Field::Messages,
            b"instructions" => Field::System,
            b"max_output_tokens" => Field::OutputCap(OutputCap::Other),
            b"conversation" | b"previous_response_id" => Field::Previous,
            b"tools" => Field::Tools,
            _ => Field::Ignored,
        },
        Shape::CountTokens | Shape::Messages => match key {
            b"max_tokens" => Field::OutputCap(OutputCap::Other),
            b"messages" => Field::Messages,
            b"system" => Field::System,
            b"tools" => Field::Tools,
            _ => Field::Ignored,
        },
        _ => other_body_member(shape, key),
    }
}

fn other_body_member(shape: Shape, key: &[u8]) -> Field {
    match (shape, key) {
        (Shape::Classify | Shape::Embeddings | Shape::Pooling, b"input")
        | (Shape::Generate, b"token_ids")
        | (Shape::ImageGenerations | Shape::Tokenize, b"prompt")
        | (Shape::Rerank, b"documents")
        | (Shape::Score, b"documents" | b"items" | b"text_2")
        | (Shape::SglangGenerate, b"input_ids" | b"text") => Field::Prompt,
        (Shape::Classify | Shape::Embeddings | Shape::Pooling | Shape::Tokenize, b"messages")
        | (Shape::Conversations, b"items") => Field::Messages,
        (Shape::Tokenize, b"tools") => Field::Tools,
        (Shape::Rerank, b"query") | (Shape::Score, b"queries" | b"query" | b"text_1") => {
            Field::Query
        }
        (Shape::Generate, b"features") => Field::Features,
        (Shape::SglangGenerate, b"audio_data") => Field::MediaItems(MediaKind::Audio),
        (Shape::SglangGenerate, b"image_data") => Field::MediaItems(MediaKind::Image),
        (Shape::SglangGenerate, b"video_data") => Field::MediaItems(MediaKind::Video),
        (Shape::Generate | Shape::SglangGenerate, b"sampling_params") => Field::Sampling,
        _ => Field::Ignored,
    }
}

fn message_member(key: &[u8]) -> Field {
    match key {
        b"content" => Field::Content(Mark::Content),
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
        // A name that the engine takes for the content, which may then be left out.
        b"uuid" => Field::Text(Mark::Name),
        b"video_url" => Field::Media(MediaKind::Video),
        _ => Field::Ignored,
    }
}

/// Items of the Responses API are messages, calls of tools, what these gave, and thoughts.
fn item_member(key: &[u8]) -> Field {
    match key {
        b"arguments" => Field::Text(Mark::Arguments),
        b"call_id" => Field::Text(Mark::ToolCallId),
        b"content" => Field::Content(Mark::Content),
        b"name" => Field::Text(Mark::Name),
        b"output" => Field::Content(Mark::Output),
        b"role" => Field::Text(Mark::Role),
        b"summary" => Field::Content(Mark::Reasoning),
        _ => Field::Ignored,
    }
}

/// Their parts hold a file directly.
fn item_part_member(key: &[u8]) -> Field {
    match key {
        b"file_data" | b"file_id" | b"file_url" => Field::Media(MediaKind::File),
        _ => part_member(key),
    }
}

/// Blocks of the Anthropic API: texts, images, documents, thoughts, calls of tools and what
/// these gave, which is text or blocks again.
fn block_member(key: &[u8]) -> Field {
    match key {
        b"content" => Field::Content(Mark::Output),
        b"id" | b"tool_use_id" => Field::Text(Mark::ToolCallId),
        b"input" => Field::Verbatim(Mark::ToolCalls),
        b"name" => Field::Text(Mark::Name),
        b"source" => Field::Media(MediaKind::Image),
        b"text" => Field::PartText,
        b"thinking" => Field::Text(Mark::Reasoning),
        _ => Field::Ignored,
    }
}

/// Bytes of a key that are looked at: no key above is longer than 21.
pub(super) const KEY_BYTES_MAX: usize = 24;
