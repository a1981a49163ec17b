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
    let is_model =
        |key: &str| key == "model" || key == "lora_path" && shape == Shape::SglangGenerate;
    let model = body.0.iter().rfind(|it| is_model(&it.0));
    if let Some(model) = model.map(|it| it.1.get()) {
        request.model = string(model);
        if request.model.is_none() && model != "null" {
            request.faults.push(RequestFault::ModelNotText);
        }
    }
    request.stream = body.last("stream") == Some("true");
    let salt = if shape == Shape::SglangGenerate {
        "extra_key"
    } else {
        "cache_salt"
    };
    request.cache_salt = body.last(salt).and_then(string);
    request.output_cap = output_cap(shape, &body);
    let origin = seed.origin(request.model.as_deref(), request.cache_salt.as_deref());
    let origin = beside(shape, &body, &mut request.media)
        .iter()
        .fold(origin, |origin, it| {
            let parts = [origin, it.kind as u64, it.hash].map(u64::to_le_bytes);
            xxh3_64(&parts.concat())
        });
    let features = features(shape, &body);
    let prompts = query(shape, &body);
    let (query, fault) = prompts.map_or_else(|fault| (plain(b""), Some(fault)), |it| (it, None));
    match plain_prompts(shape, &body) {
        Ok(texts) => request.prompts.extend(texts.iter().map(|(tag, text)| {
            let mut sections = alloc::vec![(*tag, plain(text))];
            if 0 < query.text {
                let query = Text {
                    bytes: query.bytes.clone(),
                    text: query.text,
                };
                sections.insert(0, (7, query));
            }
            cut_with(&sections, origin, &features)
        })),
        Err(fault) => request.faults.push(fault),
    }
    if let Some(first) = request.prompts.first() {
        request.group = first.blocks[..first.blocks.len().min(32)].last().copied();
    }
    request.faults.extend(fault);
    match chat(shape, &body, origin, &mut request) {
        Ok(prompt) => request.prompts.extend(prompt),
        Err(fault) => request.faults.push(fault),
    }
    if request.faults.iter().any(RequestFault::hides_prompts) {
        request.prompts.clear();
        request.group = None;
    }
    request.media.extend(features.into_iter().map(|it| it.0));
    if !shape.is_cached() {
        request.prompts.iter_mut().for_each(|it| it.blocks.clear());
        request.group = None;
    }
    Some(request)
}

/// The body with its model called `name`, which has to need no escapes; `None` as for [`read`].
pub(super) fn rename(shape: Shape, body: &str, name: &str) -> Option<String> {
    let members: Members<'_> = serde_json::from_str(body).ok()?;
    let at = |text: &str| text.as_ptr() as usize - body.as_ptr() as usize;
    let mut end = 0;
    let mut places = Vec::new();
    for (key, value) in &members.0 {
        let begins = end + body[end..].find('"')?;
        end = at(value.get()) + value.get().len();
        places.push((key.as_str(), begins, at(value.get())..end));
    }
    let is_model =
        |key: &str| key == "model" || shape == Shape::SglangGenerate && key == "lora_path";
    let Some(last) = places.iter().rposition(|it| is_model(it.0)) else {
        let comma = if places.is_empty() { "" } else { "," };
        let member = alloc::format!("{{\"model\":\"{name}\"{comma}");
        return Some(body.replacen('{', &member, 1));
    };
    let (key, _, value) = &places[last];
    let mut renamed = String::from(body);
    renamed.replace_range(value.clone(), &alloc::format!("\"{name}\""));
    for at in (0..last).rev() {
        if places[at].0 == *key {
            renamed.replace_range(places[at].1..places[at + 1].1, "");
        } else if is_model(places[at].0) {
            break;
        }
    }
    Some(renamed)
}

fn output_cap(shape: Shape, body: &Members<'_>) -> Option<u64> {
    let cap = |key| body.last(key).and_then(integer);
    let nested = |key| {
        object(body.last("sampling_params")?)?
            .last(key)
            .and_then(integer)
    };
    match shape {
        Shape::ChatCompletions | Shape::ChatRender => {
            cap("max_completion_tokens").or_else(|| cap("max_tokens"))
        }
        Shape::Completions | Shape::CompletionsRender | Shape::Messages | Shape::CountTokens => {
            cap("max_tokens")
        }
        Shape::Responses => cap("max_output_tokens"),
        Shape::Generate => nested("max_tokens"),
        Shape::SglangGenerate => nested("max_new_tokens"),
        _ => None,
    }
}

