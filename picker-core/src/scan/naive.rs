//! The stupid twin of the scanner: parse the whole body, build the whole text, cut it.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use crate::block::{BlockHash, HashSeed};
use crate::request::{Media, MediaKind, Prompt, Request, RequestFault};
use crate::shape::Shape;

/// The members of an object in order, values as written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

/// The text of a section: all bytes, and how many of them are text.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    text: u64,
}

/// Reads a body; `None` when it is not a JSON object.
pub(super) fn read(shape: Shape, body: &[u8], seed: HashSeed) -> Option<Request> {
    let body: Members<'_> = serde_json::from_slice(body).ok()?;
    let mut request = Request {
        shape: Some(shape),
        ..Request::default()
    };
    if let Some(model) = body.last("model") {
        request.model = string(model);
        if request.model.is_none() && model != "null" {
            request.faults.push(RequestFault::ModelNotText);
        }
    }
    request.stream = body.last("stream") == Some("true");
    request.cache_salt = body.last("cache_salt").and_then(string);
    let cap = |key| body.last(key).and_then(integer);
    request.output_cap = match shape {
        Shape::ChatCompletions => cap("max_completion_tokens").or_else(|| cap("max_tokens")),
        Shape::Completions => cap("max_tokens"),
    };
    let origin = seed.origin(request.model.as_deref(), request.cache_salt.as_deref());
    let prompts = match shape {
        Shape::ChatCompletions => chat(&body, origin, &mut request),
        Shape::Completions => completions(&body, origin),
    };
    match prompts {
        Ok(prompts) => {
            if shape == Shape::Completions {
                let blocks = prompts
                    .first()
                    .map(|it| &it.blocks[..it.blocks.len().min(32)]);
                request.group = blocks.and_then(|it| it.last().copied());
            }
            request.prompts = prompts;
        }
        Err(fault) => request.faults.push(fault),
    }
    Some(request)
}

fn completions(body: &Members<'_>, origin: u64) -> Result<Vec<Prompt>, RequestFault> {
    let Some(prompt) = body.last("prompt").filter(|it| *it != "null") else {
        return Ok(Vec::new());
    };
    if let Some(text) = string(prompt) {
        return Ok(alloc::vec![cut(&[(1, plain(text.as_bytes()))], origin)]);
    }
    let items = list(prompt).ok_or(RequestFault::PromptOfWrongType)?;
    if let Some(texts) = items
        .iter()
        .map(|it| string(it))
        .collect::<Option<Vec<_>>>()
    {
        let prompt = |it: &String| cut(&[(1, plain(it.as_bytes()))], origin);
        return Ok(texts.iter().map(prompt).collect());
    }
    if let Some(ids) = token_ids(prompt) {
        return Ok(alloc::vec![cut(&[(2, plain(&ids))], origin)]);
    }
    let lists = items
        .iter()
        .map(|it| token_ids(it))
        .collect::<Option<Vec<_>>>();
    let lists = lists.ok_or(RequestFault::PromptMixed)?;
    Ok(lists
        .iter()
        .map(|ids| cut(&[(2, plain(ids))], origin))
        .collect())
}

