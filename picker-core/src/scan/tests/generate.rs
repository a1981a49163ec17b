//! Random bodies: mostly what clients send, with decoys, other types and other spellings.

use super::*;

/// A small generator with a seed that a failing test prints.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    /// True once in `of`.
    pub(super) fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

pub(super) fn body(draw: &mut Draw) -> (Shape, String) {
    let is_json = |shape: &Shape| *shape != Shape::Transcriptions;
    let shapes: Vec<Shape> = Shape::ALL.into_iter().filter(is_json).collect();
    let shape = shapes[draw.below(2 * shapes.len()) % shapes.len()];
    let shape = if draw.chance(3) {
        ChatCompletions
    } else {
        shape
    };
    let mut members = Vec::new();
    for _ in 0..draw.below(9) {
        let key = draw.pick(NAMES);
        members.push((String::from(key), value(draw, shape, key)));
    }
    if !draw.chance(4) {
        for key in own_names(shape) {
            let member = (String::from(*key), value(draw, shape, key));
            members.insert(draw.below(members.len() + 1), member);
        }
    }
    (shape, object(draw, members))
}

/// The value of a member of the body, now and then of another type.
fn value(draw: &mut Draw, shape: Shape, key: &str) -> String {
    if draw.chance(8) {
        return any(draw, 3);
    }
    match key {
        "input" if shape == Shape::Responses && draw.chance(3) => string(draw, 700),
        "input" if shape == Shape::Responses => many(draw, 5, message),
        "messages" | "items" if shape != Shape::Score => many(draw, 6, message),
        "tools" => many(draw, 6, |draw| any(draw, 3)),
        "system" | "instructions" if draw.chance(2) => system_text(draw),
        "system" | "instructions" => many(draw, 3, |draw| {
            let text = system_text(draw);
            object(draw, alloc::vec![("text".into(), text)])
        }),
        "documents" | "items" | "text_2" if draw.chance(2) => many(draw, 4, |draw| {
            let text = string(draw, 300);
            object(draw, alloc::vec![("text".into(), text)])
        }),
        "query" | "queries" | "text_1" if draw.chance(3) => many(draw, 3, |draw| string(draw, 200)),
        "query" | "queries" | "text_1" => string(draw, 300),
        "sampling_params" => {
            let members = ["max_tokens", "max_new_tokens"].map(|key| (key.into(), number(draw)));
            object(draw, members.to_vec())
        }
        "features" => features(draw),
        "conversation" => any(draw, 2),
        "image_data" | "audio_data" => many(draw, 3, |draw| match draw.below(3) {
            0 => string(draw, 20),
            1 => many(draw, 2, |draw| string(draw, 20)),
            _ => {
                let source = string(draw, 20);
                object(draw, alloc::vec![("url".into(), source)])
            }
        }),
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" => number(draw),
        "model" | "lora_path" | "cache_salt" | "extra_key" | "previous_response_id" => {
            string(draw, 12)
        }
        "stream" | "metadata" => any(draw, 2),
        _ => prompt(draw),
    }
}

fn features(draw: &mut Draw) -> String {
    let kinds = |draw: &mut Draw, item: fn(&mut Draw) -> String| {
        let mut members = Vec::new();
        for _ in 0..draw.below(4) {
            let kind = String::from(draw.pick(&["image", "audio", "video", "x"]));
            members.push((kind, many(draw, 3, item)));
        }
        object(draw, members)
    };
    let mut members = Vec::new();
    for _ in 0..draw.below(4) {
        let member = if draw.chance(2) {
            ("mm_hashes", kinds(draw, |draw| string(draw, 9)))
        } else {
            let place = |draw: &mut Draw| {
                let offset = format!("{}", draw.below(200));
                object(
                    draw,
                    alloc::vec![("offset".into(), offset), ("length".into(), "9".into())],
                )
            };
            ("mm_placeholders", kinds(draw, place))
        };
        members.push((String::from(member.0), member.1));
    }
    object(draw, members)
}