/// The value of the last of the members with one of these names; with several, `null` is none.
fn chosen<'a>(body: &'a Members<'_>, names: &[&str]) -> Option<&'a str> {
    let is_null = |value: &RawValue| value.get() == "null";
    let mut found = body.0.iter().rev().filter(|(key, value)| {
        names.contains(&key.as_str()) && (names.len() == 1 || !is_null(value))
    });
    found
        .next()
        .map(|(_, value)| value.get())
        .filter(|it| *it != "null")
}

/// Images and the like beside the prompt.
fn beside<'a>(shape: Shape, body: &Members<'_>, media: &'a mut Vec<Media>) -> &'a [Media] {
    fn items(kind: MediaKind, value: &str, media: &mut Vec<Media>) {
        for item in list(value).unwrap_or_default() {
            items(kind, item, media);
        }
        sources(kind, value, &mut Text::default(), media);
    }
    for (key, value) in body.0.iter().filter(|_| shape == Shape::SglangGenerate) {
        let kind = match key.as_str() {
            "audio_data" => MediaKind::Audio,
            "image_data" => MediaKind::Image,
            "video_data" => MediaKind::Video,
            _ => continue,
        };
        items(kind, value.get(), media);
    }
    media
}

/// The hashes of `features`, each with the block where its place begins.
fn features(shape: Shape, body: &Members<'_>) -> Vec<(Media, u64)> {
    let mut found = Vec::new();
    let Some(features) = body.last("features").and_then(object) else {
        return found;
    };
    if shape != Shape::Generate {
        return found;
    }
    let kind = |key: &str| match key {
        "audio" => MediaKind::Audio,
        "image" => MediaKind::Image,
        "video" => MediaKind::Video,
        _ => MediaKind::File,
    };
    let lists = |name| {
        features
            .last(name)
            .and_then(object)
            .map(|it| it.0)
            .unwrap_or_default()
    };
    let mut places = Vec::new();
    for (key, list_of_places) in lists("mm_placeholders") {
        let objects = list(list_of_places.get()).unwrap_or_default();
        for place in objects.into_iter().filter_map(object) {
            // Another type does not take an offset back.
            let mut offsets = place.0.iter().rev().filter(|it| it.0 == "offset");
            let offset = offsets.find_map(|it| integer(it.1.get())).unwrap_or(0);
            places.push((kind(&key), offset));
        }
    }
    for (key, hashes) in lists("mm_hashes") {
        let kind = kind(&key);
        for hash in list(hashes.get())
            .unwrap_or_default()
            .into_iter()
            .filter_map(string)
        {
            let at = places.iter().position(|it| it.0 == kind);
            let offset = at.map_or(0, |at| places.remove(at).1);
            let hash = xxh3_64(hash.as_bytes());
            found.push((Media { kind, hash }, offset / 64));
        }
    }
    found
}

fn query(shape: Shape, body: &Members<'_>) -> Result<Text, RequestFault> {
    let value = match shape {
        Shape::Rerank => chosen(body, &["query"]),
        Shape::Score => chosen(body, &["queries", "query", "text_1"]),
        _ => None,
    };
    let mut text = Text::default();
    let Some(value) = value else { return Ok(text) };
    for it in list(value).unwrap_or_else(|| alloc::vec![value]) {
        text.add(string(it).ok_or(RequestFault::PromptMixed)?.as_bytes());
        text.bytes.push(0xF6);
    }
    Ok(text)
}

fn plain_prompts(shape: Shape, body: &Members<'_>) -> Result<Vec<(u64, Vec<u8>)>, RequestFault> {
    let names: &[&str] = match shape {
        Shape::Completions | Shape::CompletionsRender => &["prompt"],
        Shape::ImageGenerations | Shape::Tokenize => &["prompt"],
        Shape::Classify | Shape::Embeddings | Shape::Pooling => &["input"],
        Shape::Generate => &["token_ids"],
        Shape::Rerank => &["documents"],
        Shape::Score => &["documents", "items", "text_2"],
        Shape::SglangGenerate => &["input_ids", "text"],
        _ => &[],
    };
    let Some(prompt) = chosen(body, names) else {
        return Ok(Vec::new());
    };
    if let Some(text) = string(prompt) {
        return Ok(alloc::vec![(1, text.into())]);
    }
    let items = list(prompt).ok_or(RequestFault::PromptOfWrongType)?;
    let text = |it: &&str| {
        let text = string(it).map(String::into_bytes);
        text.or_else(|| document(it).filter(|_| matches!(shape, Shape::Rerank | Shape::Score)))
    };
    if let Some(texts) = items.iter().map(text).collect::<Option<Vec<_>>>() {
        return Ok(texts.into_iter().map(|it| (1, it)).collect());
    }
    if let Some(ids) = token_ids(prompt) {
        return Ok(alloc::vec![(2, ids)]);
    }
    let lists = items
        .iter()
        .map(|it| token_ids(it))
        .collect::<Option<Vec<_>>>();
    let lists = lists.ok_or(RequestFault::PromptMixed)?;
    Ok(lists.into_iter().map(|ids| (2, ids)).collect())
}

