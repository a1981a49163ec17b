//! `cargo xtask read`: a file as the picker reads it, as JSON.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use clap::Subcommand;
use codecs::{Coding, DecodeError, Decoder};
use picker_core::{
    EndpointMetrics, Engine, EngineKind, HashSeed, Reading, Reporter, Request, RequestScanner,
    ResponseKind, ResponseReader, Shape, Timestamp, detect_engine, read_page_of,
};
use serde_json::{Value, json};

/// What to read.
#[derive(Clone, Debug, Subcommand)]
pub enum ReadArguments {
    /// A metrics page
    Metrics {
        /// The page, as the server sent it
        file: PathBuf,
        /// Whose page it is, instead of finding out: vllm, sglang, trtllm-serve, ...
        #[arg(long, value_name = "NAME", value_parser = engine)]
        engine: Option<EngineKind>,
        /// One data-parallel rank of the page, as its samples name it, instead of all of them
        #[arg(long, value_name = "RANK")]
        rank: Option<String>,
    },
    /// A request body
    Request {
        /// The body
        file: PathBuf,
        /// The path it was sent to
        #[arg(long)]
        path: String,
        /// A header of the request
        #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
        headers: Vec<(String, String)>,
    },
    /// A response body
    Response {
        /// The body
        file: PathBuf,
        /// The path of the request
        #[arg(long)]
        path: String,
        /// A header of the response, also `:status`
        #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
        headers: Vec<(String, String)>,
    },
}

/// Prints what the picker reads in a file.
pub fn read(arguments: &ReadArguments) -> Result<()> {
    let read = match arguments {
        ReadArguments::Metrics { file, engine, rank } => {
            metrics(&bytes(file)?, *engine, rank.as_deref())?
        }
        ReadArguments::Request {
            file,
            path,
            headers,
        } => request(&bytes(file)?, path, headers),
        ReadArguments::Response {
            file,
            path,
            headers,
        } => response(&bytes(file)?, path, headers),
    };
    println!("{read:#}");
    Ok(())
}

/// A metrics page, or one rank of it; what it does not say is null.
pub fn metrics(page: &[u8], engine: Option<EngineKind>, rank: Option<&str>) -> Result<Value> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let now = Timestamp(u64::try_from(since_epoch.as_micros())?);
    let engine = engine.or_else(|| detect_engine(page));
    let reading = match engine {
        Some(engine) => {
            let engine = Engine::BuiltIn(engine);
            let reading = read_page_of(page, Reporter { engine, rank }, true, now);
            reading.map_err(|error| error.to_string())
        }
        None => Err("the page is of no known engine; --engine names one".to_owned()),
    };
    let (metrics, warnings) = match reading {
        Ok(Reading { metrics, warnings }) => {
            (metrics, warnings.iter().map(ToString::to_string).collect())
        }
        Err(error) => (EndpointMetrics::default(), vec![error]),
    };
    let lora = metrics
        .lora
        .map(|lora| json!({"running": lora.running, "waiting": lora.waiting, "max": lora.max}));
    Ok(json!({
        "engine": engine.map(EngineKind::name),
        "running": metrics.running,
        "waiting": metrics.waiting,
        "kv_usage": metrics.kv_usage,
        "kv_usage_max": metrics.kv_usage_max,
        "block_size": metrics.block_size,
        "num_blocks": metrics.num_blocks,
        "capacity_tokens": metrics.capacity_tokens,
        "prefix_queries": metrics.prefix_queries,
        "prefix_hits": metrics.prefix_hits,
        "lora": lora,
        "sleeping": metrics.sleeping,
        "prefix_caching": metrics.prefix_caching,
        "warnings": warnings,
    }))
}

