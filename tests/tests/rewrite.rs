//! A model that gets another name in the body, and nothing else that changes there.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Version;
use picker_tests::held::Held;
use picker_tests::http2::{self, End};
use picker_tests::queueing::{all_served, stream_body};
use picker_tests::recorder::{Recorded, Recorder};
use picker_tests::{CHAT, DESTINATIONS, Draft, MODEL, Stack, eventually};
use serde_json::{Value, json};
use xtask::compose::Destination;
use xtask::http::Connection;

#[tokio::test(flavor = "multi_thread")]
async fn a_longer_or_shorter_name_leaves_the_next_request_of_the_connection_alone() -> Result<()> {
    for destination in DESTINATIONS {
        let (recorder, stack) = recorded(destination, &json!([])).await?;
        let mut connection = stack.connect().await?;
        let mut connections = Vec::new();
        for (model, name) in NAMES.iter().chain(&[("other", "other")]).chain(&NAMES) {
            let came = ask(&recorder, &mut connection, CHAT, &body(model)).await?;
            is_sent(&came, &body(name), name)?;
            connections.push(came.connection);
        }
        connections.dedup();
        ensure!(connections.len() == 1, "connections {connections:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_is_told_where_the_client_tells_one() -> Result<()> {
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let recorder = Recorder::start().await?;
        let mut draft = renaming(Destination::OriginalDst, &recorder, &json!([]))?;
        if version == Version::HTTP_2 {
            let cluster = draft.bootstrap.cluster_mut("llm")?;
            let options = "/typed_extension_protocol_options/\
                           envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
            let options = cluster.pointer_mut(options).context("no options")?;
            options["explicit_http_config"] = json!({"http2_protocol_options": {}});
        }
        let stack = draft.start().await?;
        for (model, name) in NAMES {
            let (sent, expected) = (body(model), body(name));
            let came = in_chunks(&stack, &recorder, &sent).await?;
            assert_eq!(came.body, expected, "chunked to {version:?}");
            assert_eq!(came.header("content-length"), None);
            for end in [
                End::WithData,
                End::EmptyFrame,
                End::Trailers,
                End::SingleBytes,
                End::SingleBytesAndTrailers,
            ] {
                let client = http2::connect(&stack).await?;
                let length = sent.len().to_string();
                for headers in [[].as_slice(), &[("content-length", length.as_str())]] {
                    let (response, stream) = http2::open(&client, headers)?;
                    http2::send(stream, &sent, end).await?;
                    let (status, text) = http2::finish(response).await?;
                    ensure!(status == 200, "{end:?}: {status} {text}");
                    let came = recorder.take_one()?;
                    let what = format!("{end:?} to {version:?}");
                    assert_eq!(came.version, version, "{what}");
                    assert_eq!(came.body, expected, "{what}");
                    let told = (!headers.is_empty()).then(|| expected.len().to_string());
                    assert_eq!(came.header("content-length"), told.as_deref(), "{what}");
                    let ends = matches!(end, End::Trailers | End::SingleBytesAndTrailers);
                    if version == Version::HTTP_2 {
                        assert_eq!(came.trailers.is_some(), ends, "{what}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_with_a_coding_goes_on_plain() -> Result<()> {
    let (recorder, stack) = recorded(Destination::OriginalDst, &every_model("base")).await?;
    let plain = std::fs::read(fixture("body.json"))?;
    let value: Value = serde_json::from_slice(&plain)?;
    let model = value["model"].as_str().context("a model")?;
    let expected = String::from_utf8(plain)?.replacen(model, "base", 1);
    let mut connection = stack.connect().await?;
    for (coding, file) in [
        ("gzip", "body.gz"),
        ("deflate", "body.zlib"),
        ("br", "body-window-22.br"),
        ("zstd", "body.zst"),
        ("identity", "body.json"),
    ] {
        let headers = [("content-encoding", coding)];
        let coded = std::fs::read(fixture(file))?;
        let response = connection
            .request("POST", "/v1/messages", &headers, &coded)
            .await?;
        ensure!(response.status == 200, "{coding}: {}", response.text());
        let came = recorder.take_one()?;
        is_sent(&came, &expected, coding)?;
        let told = (coding == "identity").then_some(coding);
        assert_eq!(came.header("content-encoding"), told);
    }
    // What cannot be read goes on as it came.
    let headers = [("content-encoding", "gzip")];
    let response = connection.request("POST", CHAT, &headers, b"{}").await?;
    ensure!(response.status == 200, "{}", response.text());
    let came = recorder.take_one()?;
    is_sent(&came, "{}", "not gzip")?;
    assert_eq!(came.header("content-encoding"), Some("gzip"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_api_gets_the_other_name() -> Result<()> {
    let (recorder, stack) = recorded(Destination::OriginalDst, &json!([])).await?;
    let mut connection = stack.connect().await?;
    let json = |model: &str| format!("{{\"messages\":[], \"model\":\"{model}\",\"x\":1E400}}");
    let adapter = |model: &str| format!("{{\"text\":\"\",\"lora_path\":\"{model}\"}}");
    let form = |model: &str| {
        let head = "--b\"c\r\nContent-Disposition: form-data; name=";
        let sound = "\r\n--b\"d sound".repeat(30_000);
        format!(
            "{head}file; filename=a\r\n\r\n{sound}\r\n{head}\"model\"\r\n\r\n{model}\r\n--b\"c--\r\n"
        )
    };
    let (model, name) = NAMES[0];
    for path in [
        "/v1/chat/completions",
        "/v1/chat/completions/render",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses?x=y",
        "/v1/conversations",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/images/generations",
        "/rerank",
        "/score",
        "/classify",
        "/pooling",
        "/tokenize",
        "/inference/v1/generate",
    ] {
        let came = ask(&recorder, &mut connection, path, &json(model)).await?;
        is_sent(&came, &json(name), path)?;
    }
    let came = ask(&recorder, &mut connection, "/generate", &adapter(model)).await?;
    is_sent(&came, &adapter(name), "/generate")?;
    let path = "/v1/audio/transcriptions";
    let came = ask(&recorder, &mut connection, path, &form(model)).await?;
    is_sent(&came, &form(name), path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_missing_is_put_in_and_several_become_one() -> Result<()> {
    let (recorder, stack) = recorded(Destination::OriginalDst, &every_model("base")).await?;
    let mut connection = stack.connect().await?;
    for (sent, expected) in [
        ("{}", r#"{"model":"base"}"#),
        ("{ }", r#"{"model":"base" }"#),
        (
            r#"{"messages":[{"role":"user","content":"hi"}]}"#,
            r#"{"model":"base","messages":[{"role":"user","content":"hi"}]}"#,
        ),
        (r#"{"model":null}"#, r#"{"model":"base"}"#),
        (
            r#"{"model":"a","x":1,"model":"b"}"#,
            r#"{"x":1,"model":"base"}"#,
        ),
        // No JSON: the server says what is wrong.
        (r#"{"model":"a","#, r#"{"model":"a","#),
    ] {
        let came = ask(&recorder, &mut connection, CHAT, sent).await?;
        is_sent(&came, expected, sent)?;
    }
    let sent = format!("{{{}}}", ["\"model\":\"a\""; 9].join(","));
    let response = stack.request("POST", CHAT, &[], sent.as_bytes()).await?;
    assert_eq!(response.status, 400, "{}", response.text());
    ensure!(recorder.take().is_empty());
    let part = "--X\r\nContent-Disposition: form-data; name=";
    let rest = format!("{part}file\r\n\r\nsound\r\n--X--");
    let came = ask(
        &recorder,
        &mut connection,
        "/v1/audio/transcriptions",
        &rest,
    )
    .await?;
    is_sent(
        &came,
        &format!("{part}\"model\"\r\n\r\nbase\r\n{rest}"),
        "form",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_is_sent_again_with_the_other_name() -> Result<()> {
    for destination in DESTINATIONS {
        let recorder = Recorder::start().await?;
        let mut draft = renaming(destination, &recorder, &json!([]))?;
        let manager = draft.bootstrap.manager_mut("traffic")?;
        manager["route_config"]["virtual_hosts"][0]["retry_policy"] =
            json!({"retry_on": "5xx", "num_retries": 1});
        let stack = draft.start().await?;
        let long = |model: &str| json!({"model": model, "x": "two megabytes ".repeat(150_000)});
        for (model, name) in NAMES {
            let (sent, expected) = (long(model).to_string(), long(name).to_string());
            for (coding, sent) in [("identity", sent.clone().into()), ("gzip", gzip(&sent)?)] {
                recorder.answer_with([503]);
                let headers = [("content-encoding", coding)];
                let response = stack.request("POST", CHAT, &headers, &sent).await?;
                ensure!(response.status == 200, "{}", response.text());
                let came = recorder.take();
                ensure!(came.len() == 2, "{} attempts", came.len());
                for came in came {
                    is_sent(&came, &expected, coding)?;
                }
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_waited_is_read_and_sent_with_the_other_name() -> Result<()> {
    let held = Held::start(1).await?;
    let mut draft = Draft::with_endpoints(Destination::OriginalDst, held.addresses())?;
    draft.let_wait(1, json!({}))?;
    draft.pool()?["modelRewrites"] = rules(&json!([]));
    let stack = draft.start().await?;
    let (model, name) = NAMES[0];
    // The first is too long to be kept, and is read again when its turn comes.
    let bodies = [20_000, 50].map(|count| stream_body(&"as long as it takes ".repeat(count)));
    let mut asked = vec![stack.ask(&[])];
    held.wait_for(1).await?;
    for body in &bodies {
        let [alias, other] = [model, name].map(|it| body.replacen(MODEL, it, 1));
        let headers = [("content-encoding", "gzip")];
        asked.push(stack.ask_for(CHAT, &headers, gzip(&alias)?));
        stack.wait_for_queue(0, asked.len() as u64 - 1).await?;
        asked.push(stack.ask_for(CHAT, &[], alias));
        stack.wait_for_queue(0, asked.len() as u64 - 1).await?;
        asked.push(stack.ask_for(CHAT, &[], other));
        stack.wait_for_queue(0, asked.len() as u64 - 1).await?;
    }
    let all = asked.len();
    for came in 2..=all {
        held.let_go(1);
        held.wait_for(came).await?;
    }
    held.let_go(1);
    all_served(asked).await?;
    let came = held.came();
    let mut came = came.iter().skip(1).map(|it| it.body.as_deref());
    for body in &bodies {
        let expected = body.replacen(MODEL, name, 1);
        for _ in 0..3 {
            let body = came.next().flatten();
            ensure!(body == Some(expected.as_bytes()), "another body came");
        }
    }
    // Who asks for the model by its own name finds what was brought under the other.
    let matched = || {
        let log = stack.log().unwrap_or_default();
        let of = |line: &str| {
            let said = line.split_once(" matched=")?.1.split(' ').next()?;
            let (matched, blocks) = said.split_once('/')?;
            let number = |text: &str| text.parse::<usize>().ok();
            Some((number(matched)?, number(blocks)?))
        };
        log.lines().filter_map(of).collect::<Vec<_>>()
    };
    ensure!(eventually(async || matched().len() == all).await);
    let found = matched();
    // All but the first two, of which one has no block; and the short ones begin like the long.
    let all = found
        .iter()
        .filter(|(matched, blocks)| 0 < *blocks && matched == blocks);
    ensure!(all.count() == 5, "{found:?}");
    stack.wait_until_empty(&[0]).await
}

/// Models that clients ask for, and what the servers call them: longer, as long, shorter.
const NAMES: [(&str, &str); 3] = [
    ("alias", "a-name-that-is-longer-than-the-one-before"),
    ("equal", "equil"),
    ("a-longer-alias", "s"),
];

/// Rules for these, and then `more`.
fn rules(more: &Value) -> Value {
    let rule = |(model, name): &(&str, &str)| {
        json!({"matches": [{"model": {"type": "Exact", "value": model}}],
               "targets": [{"modelRewrite": name}]})
    };
    let more = more.as_array().into_iter().flatten().cloned();
    NAMES.iter().map(rule).chain(more).collect()
}

/// A rule for all that ask for another model, or for none.
fn every_model(name: &str) -> Value {
    json!([{"targets": [{"modelRewrite": name}]}])
}

fn renaming(destination: Destination, recorder: &Recorder, more: &Value) -> Result<Draft> {
    let mut draft = Draft::with_endpoints(destination, &[recorder.address()])?;
    draft.pool()?["modelRewrites"] = rules(more);
    Ok(draft)
}

async fn recorded(destination: Destination, more: &Value) -> Result<(Recorder, Stack)> {
    let recorder = Recorder::start().await?;
    let stack = renaming(destination, &recorder, more)?.start().await?;
    Ok((recorder, stack))
}

/// A body that is hard to write anew without a change.
fn body(model: &str) -> String {
    format!(
        "{{\n  \"seed\": 9007199254740993, \"x\": 0.1000, \"y\": 1E400,\n  \
         \"tools\": [{{\"type\":\"function\", \"required\": [], \"properties\": {{\"b\":1,\"a\":2}}}}],\n  \
         \"m\\u006fdel\" : \"{model}\" ,\n  \"metadata\": {{\"model\": \"alias\"}}\n}}\n"
    )
}

/// What comes of a body that is sent on `connection`.
async fn ask(
    recorder: &Recorder,
    connection: &mut Connection,
    path: &str,
    body: &str,
) -> Result<Recorded> {
    let response = connection
        .request("POST", path, &[], body.as_bytes())
        .await?;
    ensure!(response.status == 200, "{path}: {}", response.text());
    recorder.take_one().with_context(|| path.to_owned())
}

/// What comes of a body that is sent in chunks, and without its length.
async fn in_chunks(stack: &Stack, recorder: &Recorder, body: &str) -> Result<Recorded> {
    let mut connection = stack.connect().await?;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n");
    connection.send(head.as_bytes()).await?;
    for chunk in body.as_bytes().chunks(50) {
        let size = format!("{:x}\r\n", chunk.len());
        connection
            .send(&[size.as_bytes(), chunk, b"\r\n"].concat())
            .await?;
        tokio::task::yield_now().await;
    }
    connection.send(b"0\r\n\r\n").await?;
    let response = connection.response(false).await?;
    ensure!(response.status == 200, "{}", response.text());
    recorder.take_one()
}

/// Whether the body is as expected, and as long as its head says.
fn is_sent(came: &Recorded, expected: &str, what: &str) -> Result<()> {
    let length = came.header("content-length").context("no length")?;
    ensure!(
        came.body == expected && length == expected.len().to_string(),
        "{what}: {} bytes came, not {}, and {length} were told",
        came.body.len(),
        expected.len()
    );
    Ok(())
}

fn gzip(body: &str) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes())?;
    Ok(encoder.finish()?)
}

fn fixture(name: &str) -> std::path::PathBuf {
    xtask::workspace::root()
        .join("tests/fixtures/codings")
        .join(name)
}