fn document(json: &str) -> Option<Vec<u8>> {
    let members = object(json)?.0.into_iter().filter(|(key, _)| key == "text");
    let texts: String = members
        .filter_map(|(_, value)| string(value.get()))
        .collect();
    Some(texts.into_bytes())
}

fn chat(
    shape: Shape,
    body: &Members<'_>,
    origin: u64,
    request: &mut Request,
) -> Result<Option<Prompt>, RequestFault> {
    let name = match shape {
        Shape::ChatCompletions | Shape::ChatRender | Shape::Messages | Shape::CountTokens => {
            "messages"
        }
        Shape::Classify | Shape::Embeddings | Shape::Pooling | Shape::Tokenize => "messages",
        Shape::Responses => "input",
        Shape::Conversations => "items",
        _ => return Ok(None),
    };
    let Some(messages) = body.last(name).filter(|it| *it != "null") else {
        return Ok(None);
    };
    let mut text = Text::default();
    let (mut fault, mut group) = (None, None);
    let only = string(messages).filter(|_| shape == Shape::Responses);
    if let Some(only) = &only {
        text.bytes.push(0xFD);
        text.add(b"user");
        text.bytes.push(0xF5);
        text.add(only.as_bytes());
        text.bytes.push(0xF6);
        group = Some(text.bytes.len() / 256);
    }
    let messages = list(messages).or_else(|| only.map(|_| Vec::new()));
    for item in messages.ok_or(RequestFault::PromptOfWrongType)? {
        let Some(item) = object(item) else {
            fault = Some(RequestFault::PromptOfWrongType);
            continue;
        };
        message(shape, &item, &mut text, &mut request.media);
        let mut roles = item.0.iter().rev().filter(|it| it.0 == "role");
        if roles.find_map(|it| string(it.1.get())).as_deref() == Some("user") {
            group.get_or_insert(text.bytes.len() / 256);
        }
    }
    if let Some(fault) = fault {
        return Err(fault);
    }
    let mut sections = leading(shape, body);
    let before: usize = sections
        .iter()
        .map(|it| it.1.bytes.len().div_ceil(256))
        .sum();
    sections.push((4, text));
    let prompt = cut(&sections, origin);
    let count = group.map_or(prompt.blocks.len(), |it| before + it);
    request.group = prompt.blocks[..count].last().copied();
    Ok(Some(prompt))
}

/// The sections before the messages.
fn leading(shape: Shape, body: &Members<'_>) -> Vec<(u64, Text)> {
    let mut sections = Vec::new();
    let last = |shapes: &[Shape], key| body.last(key).filter(|_| shapes.contains(&shape));
    let names = ["conversation", "previous_response_id"];
    if let (Shape::Responses, Some(previous)) = (shape, chosen(body, &names)) {
        if let Some(previous) = string(previous) {
            sections.push((6, plain(previous.as_bytes())));
        } else if previous.starts_with('{') {
            sections.push((6, plain(&squeeze(previous))));
        }
    }
    let with_tools = [
        Shape::ChatCompletions,
        Shape::ChatRender,
        Shape::CountTokens,
        Shape::Messages,
        Shape::Responses,
        Shape::Tokenize,
    ];
    if let Some(tools) = last(&with_tools, "tools").filter(|it| it.starts_with(['[', '{'])) {
        let tools = squeeze(tools);
        if tools != b"[]" && tools != b"{}" {
            sections.push((3, plain(&tools)));
        }
    }
    let system = last(&[Shape::Responses], "instructions")
        .or_else(|| last(&[Shape::CountTokens, Shape::Messages], "system"));
    if let Some(system) = system {
        let mut text = String::new();
        let mut add = |it: String| {
            let is_billing = it.starts_with("x-anthropic-billing-header");
            if shape == Shape::Responses || !is_billing {
                text.push_str(&it);
            }
        };
        if let Some(system) = string(system) {
            add(system);
        }
        for block in list(system).unwrap_or_default() {
            for (key, value) in object(block).map(|it| it.0).unwrap_or_default() {
                if key == "text"
                    && let Some(value) = string(value.get())
                {
                    add(value);
                }
            }
        }
        sections.push((5, plain(text.as_bytes())));
    }
    sections.retain(|(_, text)| 0 < text.text);
    sections
}

