//! No bytes of a client end a worker, and the words of a prompt are seen by the servers alone.

use anyhow::{Result, ensure};
use picker_tests::{CHAT, Draft, Stack, chat_body, requests, servers};
use serde_json::json;
use xtask::compose::Destination;
use xtask::http::{Length, fetch, head};

#[tokio::test(flavor = "multi_thread")]
async fn headers_and_bodies_that_make_no_sense_are_routed_like_others() -> Result<()> {
    let draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    let stack = draft.start().await?;
    let mut sent = 0;
    for header in [
        &b"user-agent: \xff\xfe"[..],
        b"content-encoding: \xff",
        b"content-type: \xc3\x28",
        b"x-gateway-destination-endpoint: \xff",
        b"x-gateway-destination-endpoint-subset: \x80\x81",
        b"authorization: Bearer \xf0\x28\x8c\x28",
    ] {
        let mut bytes = head("POST", CHAT, &[], Length::Known(2));
        let end = bytes.len() - 2;
        bytes.splice(end..end, [header, b"\r\n"].concat());
        bytes.extend_from_slice(b"{}");
        reaches_a_server(&stack, &bytes, &String::from_utf8_lossy(header)).await?;
        sent += 1;
    }
    let deep = [b"{\"messages\":".as_slice(), &b"[".repeat(100_000)].concat();
    for body in [
        b"\0".as_slice(),
        b"\xef\xbb\xbf{}",
        b"{\"model\":\"\xff\xff\",\"messages\":[]}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"cut",
        b"{\"max_tokens\":1e999,\"messages\":null}",
        b"[]",
        &deep,
    ] {
        let mut bytes = head("POST", CHAT, &[], Length::Known(body.len()));
        bytes.extend_from_slice(body);
        let shown: String = String::from_utf8_lossy(body).chars().take(60).collect();
        reaches_a_server(&stack, &bytes, &shown).await?;
        sent += 1;
    }
    let mut seen = 0;
    for server in &stack.servers {
        seen += requests(server).await?.len();
    }
    assert_eq!(seen, sent);
    assert_eq!(stack.stat("wasm.picker.vm_reload_success").await?, 0);
    stack.wait_until_idle().await?;
    Ok(())
}

/// Sends bytes; whatever the server answers, a server must have answered.
async fn reaches_a_server(stack: &Stack, bytes: &[u8], what: &str) -> Result<()> {
    let mut connection = stack.connect().await?;
    connection.send(bytes).await?;
    let response = connection.response(false).await?;
    let by = response.header("x-sim-endpoint");
    ensure!(
        by.is_some(),
        "{what}: {} {}",
        response.status,
        response.text()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_a_prompt_and_a_clients_key_are_in_no_log_stat_page_or_answer() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
    draft.pool()?["limits"] = json!({"requestBodyBytes": 100_000});
    // All that the picker and the host's own calls have to say.
    draft.arguments = &["--component-log-level", "wasm:trace"];
    let stack = draft.start().await?;
    let secrets = [
        ("authorization", "Bearer MARKER"),
        ("cookie", "session=MARKER"),
        ("x-gateway-destination-endpoint", "MARKER"),
        ("content-encoding", "MARKER"),
        ("content-type", "MARKER"),
    ];
    let chat = chat_body(&"MARKER in a prompt. ".repeat(100), 1);
    let mut requests: Vec<(Vec<(&str, &str)>, String)> = secrets
        .iter()
        .map(|header| (vec![*header], chat.clone()))
        .collect();
    let bodies = [
        chat,
        r#"{"model":"MARKER","messages":[{"role":"user","content":"MARKER"#.to_owned(),
        r#"{"MARKER":MARKER}"#.to_owned(),
        format!(r#"{{"messages":"{}"}}"#, "MARKER ".repeat(20_000)),
    ];
    requests.extend(bodies.map(|body| (secrets[..2].to_vec(), body)));
    for (headers, body) in requests {
        let response = stack
            .request("POST", CHAT, &headers, body.as_bytes())
            .await?;
        let names = response
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let ours = if response.header("x-sim-endpoint").is_some() {
            String::new()
        } else {
            response.text()
        };
        let told = names.chain([ours]).find(|text| text.contains("MARKER"));
        ensure!(told.is_none(), "{headers:?}: {told:?}");
    }
    let marked = [("authorization", "Bearer MARKER")];
    let response = stack
        .request("POST", "/sleep?MARKER", &marked, b"MARKER")
        .await?;
    ensure!(
        response.status == 403 && !response.text().contains("MARKER"),
        "{}",
        response.text()
    );
    stack.wait_for_line(&["413"]).await?;
    // Envoy's access log names the path that the client asked for.
    let log = stack.log()?.replace("/sleep?MARKER", "");
    let admin = stack.proxy.admin();
    for (what, text) in [
        ("the log", log),
        ("the stats", fetch(admin, "/stats").await?.text()),
        (
            "the metrics",
            fetch(admin, "/stats/prometheus").await?.text(),
        ),
        (
            "the page",
            fetch(stack.addresses.pages, "/picker/state").await?.text(),
        ),
    ] {
        let line = text.lines().find(|line| line.contains("MARKER"));
        ensure!(
            !text.is_empty() && line.is_none(),
            "{what} shows it: {line:?}"
        );
    }
    Ok(())
}
