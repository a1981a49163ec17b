//! What has waited is sent as it came, and chosen for by what is in it.

use std::io::Write;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use picker_tests::held::Held;
use picker_tests::http2::{self, End};
use picker_tests::queueing::{all_served, answers, stream_body};
use picker_tests::{CHAT, DESTINATIONS, Draft, eventually};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_have_waited_come_as_they_were_sent_and_to_who_holds_their_prompt() -> Result<()>
{
    for destination in DESTINATIONS {
        let held = Held::start(1).await?;
        let mut draft = Draft::with_endpoints(destination, held.addresses())?;
        draft.concurrency = 4;
        draft.let_wait(1, json!({}))?;
        let stack = draft.start().await?;
        let mut asked = vec![stack.ask(&[])];
        held.wait_for(1).await?;
        let long = stream_body(&"as long as two megabytes ".repeat(84_000));
        let packed = stream_body(&"less of it is sent ".repeat(84_000));
        let zipped = gzip(packed.as_bytes())?;
        // Long enough for some blocks, and not to be read again.
        let short = stream_body(&"some words ".repeat(200));
        let bodies: [(&str, &[u8]); 3] = [
            ("identity", long.as_bytes()),
            ("gzip", &zipped),
            ("identity", short.as_bytes()),
        ];
        let mut expected = Vec::new();
        for (coding, body) in bodies.iter().flat_map(|it| [it, it]) {
            let headers = [("content-encoding", *coding)];
            asked.push(stack.ask_for(CHAT, &headers, *body));
            expected.push(body.to_vec());
            stack.wait_for_queue(0, expected.len() as u64).await?;
        }
        for came in 2..=7 {
            held.let_go(1);
            held.wait_for(came).await?;
        }
        held.let_go(1);
        for answer in answers(asked).await? {
            assert_eq!(answer.response.status, 200);
        }
        for (came, expected) in held.came().iter().skip(1).zip(&expected) {
            let body = came.body.as_deref().unwrap_or_default();
            ensure!(
                body == expected,
                "{} of {} bytes",
                body.len(),
                expected.len()
            );
        }
        // The second of each two finds what the first has brought.
        let matched = || {
            let log = stack.log().unwrap_or_default();
            let of = |line: &str| {
                let said = line.split_once(" matched=")?.1.split(' ').next()?;
                let (matched, blocks) = said.split_once('/')?;
                Some((
                    matched.parse::<usize>().ok()?,
                    blocks.parse::<usize>().ok()?,
                ))
            };
            log.lines().filter_map(of).collect::<Vec<_>>()
        };
        ensure!(eventually(async || matched().len() == 7).await);
        let all = matched();
        // Of the long ones as much as fits into the endpoint's cache.
        let found = all.iter().filter(|(matched, blocks)| 2 * matched > *blocks);
        ensure!(found.count() == 3, "{all:?}");
        stack.wait_until_empty(&[0]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_waited_goes_where_filter_state_says() -> Result<()> {
    let held = Held::start(2).await?;
    let mut draft = Draft::queueing(&held, 4, 1, json!({}))?;
    draft.document["destination"] = json!({"via": "filterState"});
    let manager = draft.bootstrap.manager_mut("traffic")?;
    manager["route_config"]["virtual_hosts"] = json!([
        {"name": "llm", "domains": ["*"], "routes": [
            {"match": {"prefix": "/"}, "route": {"cluster": "llm", "timeout": "0s"}}]},
    ]);
    let stack = draft.start().await?;
    let mut asked: Vec<_> = (0..2).map(|_| stack.ask(&[])).collect();
    held.wait_for(2).await?;
    asked.extend((0..20).map(|_| stack.ask(&[])));
    stack.wait_for_queue(0, 20).await?;
    held.let_go(22);
    all_served(asked).await?;
    ensure!(held.most() == 2, "{} at once", held.most());
    stack.wait_until_empty(&[0]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_with_trailers_or_an_empty_frame_waits_as_well() -> Result<()> {
    let held = Held::start(1).await?;
    let stack = Draft::queueing(&held, 2, 1, json!({}))?.start().await?;
    let running = stack.ask(&[]);
    held.wait_for(1).await?;
    let ends = [
        End::WithData,
        End::EmptyFrame,
        End::Trailers,
        End::SingleBytesAndTrailers,
    ];
    let body = stream_body(&"words ".repeat(300));
    let mut responses = Vec::new();
    for (place, end) in ends.into_iter().enumerate() {
        let client = http2::connect(&stack).await?;
        let (response, stream) = http2::open(&client, &[])?;
        http2::send(stream, &body, end).await?;
        stack.wait_for_queue(0, place as u64 + 1).await?;
        responses.push((client, response, end));
    }
    held.let_go(5);
    for (_client, response, end) in responses {
        let (status, text) = http2::finish(response).await?;
        ensure!(status == 200, "{end:?}: {status} {text}");
    }
    all_served(vec![running]).await?;
    for came in held.came().iter().skip(1) {
        assert_eq!(came.body.as_deref(), Some(body.as_bytes()));
    }
    stack.wait_until_empty(&[0]).await
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