fn chat(
    body: &Members<'_>,
    origin: u64,
    request: &mut Request,
) -> Result<Vec<Prompt>, RequestFault> {
    let Some(messages) = body.last("messages").filter(|it| *it != "null") else {
        return Ok(Vec::new());
    };
    let messages = list(messages).ok_or(RequestFault::PromptOfWrongType)?;
    let mut text = Text::default();
    let (mut fault, mut group) = (None, None);
    for item in messages {
        match object(item) {
            Some(item) => {
                message(&item, &mut text, &mut request.media);
                let mut roles = item.0.iter().rev().filter(|it| it.0 == "role");
                if roles.find_map(|it| string(it.1.get())).as_deref() == Some("user") {
                    group.get_or_insert(text.bytes.len() / 256);
                }
            }
            None => fault = Some(RequestFault::PromptOfWrongType),
        }
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let mut sections = Vec::new();
    if let Some(tools) = body.last("tools").filter(|it| it.starts_with(['[', '{'])) {
        let tools = squeeze(tools);
        if tools != b"[]" && tools != b"{}" {
            sections.push((3, plain(&tools)));
        }
    }
    let before: usize = sections
        .iter()
        .map(|it| it.1.bytes.len().div_ceil(256))
        .sum();
    sections.push((4, text));
    let prompt = cut(&sections, origin);
    let count = group.map_or(prompt.blocks.len(), |it| before + it);
    request.group = prompt.blocks[..count].last().copied();
    Ok(alloc::vec![prompt])
}

fn message(item: &Members<'_>, text: &mut Text, media: &mut Vec<Media>) {
    for (key, value) in &item.0 {
        let value = value.get();
        let mark = match key.as_str() {
            "content" => 0xF5,
            "function_call" => 0xF7,
            "name" => 0xF9,
            "reasoning" | "reasoning_content" => 0xFB,
            "refusal" => 0xFC,
            "role" => 0xFD,
            "tool_call_id" => 0xFE,
            "tool_calls" => 0xFF,
            _ => continue,
        };
        if let "function_call" | "tool_calls" = key.as_str() {
            if value.starts_with(['[', '{']) {
                text.bytes.push(mark);
                text.add(&squeeze(value));
            }
        } else if let Some(value) = string(value) {
            text.bytes.push(mark);
            text.add(value.as_bytes());
        } else if let (Some(parts), "content") = (list(value), key.as_str()) {
            text.bytes.push(mark);
            content(&parts, text, media);
        }
    }
    text.bytes.push(0xF6);
}

fn content(parts: &[&str], text: &mut Text, media: &mut Vec<Media>) {
    let parts = parts.iter().filter(|it| it.starts_with(['{', '"']));
    for (at, part) in parts.enumerate() {
        if 0 < at {
            text.bytes.push(0xFA);
        }
        if let Some(part) = string(part) {
            text.add(part.as_bytes());
        }
        for (key, value) in object(part).map(|it| it.0).unwrap_or_default() {
            let kind = match key.as_str() {
                "audio_url" | "input_audio" => MediaKind::Audio,
                "file" => MediaKind::File,
                "image_embeds" | "image_url" => MediaKind::Image,
                "video_url" => MediaKind::Video,
                "text" | "refusal" => {
                    let value = string(value.get()).unwrap_or_default();
                    text.add(value.as_bytes());
                    continue;
                }
                _ => continue,
            };
            let mut sources: Vec<String> = string(value.get()).into_iter().collect();
            for (key, value) in object(value.get()).map(|it| it.0).unwrap_or_default() {
                if ["url", "data", "file_data", "file_id"].contains(&key.as_str()) {
                    sources.extend(string(value.get()));
                }
            }
            for source in sources {
                let hash = xxh3_64(source.as_bytes());
                media.push(Media { kind, hash });
                text.bytes.push(0xF8);
                text.bytes.push(kind as u8);
                text.bytes.extend(hash.to_le_bytes());
            }
        }
    }
}

fn cut(sections: &[(u64, Text)], origin: u64) -> Prompt {
    let mut blocks = Vec::new();
    let mut last = origin;
    let link =
        |last: u64, content: u64| xxh3_64(&[last.to_le_bytes(), content.to_le_bytes()].concat());
    for (at, (tag, text)) in sections.iter().enumerate() {
        last = link(last, *tag);
        for block in text.bytes.chunks(256) {
            if block.len() == 256 || at + 1 < sections.len() {
                last = link(last, xxh3_64(block));
                blocks.push(BlockHash(last));
            }
        }
    }
    let bytes = sections.iter().map(|(_, text)| text.text).sum();
    Prompt { bytes, blocks }
}

fn plain(bytes: &[u8]) -> Text {
    let mut text = Text::default();
    text.add(bytes);
    text
}

/// JSON without the blanks between its tokens.
fn squeeze(json: &str) -> Vec<u8> {
    let (mut in_string, mut escaped) = (false, false);
    let mut out = Vec::new();
    for byte in json.bytes() {
        if in_string || !byte.is_ascii_whitespace() {
            out.push(byte);
        }
        if byte == b'"' && !escaped {
            in_string = !in_string;
        }
        escaped = in_string && byte == b'\\' && !escaped;
    }
    out
}

/// A string, by way of UTF-16, where a lone half of a pair is easy to see.
fn string(json: &str) -> Option<String> {
    let inside = json.strip_prefix('"')?.strip_suffix('"')?;
    let (mut units, mut letters) = (Vec::new(), inside.chars());
    while let Some(letter) = letters.next() {
        let escaped = if letter == '\\' { letters.next()? } else { ' ' };
        let letter = match escaped {
            'b' => '\u{8}',
            'f' => '\u{C}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let digits: String = letters.by_ref().take(4).collect();
                units.push(u16::from_str_radix(&digits, 16).ok()?);
                continue;
            }
            '"' | '\\' | '/' => escaped,
            _ => letter,
        };
        units.extend_from_slice(letter.encode_utf16(&mut [0; 2]));
    }
    Some(String::from_utf16_lossy(&units))
}

fn object(json: &str) -> Option<Members<'_>> {
    serde_json::from_str(json).ok()
}

fn list(json: &str) -> Option<Vec<&str>> {
    let items: Vec<&RawValue> = serde_json::from_str(json).ok()?;
    Some(items.into_iter().map(RawValue::get).collect())
}

fn integer(json: &str) -> Option<u64> {
    json.bytes()
        .all(|it| it.is_ascii_digit())
        .then(|| json.parse().ok())?
}

fn token_ids(json: &str) -> Option<Vec<u8>> {
    let ids = list(json)?
        .into_iter()
        .map(|it| u32::try_from(integer(it)?).ok());
    let ids = ids.collect::<Option<Vec<_>>>()?;
    Some(ids.into_iter().flat_map(u32::to_le_bytes).collect())
}

impl Text {
    fn add(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.text += text.len() as u64;
    }
}

impl Members<'_> {
    fn last(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .rev()
            .find(|(it, _)| it == key)
            .map(|(_, value)| value.get())
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<&RawValue, _>()? {
                    members.push((string(key.get()).unwrap_or_default(), value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}