/// A request body, its blocks named as in a pool called `llm`.
pub fn request(body: &[u8], path: &str, headers: &[(String, String)]) -> Value {
    let mut warnings = Vec::new();
    let encoding = value(headers, "content-encoding");
    let encoding = encoding.filter(|value| !value.eq_ignore_ascii_case("identity"));
    let shape = Shape::of_path(path, &[]);
    let coding = encoding.map(Coding::named);
    let read = match (shape, coding) {
        (Some(shape), None) => scan(shape, body),
        (Some(shape), Some(Some(coding))) => match decoded(coding, body) {
            Ok(body) => scan(shape, &body),
            Err(error) => {
                warnings.push(format!("{error}: {}", consequence(error)));
                Request::bodiless()
            }
        },
        (None, _) => {
            warnings.push(format!("no known API has the path {path}: routed by load"));
            Request::bodiless()
        }
        (Some(_), Some(None)) => {
            let value = encoding.unwrap_or_default();
            warnings.push(format!(
                "content-encoding {value} is not read: routed by load"
            ));
            Request::bodiless()
        }
    };
    warnings.extend(read.faults.iter().map(ToString::to_string));
    let prompts = read.prompts.iter().map(|prompt| {
        let last = prompt
            .blocks
            .last()
            .map(|block| format!("{:016x}", block.0));
        json!({"bytes": prompt.bytes, "blocks": prompt.blocks.len(), "last_hash": last})
    });
    let media = read
        .media
        .iter()
        .map(|media| json!({"kind": media.kind.name(), "hash": format!("{:016x}", media.hash)}));
    json!({
        "shape": read.shape.map(Shape::name),
        "model": read.model,
        "stream": read.stream,
        "output_cap": read.output_cap,
        "cache_salt": read.cache_salt,
        "prompts": prompts.collect::<Value>(),
        "media": media.collect::<Value>(),
        "warnings": warnings,
    })
}

fn scan(shape: Shape, body: &[u8]) -> Request {
    let mut scanner = RequestScanner::new(shape);
    scanner.push(body);
    scanner.finish(HashSeed::new(POOL))
}

fn decoded(coding: Coding, body: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = Decoder::new(coding, BODY_BYTES_MAX);
    let mut decoded = Vec::new();
    decoder.push(body, &mut |piece| decoded.extend_from_slice(piece))?;
    decoder.finish(&mut |piece| decoded.extend_from_slice(piece))?;
    Ok(decoded)
}

fn consequence(error: DecodeError) -> &'static str {
    match error {
        DecodeError::TooLarge => "refused",
        DecodeError::Corrupt | DecodeError::WindowTooLarge => "routed by load",
    }
}

/// A response body; without a content type its first byte tells what it is.
///
/// `status_ok` goes by the header `:status` and by what the body says; `error` is the code of an
/// error, or its type when it has no code, or true when it has neither.
pub fn response(body: &[u8], path: &str, headers: &[(String, String)]) -> Value {
    let content_type = value(headers, "content-type").unwrap_or_else(|| {
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        let is_json = matches!(first, None | Some(b'{' | b'[' | b'"'));
        if is_json {
            "application/json"
        } else {
            "text/event-stream"
        }
    });
    let kind = ResponseKind::of_headers(Some(content_type), value(headers, "content-encoding"));
    let mut reader = ResponseReader::new(kind);
    reader.push(body);
    let read = reader.finish();
    let is_ok = value(headers, ":status").is_none_or(|status| status.starts_with('2'));
    let error = read
        .error
        .as_ref()
        .map(|error| match (error.code, &error.kind) {
            (Some(code), _) => json!(code),
            (None, Some(kind)) => json!(kind),
            (None, None) => json!(true),
        });
    json!({
        "shape": Shape::of_path(path, &[]).map(Shape::name),
        "model": read.model,
        "status_ok": is_ok && read.error.is_none(),
        "events": read.events,
        "finish": read.finish,
        "usage": {
            "prompt": read.usage.prompt,
            "cached": read.usage.cached,
            "output": read.usage.output,
        },
        "error": error,
    })
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let header = headers.iter().find(|it| it.0.eq_ignore_ascii_case(name));
    header.map(|(_, value)| value.as_str())
}