fn message(shape: Shape, item: &Members<'_>, text: &mut Text, media: &mut Vec<Media>) {
    let is_item = matches!(shape, Shape::Responses | Shape::Conversations);
    for (key, value) in &item.0 {
        let mark = match (key.as_str(), is_item) {
            ("arguments", true) => 0xC0,
            ("output", true) => 0xC1,
            ("content", _) => 0xF5,
            ("function_call", false) => 0xF7,
            ("name", _) => 0xF9,
            ("reasoning" | "reasoning_content", false) | ("summary", true) => 0xFB,
            ("refusal", false) => 0xFC,
            ("role", _) => 0xFD,
            ("tool_call_id", false) | ("call_id", true) => 0xFE,
            ("tool_calls", false) => 0xFF,
            _ => continue,
        };
        marked(shape, (mark, key, value.get()), text, media);
    }
    text.bytes.push(0xF6);
}

/// A value of a message that has a mark.
fn marked(
    shape: Shape,
    (mark, key, value): (u8, &str, &str),
    text: &mut Text,
    media: &mut Vec<Media>,
) {
    if let "function_call" | "tool_calls" | "input" = key {
        if value.starts_with(['[', '{']) {
            text.bytes.push(mark);
            text.add(&squeeze(value));
        }
    } else if let Some(value) = string(value) {
        text.bytes.push(mark);
        text.add(value.as_bytes());
    } else if let (Some(parts), "content" | "output" | "summary") = (list(value), key) {
        text.bytes.push(mark);
        content(shape, &parts, text, media);
    }
}

fn content(shape: Shape, parts: &[&str], text: &mut Text, media: &mut Vec<Media>) {
    let is_block = matches!(shape, Shape::Messages | Shape::CountTokens);
    let is_item = matches!(shape, Shape::Responses | Shape::Conversations);
    let parts = parts.iter().filter(|it| it.starts_with(['{', '"']));
    for (at, part) in parts.enumerate() {
        if 0 < at {
            text.bytes.push(0xFA);
        }
        if let Some(part) = string(part) {
            text.add(part.as_bytes());
        }
        for (key, value) in object(part).map(|it| it.0).unwrap_or_default() {
            let mark = match key.as_str() {
                "content" => 0xC1,
                "id" | "tool_use_id" => 0xFE,
                "input" => 0xFF,
                "name" => 0xF9,
                "thinking" => 0xFB,
                _ => 0,
            };
            if !is_block && key == "uuid" {
                marked(shape, (0xF9, &key, value.get()), text, media);
                continue;
            }
            if is_block && mark != 0 {
                marked(shape, (mark, &key, value.get()), text, media);
                continue;
            }
            let kind = match key.as_str() {
                "text" => {
                    text.add(string(value.get()).unwrap_or_default().as_bytes());
                    continue;
                }
                "refusal" if !is_block => {
                    text.add(string(value.get()).unwrap_or_default().as_bytes());
                    continue;
                }
                "source" if is_block => MediaKind::Image,
                _ if is_block => continue,
                "audio_url" | "input_audio" => MediaKind::Audio,
                "file" => MediaKind::File,
                "file_data" | "file_id" | "file_url" if is_item => MediaKind::File,
                "image_embeds" | "image_url" => MediaKind::Image,
                "video_url" => MediaKind::Video,
                _ => continue,
            };
            sources(kind, value.get(), text, media);
        }
    }
}

fn sources(kind: MediaKind, value: &str, text: &mut Text, media: &mut Vec<Media>) {
    let mut sources: Vec<String> = string(value).into_iter().collect();
    for (key, value) in object(value).map(|it| it.0).unwrap_or_default() {
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
        let tokens = match kind {
            MediaKind::Audio => 250,
            MediaKind::File | MediaKind::Image => 225,
            MediaKind::Video => 4500,
        };
        if media.len() <= 256 {
            let run = hash.to_le_bytes().into_iter().cycle();
            text.add(&run.take(4 * tokens).collect::<Vec<u8>>());
        }
    }
}

fn cut(sections: &[(u64, Text)], origin: u64) -> Prompt {
    cut_with(sections, origin, &[])
}

fn cut_with(sections: &[(u64, Text)], origin: u64, features: &[(Media, u64)]) -> Prompt {
    let mut blocks = Vec::new();
    let mut last = origin;
    let link =
        |last: u64, content: u64| xxh3_64(&[last.to_le_bytes(), content.to_le_bytes()].concat());
    for (at, (tag, text)) in sections.iter().enumerate() {
        last = link(last, *tag);
        for (place, block) in text.bytes.chunks(256).enumerate() {
            if block.len() == 256 || at + 1 < sections.len() {
                let mut content = xxh3_64(block);
                for (media, _) in features.iter().filter(|it| it.1 == place as u64) {
                    let tagged = [&[media.kind as u8][..], &media.hash.to_le_bytes()].concat();
                    content = link(content, xxh3_64(&tagged));
                }
                last = link(last, content);
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
