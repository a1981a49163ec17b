//! A body that is longer plain than Envoy holds, and whose model gets another name.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use picker_tests::recorder::Recorder;
use picker_tests::{CHAT, DESTINATIONS, Draft, chat_body};
use serde_json::json;
use tokio::time::sleep;
use xtask::compose::Destination;
use xtask::http::{Length, head};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_long_for_envoy_once_it_is_plain_ends_no_worker() -> Result<()> {
    for destination in DESTINATIONS {
        let recorder = Recorder::start().await?;
        let mut draft = Draft::with_endpoints(destination, &[recorder.address()])?;
        draft.pool()?["modelRewrites"] = json!([{"targets": [{"modelRewrite": "base"}]}]);
        let manager = draft.bootstrap.manager_mut("traffic")?;
        manager["route_config"]["virtual_hosts"][0]["request_body_buffer_limit"] = json!(200_000);
        let stack = draft.start().await?;
        let long = gzip(&chat_body(&"a megabyte ".repeat(100_000), 1))?;
        let short = gzip(&chat_body("short", 1))?;
        let headers = [("content-encoding", "gzip")];
        for pieces in [1, 2, 5] {
            for (body, is_long) in [(&long, true), (&short, false)] {
                let mut connection = stack.connect().await?;
                let length = Length::of(body);
                connection
                    .send(&head("POST", CHAT, &headers, length))
                    .await?;
                for piece in body.chunks(body.len().div_ceil(pieces)) {
                    connection.send(piece).await?;
                    sleep(Duration::from_millis(20)).await;
                }
                let response = connection.response(false).await?;
                let status = if is_long { 413 } else { 200 };
                ensure!(
                    response.status == status,
                    "{destination:?}, in {pieces}: {} {}",
                    response.status,
                    response.text()
                );
                assert_eq!(recorder.take().len(), usize::from(!is_long));
            }
        }
        stack.wait_until_idle().await?;
        assert_eq!(stack.stat("wasm.picker.vm_reload_success").await?, 0);
    }
    Ok(())
}

fn gzip(body: &str) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(body.as_bytes())?;
    Ok(encoder.finish()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_one_model_is_left_also_where_it_has_its_name_already() -> Result<()> {
    let recorder = Recorder::start().await?;
    let mut draft = Draft::with_endpoints(Destination::OriginalDst, &[recorder.address()])?;
    draft.pool()?["modelRewrites"] = json!([{"targets": [{"modelRewrite": "base"}]}]);
    let stack = draft.start().await?;
    for (sent, expected) in [
        (
            r#"{"model":"x","a":1,"model":"base"}"#,
            r#"{"a":1,"model":"base"}"#,
        ),
        (
            r#"{"model":"x","model":"y","a":1}"#,
            r#"{"model":"base","a":1}"#,
        ),
        (r#"{"model":"base","a":1}"#, r#"{"model":"base","a":1}"#),
        (r#"{ }"#, r#"{"model":"base" }"#),
    ] {
        let response = stack.request("POST", CHAT, &[], sent.as_bytes()).await?;
        ensure!(response.status == 200, "{sent}: {}", response.text());
        assert_eq!(recorder.take_one()?.body, expected, "{sent}");
    }
    let many = format!("{{{}}}", [r#""model":"x""#; 9].join(","));
    let response = stack.request("POST", CHAT, &[], many.as_bytes()).await?;
    ensure!(response.status == 400, "{}", response.text());
    let reason = response.header("x-llm-d-request-dropped-reason");
    assert_eq!(reason, Some("rejected-unclear-model"));
    Ok(())
}