fn bytes(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

fn engine(name: &str) -> Result<EngineKind, String> {
    name.parse().map_err(|_| {
        let known: Vec<&str> = EngineKind::ALL.iter().map(|engine| engine.name()).collect();
        format!("the engines are {}", known.join(", "))
    })
}

fn header(text: &str) -> Result<(String, String), String> {
    // The name of a pseudo-header begins with a colon.
    let plain = text.trim_start_matches(':');
    let at = plain.find(':').ok_or("give NAME:VALUE")? + text.len() - plain.len();
    let (name, value) = text.split_at(at);
    Ok((name.trim().to_owned(), value[1..].trim().to_owned()))
}

/// The pool of the shipped configurations, whose name seeds the hashes.
const POOL: &str = "llm";

/// Bytes of a body: the default of `limits.requestBodyBytes`.
const BODY_BYTES_MAX: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::root;

    fn fixture(name: &str) -> Vec<u8> {
        bytes(&root().join("tests/fixtures").join(name)).unwrap()
    }

    #[test]
    fn a_page_is_read_as_the_engine_it_is_of() {
        let page = fixture("metrics/vllm-0.33.0-dp2.txt");
        let read = metrics(&page, None, None).unwrap();
        assert_eq!(read["engine"], "vllm");
        assert!(read["kv_usage"].as_f64() < read["kv_usage_max"].as_f64());
        let other = metrics(&page, Some(EngineKind::Tgi), None);
        assert_eq!(other.unwrap()["running"], Value::Null);
        for (rank, running) in [("0", json!(14.0)), ("1", json!(9.0)), ("2", Value::Null)] {
            let read = metrics(&page, None, Some(rank)).unwrap();
            assert_eq!(read["running"], running, "rank {rank}");
        }
    }

    #[test]
    fn a_page_of_nobody_says_nothing_and_why() {
        let read = metrics(b"<html></html>", None, None).unwrap();
        assert_eq!(read["waiting"], Value::Null);
        assert_eq!(read["warnings"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_body_is_read_by_its_path() {
        let body = fixture("requests/chat-02-multi-turn.json");
        let read = request(&body, "/v1/chat/completions", &[]);
        assert_eq!(read["shape"], "chat/completions");
        assert_eq!(read["prompts"].as_array().unwrap().len(), 1);
        assert_eq!(read["warnings"], json!([]));
        for (path, headers) in [
            ("/v1/unknown", vec![]),
            (
                "/v1/chat/completions",
                vec![header("Content-Encoding: gzip").unwrap()],
            ),
            (
                "/v1/chat/completions",
                vec![header("Content-Encoding: gzip, br").unwrap()],
            ),
        ] {
            let read = request(&body, path, &headers);
            assert_eq!(read["prompts"], json!([]));
            assert_eq!(read["warnings"].as_array().unwrap().len(), 1);
        }
    }

    #[test]
    fn a_compressed_body_is_read_like_the_same_body_plain() {
        let plain = request(&fixture("codings/body.json"), "/v1/messages", &[]);
        assert_eq!(plain["warnings"], json!([]));
        for (file, coding) in [
            ("body.gz", "gzip"),
            ("body.zst", "zstd"),
            ("body.zlib", "deflate"),
        ] {
            let headers = [("content-encoding".to_owned(), coding.to_owned())];
            let body = fixture(&format!("codings/{file}"));
            assert_eq!(request(&body, "/v1/messages", &headers), plain, "{coding}");
        }
    }

    #[test]
    fn a_form_is_read() {
        let body = fixture("requests/transcription-01.multipart");
        let read = request(&body, "/v1/audio/transcriptions", &[]);
        assert_eq!(read["model"], "openai/whisper-large-v3");
        assert_eq!(read["warnings"], json!([]));
    }

    #[test]
    fn a_response_is_read_by_its_content_type_or_its_first_byte() {
        let body = fixture("responses/chat-usage.sse");
        let type_of_events = header("content-type: text/event-stream").unwrap();
        for headers in [vec![], vec![type_of_events]] {
            let read = response(&body, "/v1/chat/completions", &headers);
            assert_eq!(read["usage"]["prompt"], 1318);
            assert_eq!(read["status_ok"], true);
            assert_eq!(read["error"], Value::Null);
        }
        let body = fixture("responses/error-404-model.json");
        let read = response(&body, "/v1/chat/completions", &[]);
        assert_eq!(
            (&read["error"], &read["status_ok"]),
            (&json!(404), &json!(false))
        );
    }

    #[test]
    fn every_response_is_shown_as_expected() {
        let json = |name: &str| -> Value {
            serde_json::from_slice(&fixture(&format!("responses/{name}"))).unwrap()
        };
        let (index, expected) = (json("index.json"), json("expected.json"));
        let (index, expected) = (index.as_object().unwrap(), expected.as_object().unwrap());
        assert!(index.keys().eq(expected.keys()));
        let files = fs::read_dir(root().join("tests/fixtures/responses")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let bodies = names.filter(|name| !name.starts_with("sim-") && name.contains('.'));
        assert_eq!(bodies.count(), index.len() + 2, "every body and two lists");
        for (file, entry) in index {
            let headers = [
                (":status".to_owned(), entry["status"].to_string()),
                (
                    "content-type".to_owned(),
                    entry["content_type"].as_str().unwrap().to_owned(),
                ),
            ];
            let path = expected[file]["path"].as_str().unwrap();
            let body = fixture(&format!("responses/{file}"));
            let read = response(&body, path, &headers);
            assert_eq!(read, expected[file]["read"], "{file}");
        }
    }

    #[test]
    fn a_status_that_is_no_success_tells_where_the_body_does_not() {
        for (status, is_ok) in [(":status: 200", true), (":status:404", false)] {
            let read = response(b"{}", "/", &[header(status).unwrap()]);
            assert_eq!(read["status_ok"], is_ok);
        }
    }
}
