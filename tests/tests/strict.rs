//! With `strict: true` a body that cannot be read is answered by us, and says no word of it.

use anyhow::{Context, Result, ensure};
use picker_tests::{CHAT, Draft, Stack};
use serde_json::json;
use sim::server::ServerOptions;
use xtask::compose::Destination;
use xtask::http::{Length, Response, chunk, fetch, head};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_json_is_refused_with_its_byte_and_none_of_its_words() -> Result<()> {
    let stack = strict().await?;
    let broken = format!(
        r#"{{"model":"SECRET","messages":[{{"content":"{}""#,
        "SECRET ".repeat(30_000)
    );
    let at = broken.len();
    let broken = broken + ":" + &"SECRET".repeat(100);
    for (path, code, kind) in [
        (CHAT, "/error/code", "/error/type"),
        ("/v1/messages", "/error/type", "/error/type"),
        ("/generate", "/code", "/type"),
    ] {
        for piece in [99, 100_000] {
            let response = send(&stack, path, &[], broken.as_bytes(), piece).await?;
            let answer = response.json()?;
            assert_eq!(response.status, 400, "{path}: {answer}");
            ensure!(answer.pointer(code).is_some(), "{path}: {answer}");
            assert_eq!(answer.pointer(kind), Some(&json!("invalid_request_error")));
            let text = response.text();
            ensure!(text.contains(&format!("at byte {at},")), "{path}: {text}");
            let reason = response.header("x-llm-d-request-dropped-reason");
            assert_eq!(reason, Some("rejected-unreadable-body"), "{path}");
            ensure!(!text.contains("SECRET") && text.len() < 1024, "{text}");
        }
    }
    assert_eq!(stack.served().await?, [0]);
    counted(&stack, [6, 6]).await?;
    let line = stack.wait_for_line(&["/generate", " 400 "]).await?;
    ensure!(line.contains("refused=rejected-unreadable-body"), "{line}");
    let stats = fetch(stack.proxy.admin(), "/stats").await?.text();
    ensure!(!stats.contains("SECRET"), "{stats}");
    ensure!(!stack.log()?.contains("SECRET"), "{}", stack.log()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_server_can_judge_reaches_one() -> Result<()> {
    let stack = strict().await?;
    let fine = br#"{"vendor":{"a":[1e999]},"model":5,"messages":"text","stream":"yes"}"#;
    let json = fine.as_slice();
    let bomb = include_bytes!("../fixtures/codings/window-16m.zst").as_slice();
    for (path, coding, body) in [
        (CHAT, "identity", json),
        (CHAT, "zstd", &zstd(json)),
        (CHAT, "compress", b"not read"),
        (CHAT, "gzip, br", b"not read"),
        (CHAT, "zstd", bomb),
        ("/upload", "identity", b"{not read"),
    ] {
        let response = send(&stack, path, &[("content-encoding", coding)], body, 9).await?;
        let by = response.header("x-sim-endpoint");
        ensure!(by.is_some(), "{coding}: {}", response.text());
    }
    // Two models, two codings and a window.
    counted(&stack, [0, 5]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compressed_body_is_refused_with_the_byte_of_its_text() -> Result<()> {
    let stack = strict().await?;
    let broken = br#"{"messages":[}"#;
    for (coding, body, clause) in [
        ("zstd", zstd(broken), "is not JSON at byte 13,"),
        ("gzip", zstd(broken), "is not of its content coding ("),
        ("br", zstd(broken), "is not of its content coding ("),
        ("zstd", broken.to_vec(), "is not of its content coding ("),
    ] {
        let response = send(&stack, CHAT, &[("content-encoding", coding)], &body, 5).await?;
        assert_eq!(response.status, 400, "{coding}");
        let text = response.text();
        ensure!(text.contains(clause), "{coding}: {text}");
    }
    assert_eq!(stack.served().await?, [0]);
    Ok(())
}

async fn strict() -> Result<Stack> {
    let options = ServerOptions {
        accept_unknown: true,
        ..ServerOptions::default()
    };
    let mut draft = Draft::new(Destination::OriginalDst, vec![options]).await?;
    draft.document["strict"] = json!(true);
    draft.start().await
}

/// Posts a body in chunks of so many bytes. A refusal may come before the end.
async fn send(
    stack: &Stack,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
    piece: usize,
) -> Result<Response> {
    let mut connection = stack.connect().await?;
    let mut bytes = head("POST", path, headers, Length::Chunked);
    for piece in body.chunks(piece) {
        bytes.extend(chunk(piece));
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    let sent = connection.send(&bytes).await;
    let response = connection.response(false).await;
    response.with_context(|| format!("sending: {sent:?}"))
}

/// A zstd frame that holds `text`, of at most 255 bytes, as it is.
fn zstd(text: &[u8]) -> Vec<u8> {
    let magic = [0x28, 0xB5, 0x2F, 0xFD];
    // One segment whose length takes one byte; one last block of the raw kind.
    let length = text.len() as u8;
    let block = (u32::from(length) << 3 | 1).to_le_bytes();
    [magic.as_slice(), &[0x20, length], &block[..3], text].concat()
}

/// Waits until so many requests were refused for their body, and so many bodies not understood.
async fn counted(stack: &Stack, [refused, unreadable]: [u64; 2]) -> Result<()> {
    let reason = "refusals_total;pool=llm;reason=rejected-unreadable-body";
    stack
        .wait_for_count("unreadable_bodies_total;pool=llm", unreadable)
        .await?;
    stack.wait_for_count(reason, refused).await
}