fn system_text(draw: &mut Draw) -> String {
    let header = "x-anthropic-billing-header: cc_version=1";
    if draw.chance(2) {
        return string(draw, 600);
    }
    let len = draw.below(header.len() + 1);
    spell(draw, &header[..len])
}

/// The names that make a prompt in bodies of this shape.
fn own_names(shape: Shape) -> &'static [&'static str] {
    match shape {
        Shape::Classify | Shape::Embeddings | Shape::Pooling => &["input"],
        Shape::Conversations => &["items"],
        Shape::CountTokens | Shape::Messages => &["messages", "system"],
        Shape::Generate => &["token_ids", "sampling_params", "features"],
        Shape::Rerank => &["query", "documents"],
        Shape::Responses => &["input", "instructions", "conversation"],
        Shape::Score => &["text_1", "text_2"],
        Shape::SglangGenerate => &["text", "sampling_params", "image_data", "lora_path"],
        Shape::ChatCompletions | Shape::ChatRender => &["messages"],
        _ => &["prompt"],
    }
}

/// Damages a body: cuts it, or changes, adds or removes a few bytes.
pub(super) fn mutate(mut body: Vec<u8>, draw: &mut Draw) -> Vec<u8> {
    for _ in 0..=draw.below(3) {
        let at = draw.below(body.len().max(1));
        let byte = b"{}[]\",:\\u0e-+.x \xFF\x00tn"[draw.below(20)];
        match draw.below(4) {
            0 => body.truncate(at),
            1 if !body.is_empty() => body[at] = byte,
            2 if !body.is_empty() => drop(body.remove(at)),
            _ => body.insert(at.min(body.len()), byte),
        }
    }
    body
}

fn prompt(draw: &mut Draw) -> String {
    match draw.below(5) {
        0 => string(draw, 900),
        1 => many(draw, 5, |draw| string(draw, 300)),
        2 => many(draw, 200, token_id),
        3 => many(draw, 4, |draw| many(draw, 90, token_id)),
        _ => many(draw, 3, |draw| any(draw, 2)),
    }
}

fn message(draw: &mut Draw) -> String {
    if draw.chance(40) {
        return any(draw, 2);
    }
    let mut members = Vec::new();
    for _ in 0..draw.below(5) {
        let key = draw.pick(&[
            "role",
            "content",
            "content",
            "content",
            "name",
            "refusal",
            "reasoning",
            "tool_calls",
            "tool_call_id",
            "function_call",
            "reasoning_content",
            "weight",
            "arguments",
            "output",
            "summary",
            "call_id",
        ]);
        let value = match key {
            "role" if draw.chance(2) => "\"user\"".into(),
            "content" | "output" | "summary" if draw.chance(2) => many(draw, 4, part),
            "tool_calls" => many(draw, 3, |draw| any(draw, 3)),
            _ if draw.chance(9) => any(draw, 2),
            "content" => string(draw, 700),
            _ => string(draw, 20),
        };
        members.push((String::from(key), value));
    }
    object(draw, members)
}

fn part(draw: &mut Draw) -> String {
    if draw.chance(9) {
        return any(draw, 2);
    }
    let mut members = Vec::new();
    for _ in 0..draw.below(4) {
        let key = draw.pick(&[
            "type",
            "text",
            "text",
            "refusal",
            "image_url",
            "input_audio",
            "audio_url",
            "video_url",
            "file",
            "image_embeds",
            "uuid",
            "source",
            "thinking",
            "name",
            "id",
            "input",
            "content",
            "file_data",
        ]);
        let value = match key {
            "content" if draw.chance(2) => many(draw, 3, part),
            "input" => any(draw, 2),
            "thinking" | "name" | "id" | "content" | "file_data" => string(draw, 200),
            "text" | "refusal" | "type" => string(draw, 400),
            _ if draw.chance(4) => any(draw, 2),
            _ => {
                let key = draw.pick(&["url", "data", "file_data", "file_id", "detail"]);
                let source = string(draw, 300);
                object(draw, alloc::vec![(String::from(key), source)])
            }
        };
        members.push((String::from(key), value));
    }
    object(draw, members)
}

