//! Answers show the name that the client asked for, and are else as they were.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use picker_tests::http2::{connect, finish, open};
use picker_tests::scripted::{SCRIPT, Script, Scripted};
use picker_tests::{CHAT, Draft, Stack};
use serde_json::{Value, json};
use xtask::compose::Destination;
use xtask::http::{Connection, Response};

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_every_api_show_the_name_of_the_client() -> Result<()> {
    let files = [
        "chat.json",
        "chat-tool-calls.json",
        "chat-sglang.json",
        "completions.json",
        "embeddings.json",
        "messages.json",
        "responses.json",
        "rerank.json",
        "score.json",
    ];
    let scripts = files.map(|file| sized("200 OK", JSON, &fixture(file)));
    let (server, stack) = start(scripts.to_vec()).await?;
    // All on one connection, so each answer has to end where it says.
    let mut connection = stack.connect().await?;
    for (number, file) in files.iter().enumerate() {
        let answer = ask(&mut connection, number).await?;
        ensure!(answer.status == 200, "{file}: status {}", answer.status);
        is_renamed(&answer.text(), file)?;
        let length = answer.header("content-length");
        ensure!(length.is_none(), "{file}: a length of {length:?}");
    }
    for head in server.heads() {
        ensure!(!head.contains("accept-encoding"), "{head}");
    }
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_every_api_show_it_however_they_are_cut() -> Result<()> {
    let files = [
        "chat-usage.sse",
        "chat-crlf.sse",
        "chat-keepalive.sse",
        "chat-reasoning-tools.sse",
        "completions-usage.sse",
        "messages.sse",
        "responses.sse",
    ];
    let mut scripts = Vec::new();
    for file in files {
        for piece_bytes in [1, 100, usize::MAX] {
            scripts.push(Script {
                piece_bytes,
                ..chunked(&fixture(file), piece_bytes)
            });
        }
    }
    let count = scripts.len();
    let (_server, stack) = start(scripts).await?;
    let mut connection = stack.connect().await?;
    for number in 0..count {
        let file = files[number / 3];
        let answer = ask(&mut connection, number).await?;
        is_renamed(&answer.text(), file).context("HTTP/1")?;
        let number = number.to_string();
        // One each, for this client takes so many tiny frames on one for an attack.
        let client = connect(&stack).await?;
        let (response, mut stream) = open(&client, &[(SCRIPT, &number)])?;
        stream.send_data(Bytes::from(body()), true)?;
        let (status, text) = finish(response).await?;
        ensure!(status == 200, "{file}: status {status}");
        is_renamed(&text, file).context("HTTP/2")?;
    }
    let index: Value = serde_json::from_slice(&fixture("index.json"))?;
    let tokens = |file| index[file]["expect"]["prompt_tokens"].as_u64();
    let tokens: u64 = files.into_iter().filter_map(tokens).sum();
    // Six times each: as many as are counted of streams that nobody renames.
    let name = "prompt_tokens_total;pool=llm";
    stack.wait_for_count(name, 6 * tokens).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_nothing_to_rename_keeps_its_length_and_its_bytes() -> Result<()> {
    let gzip = include_bytes!("../fixtures/codings/body.gz");
    let error = fixture("error-400-validation.json");
    let scripts = vec![
        sized("200 OK", "application/json\r\ncontent-encoding: gzip", gzip),
        sized("200 OK", "text/plain", b"{\"model\":\"base\"}"),
        sized("204 No Content", JSON, b""),
        sized("400 Bad Request", JSON, &error),
        sized("200 OK", JSON, b"{\"model\":\"base\"}"),
    ];
    let (_server, stack) = start(scripts).await?;
    let mut connection = stack.connect().await?;
    let coded = ask(&mut connection, 0).await?;
    ensure!(coded.body == gzip, "{} bytes", coded.body.len());
    ensure!(coded.header("content-length").is_some(), "{coded:?}");
    let plain = ask(&mut connection, 1).await?;
    ensure!(plain.text() == "{\"model\":\"base\"}", "{plain:?}");
    ensure!(plain.header("content-length") == Some("16"), "{plain:?}");
    let empty = ask(&mut connection, 2).await?;
    ensure!(empty.status == 204 && empty.body.is_empty(), "{empty:?}");
    let refused = ask(&mut connection, 3).await?;
    ensure!(
        refused.status == 400 && refused.body == error,
        "{refused:?}"
    );
    let renamed = ask(&mut connection, 4).await?;
    ensure!(renamed.text() == "{\"model\":\"public\"}", "{renamed:?}");
    stack
        .wait_for_count("unrenamed_answers_total;pool=llm", 1)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_head_keeps_the_length_that_it_tells() -> Result<()> {
    let head = Script {
        bytes: b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 77\r\n\r\n"
            .to_vec(),
        piece_bytes: usize::MAX,
        closes: false,
    };
    let (_server, stack) = start(vec![head]).await?;
    let mut connection = stack.connect().await?;
    let headers = [(SCRIPT, "0")];
    for path in [CHAT, "/v1/models"] {
        let answer = connection.request("HEAD", path, &headers, b"").await?;
        ensure!(
            answer.header("content-length") == Some("77"),
            "{path}: {answer:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_cut_off_shows_what_came_of_it() -> Result<()> {
    let half = |head: &str, body: &str| Script {
        bytes: format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").into_bytes(),
        piece_bytes: usize::MAX,
        closes: true,
    };
    let scripts = vec![
        half(
            "content-type: application/json\r\ncontent-length: 1000",
            "{\"id\":\"a\",\"model\":\"ba",
        ),
        half(
            "content-type: text/event-stream\r\ntransfer-encoding: chunked",
            "14\r\ndata: {\"model\":\"base\r\n",
        ),
    ];
    let (_server, stack) = start(scripts).await?;
    for (number, expected) in [
        "{\"id\":\"a\",\"model\":\"public",
        "data: {\"model\":\"public",
    ]
    .iter()
    .enumerate()
    {
        let mut connection = stack.connect().await?;
        connection.send(&request(number)).await?;
        let (head, mut framing) = connection.head().await?;
        ensure!(head.status == 200, "status {}", head.status);
        let mut came = Vec::new();
        while let Ok(Some(piece)) = connection.piece(&mut framing).await {
            came.extend(piece);
        }
        ensure!(
            came == expected.as_bytes(),
            "{:?}",
            String::from_utf8_lossy(&came)
        );
    }
    stack.wait_until_idle().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_envoy_answers_itself_stays() -> Result<()> {
    let silent = Script {
        bytes: Vec::new(),
        piece_bytes: 1,
        closes: false,
    };
    let server = Scripted::start(vec![silent]).await?;
    let mut draft = draft(&server)?;
    let manager = draft.bootstrap.manager_mut("traffic")?;
    manager["local_reply_config"] = json!({"body_format": {
        "json_format": {"error": "%LOCAL_REPLY_BODY%", "code": "%RESPONSE_CODE%"},
    }});
    let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes");
    for route in routes.and_then(Value::as_array_mut).context("no routes")? {
        route["route"]["timeout"] = json!("0.3s");
    }
    let stack = draft.start().await?;
    let mut connection = stack.connect().await?;
    // On one connection, so each has to end where it says.
    for _ in 0..2 {
        let answer = ask(&mut connection, 0).await?;
        ensure!(answer.status == 504, "status {}", answer.status);
        let expected = json!({"error": "upstream request timeout", "code": 504});
        ensure!(answer.json()? == expected, "{}", answer.text());
    }
    stack.wait_until_idle().await?;
    Ok(())
}

async fn start(scripts: Vec<Script>) -> Result<(Scripted, Stack)> {
    let server = Scripted::start(scripts).await?;
    let stack = draft(&server)?.start().await?;
    Ok((server, stack))
}

/// A picker for whose clients `base` is `public`.
fn draft(server: &Scripted) -> Result<Draft> {
    let mut draft = Draft::with_endpoints(Destination::OriginalDst, &[server.address()])?;
    draft.pool()?["modelRewrites"] = json!([{
        "matches": [{"model": {"value": "public"}}],
        "targets": [{"modelRewrite": "base"}],
    }]);
    draft.concurrency = 1;
    Ok(draft)
}

async fn ask(connection: &mut Connection, number: usize) -> Result<Response> {
    connection.send(&request(number)).await?;
    connection.response(false).await
}

/// A chat that asks for the answer of this number.
fn request(number: usize) -> Vec<u8> {
    let number = number.to_string();
    let headers = [
        ("content-type", "application/json"),
        ("accept-encoding", "gzip, br"),
        (SCRIPT, &number),
    ];
    let body = body();
    let length = xtask::http::Length::of(body.as_bytes());
    let mut bytes = xtask::http::head("POST", CHAT, &headers, length);
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

fn body() -> String {
    json!({"model": "public", "messages": [{"role": "user", "content": "hello"}]}).to_string()
}

/// Fails unless `text` is the fixture with another name of the model.
fn is_renamed(text: &str, file: &str) -> Result<()> {
    let sent = String::from_utf8(fixture(file))?;
    // The first one is where it belongs, and nothing of these files says the same elsewhere.
    let (_, rest) = sent.split_once("\"model\":").context("no model")?;
    let model = rest.split('"').nth(1).context("no name")?;
    let mut expected = sent.clone();
    for blank in ["", " "] {
        let member = |name| format!("\"model\":{blank}\"{name}\"");
        expected = expected.replace(&member(model), &member("public"));
    }
    ensure!(text == expected, "{file} became {text}");
    Ok(())
}

fn fixture(file: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/responses");
    fs::read(directory.join(file)).unwrap_or_default()
}

/// An answer with a length.
fn sized(status: &str, content_type: &str, body: &[u8]) -> Script {
    let length = match status {
        "204 No Content" => String::new(),
        _ => format!("content-length: {}\r\n", body.len()),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n{length}\r\n");
    Script {
        bytes: [head.as_bytes(), body].concat(),
        piece_bytes: usize::MAX,
        closes: false,
    }
}

/// A stream in chunks of so many bytes.
fn chunked(body: &[u8], chunk_bytes: usize) -> Script {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let mut bytes = head.as_bytes().to_vec();
    for chunk in body.chunks(chunk_bytes) {
        bytes.extend(xtask::http::chunk(chunk));
    }
    bytes.extend(xtask::http::chunk(b""));
    Script {
        bytes,
        piece_bytes: usize::MAX,
        closes: false,
    }
}

const JSON: &str = "application/json";
