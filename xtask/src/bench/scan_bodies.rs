//! What `cargo xtask bench scan` reads: every API, every content coding, several lengths.

use std::io::Write;

use anyhow::Result;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use super::bodies;
use crate::draw::Draw;

/// A body to read.
pub(super) struct Body {
    pub(super) name: String,
    /// Where it is sent; `None` to hash it and no more.
    pub(super) path: Option<&'static str>,
    pub(super) coding: &'static str,
    /// The body as it is sent.
    pub(super) sent: Vec<u8>,
    /// Its length once it is decoded.
    pub(super) read_bytes: usize,
}

/// Every body, in the order of the table.
pub(super) fn all() -> Result<Vec<Body>> {
    let mut all = Vec::new();
    let plain = |name: String, path, sent: Vec<u8>| Body {
        name,
        path: Some(path),
        coding: "identity",
        read_bytes: sent.len(),
        sent,
    };
    for kilobytes in SIZES_KB {
        let chat = bodies::chat(kilobytes * 1024, 1, false);
        all.push(plain(format!("chat, {kilobytes} KB"), CHAT, chat));
    }
    for kilobytes in SIZES_KB {
        let image = bodies::image(kilobytes * 1024, 1);
        let name = format!("chat with an image, {kilobytes} KB");
        all.push(plain(name, CHAT, image));
    }
    for (path, body) in apis() {
        all.push(plain(path.trim_start_matches('/').to_owned(), path, body));
    }
    let chat = bodies::chat(API_BYTES, 1, false);
    for (coding, sent) in coded(&chat)? {
        all.push(Body {
            name: format!("chat in {coding}"),
            path: Some(CHAT),
            coding,
            sent,
            read_bytes: chat.len(),
        });
    }
    all.push(Body {
        name: "hash of the blocks alone".to_owned(),
        path: None,
        coding: "identity",
        read_bytes: chat.len(),
        sent: chat,
    });
    Ok(all)
}

/// A body of some 100 KB for each API.
fn apis() -> Vec<(&'static str, Vec<u8>)> {
    let mut draw = Draw::new(2);
    let mut text = |bytes: usize| {
        let mut text = draw.prose(bytes).replace(". ", ".\n");
        text.truncate(bytes);
        text
    };
    let texts: Vec<String> = (0..50).map(|_| text(2_000)).collect();
    let whole = texts.concat();
    let turns = |kind: &str| -> Vec<Value> {
        let turn = |(at, text): (usize, &String)| {
            let role = ["user", "assistant"][at % 2];
            json!({"role": role, "content": [{"type": kind, "text": text}]})
        };
        texts.iter().enumerate().map(turn).collect()
    };
    let ids: Vec<usize> = (0..17_000).map(|at| at * 7_919 % 128_000).collect();
    let tool = json!({"name": "f", "input_schema": {"type": "object", "properties": {}}});
    let item = json!({"model": "m", "instructions": texts[0], "input": turns("input_text")});
    let block = json!({"model": "m", "system": texts[0], "tools": [tool],
        "messages": turns("text")});
    let list = json!({"model": "m", "input": texts});
    let sorted = json!({"model": "m", "query": "What?", "documents": texts});
    let prompt = json!({"model": "m", "prompt": whole});
    let chat = bodies::chat(API_BYTES, 1, false);
    let written = |body: &Value| body.to_string().into_bytes();
    vec![
        ("/v1/chat/completions/render", chat),
        ("/v1/completions", written(&prompt)),
        ("/v1/completions/render", written(&prompt)),
        ("/v1/responses", written(&item)),
        (
            "/v1/conversations",
            written(&json!({"items": turns("input_text")})),
        ),
        ("/v1/embeddings", written(&list)),
        ("/v1/images/generations", written(&prompt)),
        ("/v1/messages", written(&block)),
        ("/v1/messages/count_tokens", written(&block)),
        (
            "/inference/v1/generate",
            written(&json!({"token_ids": ids})),
        ),
        ("/generate", written(&json!({"text": whole}))),
        ("/rerank", written(&sorted)),
        ("/score", written(&sorted)),
        ("/tokenize", written(&prompt)),
        ("/pooling", written(&list)),
        ("/classify", written(&list)),
        ("/v1/audio/transcriptions", form(&mut Draw::new(3))),
    ]
}

/// A form with a file of random bytes before the model.
fn form(draw: &mut Draw) -> Vec<u8> {
    let disposition = "--X\r\nContent-Disposition: form-data; name=";
    let mut form = format!("{disposition}\"file\"; filename=\"a\"\r\n\r\n").into_bytes();
    form.extend((0..API_BYTES).map(|_| draw.number() as u8));
    let end = format!("\r\n{disposition}\"model\"\r\n\r\nm\r\n--X--\r\n");
    form.extend_from_slice(end.as_bytes());
    form
}

/// The body in each coding, at the levels that clients use.
fn coded(body: &[u8]) -> Result<[(&'static str, Vec<u8>); 4]> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(body)?;
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::default());
    deflate.write_all(body)?;
    let mut br = Vec::new();
    let parameters = brotli::enc::BrotliEncoderParams {
        quality: 5,
        lgwin: 22,
        ..Default::default()
    };
    brotli::BrotliCompress(&mut &*body, &mut br, &parameters)?;
    Ok([
        ("gzip", gzip.finish()?),
        ("deflate", deflate.finish()?),
        ("br", br),
        ("zstd", compress_to_vec(body, CompressionLevel::Fastest)),
    ])
}

const CHAT: &str = "/v1/chat/completions";

/// The lengths of chats, in KB.
const SIZES_KB: [usize; 4] = [1, 10, 100, 400];

/// The length of a body of each API, and of those in each coding.
const API_BYTES: usize = 100 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_of_about_the_length_that_is_said() {
        for body in all().unwrap() {
            let Some(path) = body.path else { continue };
            let (sent, read) = (body.sent.len(), body.read_bytes);
            let is_coded = body.coding != "identity";
            assert_eq!(sent < read, is_coded, "{}", body.name);
            if path != CHAT {
                assert!((90_000..130_000).contains(&read), "{path}: {read}");
            }
        }
    }
}