pub(super) fn any(draw: &mut Draw, depth: usize) -> String {
    match draw.below(if depth == 0 { 5 } else { 7 }) {
        0 => "null".into(),
        1 => "true".into(),
        2 => "false".into(),
        3 => number(draw),
        4 => string(draw, 30),
        5 => many(draw, 4, |draw| any(draw, depth - 1)),
        _ => {
            let mut members = Vec::new();
            for _ in 0..draw.below(4) {
                let key = draw.pick(&["model", "url", "text", "prompt", "", "a\u{20AC}"]);
                members.push((String::from(key), any(draw, depth - 1)));
            }
            object(draw, members)
        }
    }
}

fn number(draw: &mut Draw) -> String {
    let whole = draw.below(1000);
    match draw.below(8) {
        0 => format!("-{whole}"),
        1 => format!("{whole}.50"),
        2 => format!("{whole}e3"),
        3 => "18446744073709551615".into(),
        4 => "18446744073709551616".into(),
        5 => "0".into(),
        6 => "-0.0E-7".into(),
        _ => format!("{whole}"),
    }
}

fn token_id(draw: &mut Draw) -> String {
    if draw.chance(500) {
        return draw
            .pick(&["4294967296", "4294967295", "-1", "1.0", "\"1\""])
            .into();
    }
    format!("{}", draw.below(200_000))
}

fn many(draw: &mut Draw, end: usize, item: impl Fn(&mut Draw) -> String) -> String {
    let items: Vec<_> = (0..draw.below(end)).map(|_| item(draw)).collect();
    let comma = format!("{},{}", blank(draw), blank(draw));
    format!("[{}{}{}]", blank(draw), items.join(&comma), blank(draw))
}

fn object(draw: &mut Draw, members: Vec<(String, String)>) -> String {
    let mut out = String::from("{");
    for (at, (key, value)) in members.iter().enumerate() {
        out.push_str(if 0 < at { "," } else { "" });
        out.push_str(blank(draw));
        out.push_str(&spell(draw, key));
        out.push_str(blank(draw));
        out.push(':');
        out.push_str(blank(draw));
        out.push_str(value);
        out.push_str(blank(draw));
    }
    if members.is_empty() {
        out.push_str(blank(draw));
    }
    out.push('}');
    out
}

pub(super) fn blank(draw: &mut Draw) -> &'static str {
    ["", "", "", " ", "\n\t", "\r\n  "][draw.below(6)]
}

fn string(draw: &mut Draw, end: usize) -> String {
    let letters = [
        'a', ' ', 'Z', '"', '\\', '/', '\n', '\u{8}', '\u{0}', 'é', '漢', '😀',
    ];
    let plain_only = draw.chance(2);
    let letter = |draw: &mut Draw| letters[draw.below(if plain_only { 3 } else { letters.len() })];
    let text: String = (0..draw.below(end)).map(|_| letter(draw)).collect();
    spell(draw, &text)
}

/// A JSON string for `text`, now and then escaped where it need not be.
pub(super) fn spell(draw: &mut Draw, text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        let simple = match letter {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\n' => "\\n",
            '\u{8}' => "\\b",
            '/' if draw.chance(2) => "\\/",
            _ => "",
        };
        if draw.chance(200) {
            out.push_str(draw.pick(&["\\uD83D", "\\uDe00", "\\udbff\\uD83d\\uDE00"]));
        }
        if draw.chance(12) || simple.is_empty() && letter < ' ' {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04X}"));
            }
        } else if simple.is_empty() {
            out.push(letter);
        } else {
            out.push_str(simple);
        }
    }
    out.push('"');
    out
}

/// Names of members, also of shapes in whose bodies they mean nothing.
const NAMES: &[&str] = &[
    "model",
    "stream",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "cache_salt",
    "extra_key",
    "messages",
    "messages",
    "prompt",
    "input",
    "instructions",
    "system",
    "items",
    "tools",
    "tools",
    "query",
    "queries",
    "documents",
    "text",
    "text_1",
    "text_2",
    "input_ids",
    "token_ids",
    "sampling_params",
    "previous_response_id",
    "features",
    "conversation",
    "image_data",
    "audio_data",
    "metadata",
];
