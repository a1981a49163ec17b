//! The server over real connections: answers, metrics, and what each fault looks like.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by a panic, its helpers too"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use sim::load::{Bodies, Failure, LoadOptions, LoadReport, Record, run_load};
use sim::server::{FaultChange, Faults, MetricsFault, RequestFault, Server, ServerOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A server that is a hundred times faster than an L4.
async fn start(options: ServerOptions) -> Server {
    Server::start(ServerOptions {
        time_scale: 100.0,
        ..options
    })
    .await
    .unwrap()
}

fn chat(user: &str, max_tokens: usize) -> Value {
    json!({"messages": [{"role": "user", "content": user}], "max_tokens": max_tokens})
}

/// Sends a request on a connection of its own and returns all that comes back.
async fn raw(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: sim\r\nx-test: yes\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8(answer).unwrap())
    };
    let answer = tokio::time::timeout(LIMIT, exchange)
        .await
        .unwrap()
        .unwrap_or_default();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|it| it.parse().ok())
        .unwrap_or_default();
    (status, body.to_owned())
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    raw(address, "GET", path, "").await
}

async fn get_json(address: SocketAddr, path: &str) -> Value {
    serde_json::from_str(&get(address, path).await.1).unwrap()
}

async fn post(address: SocketAddr, path: &str, body: &Value) -> (u16, String) {
    raw(address, "POST", path, &body.to_string()).await
}

/// Sends chats one after the other.
async fn chats(address: SocketAddr, bodies: &[Value]) -> Vec<Record> {
    load(address, bodies, |_| {}).await.records
}

async fn load(
    address: SocketAddr,
    bodies: &[Value],
    change: impl FnOnce(&mut LoadOptions),
) -> LoadReport {
    let bodies = bodies
        .iter()
        .map(|it| Bytes::from(it.to_string()))
        .collect();
    let mut options = LoadOptions::new(address, Bodies::List(bodies));
    options.request_timeout = LIMIT;
    change(&mut options);
    run_load(options).await.unwrap()
}

/// Waits until `/sim/state` shows the value.
async fn wait_for(address: SocketAddr, field: &str, value: u64) {
    let end = Instant::now() + LIMIT;
    loop {
        let state = get_json(address, "/sim/state").await;
        if state[field] == value {
            return;
        }
        assert!(Instant::now() < end, "{field} is not {value}: {state}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until the port takes connections, or refuses them.
async fn wait_for_port(address: SocketAddr, open: bool) {
    let end = Instant::now() + LIMIT;
    while TcpStream::connect(address).await.is_ok() != open {
        assert!(
            Instant::now() < end,
            "the port is not {}",
            if open { "open" } else { "closed" }
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn faults(metrics: &str, requests: &str) -> FaultChange {
    let mut faults = Faults {
        metrics: metrics.parse().unwrap(),
        ..Faults::default()
    };
    faults.set_requests(requests).unwrap();
    FaultChange {
        faults,
        ..FaultChange::default()
    }
}

#[tokio::test]
async fn a_prompt_sent_again_comes_from_the_cache_and_usage_metrics_and_state_agree() {
    let server = start(ServerOptions::default()).await;
    let address = server.address();
    // One token for the role, 252 for the text, three for the answer's role: 16 whole blocks.
    let body = chat(&"x".repeat(252 * 4), 4);
    let records = chats(address, &[body.clone(), body]).await;
    let cached: Vec<_> = records.iter().map(|it| it.usage.cached_tokens).collect();
    assert_eq!(cached, [0, 240]);
    assert!(
        records
            .iter()
            .all(|it| it.usage.prompt_tokens == 256 && it.is_success())
    );
    assert_eq!(records[0].endpoint, Some(address.to_string()));

    let page = get(address, "/metrics").await.1;
    for (name, value) in [
        ("prefix_cache_queries_total", "512.0"),
        ("prefix_cache_hits_total", "240.0"),
        ("generation_tokens_total", "8.0"),
        ("num_requests_running", "0.0"),
        ("kv_cache_usage_perc", "0.0"),
    ] {
        let line = format!("vllm:{name}{{engine=\"0\",model_name=\"sim-model\"}} {value}\n");
        assert!(page.contains(&line), "{line}");
    }
    let state = get_json(address, "/sim/state").await;
    assert_eq!(
        (&state["prompt_tokens"], &state["cached_tokens"]),
        (&json!(512), &json!(240))
    );
    let log = get_json(address, "/sim/log").await;
    assert_eq!(
        (&log[1]["prompt_tokens"], &log[1]["cached_tokens"]),
        (&json!(256), &json!(240))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_stream_gives_the_same_answer_as_a_whole_body() {
    let server = start(ServerOptions::default()).await;
    let mut body = chat("hello", 5);
    let whole = post(server.address(), "/v1/chat/completions", &body)
        .await
        .1;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let stream = post(server.address(), "/v1/chat/completions", &body)
        .await
        .1;
    let events = stream.lines().filter_map(|it| it.strip_prefix("data: "));
    let events: Vec<Value> = events
        .filter_map(|it| serde_json::from_str(it).ok())
        .collect();
    let content = |event: &Value| {
        event["choices"][0]["delta"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let streamed: String = events.iter().map(content).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], json!(streamed));
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], 5);
    assert!(stream.contains("data: [DONE]\n\n"));
}

#[tokio::test]
async fn the_next_turn_of_a_chat_hits_the_answer_too() {
    let server = start(ServerOptions::default()).await;
    let first = chat("tell me", 64);
    let answer = post(server.address(), "/v1/chat/completions", &first)
        .await
        .1;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let mut second = first.clone();
    let messages = second["messages"].as_array_mut().unwrap();
    messages.push(answer["choices"][0]["message"].clone());
    messages.last_mut().unwrap()["tool_calls"] = Value::Null;
    messages.push(json!({"role": "user", "content": "and then?"}));
    let records = chats(server.address(), &[second]).await;
    // 1 + 2 + 3 tokens of prompt and 63 computed ones of the answer: four whole blocks.
    assert_eq!(records[0].usage.cached_tokens, 64);
}

#[tokio::test]
async fn salt_and_model_keep_caches_apart_and_strict_servers_know_their_models() {
    let options = ServerOptions {
        strict_models: true,
        aliases: vec!["alias".to_owned()],
        adapters: vec!["lora".to_owned()],
        ..ServerOptions::default()
    };
    let server = start(options).await;
    let plain = chat(&"y".repeat(400), 1);
    let with = |field: &str, value: &str| {
        let mut body = plain.clone();
        body[field] = json!(value);
        body
    };
    let bodies = [
        plain.clone(),
        with("cache_salt", "s"),
        with("model", "lora"),
        with("model", "alias"),
        with("model", "lora"),
    ];
    let records = chats(server.address(), &bodies).await;
    let hits: Vec<_> = records
        .iter()
        .map(|it| it.usage.cached_tokens > 0)
        .collect();
    assert_eq!(hits, [false, false, false, true, true]);
    let (status, body) = post(
        server.address(),
        "/v1/chat/completions",
        &with("model", "other"),
    )
    .await;
    assert_eq!(status, 404);
    assert!(body.contains("\"type\":\"NotFoundError\""), "{body}");
}

#[tokio::test]
async fn an_adapter_is_loaded_again_when_others_took_its_slot() {
    let options = ServerOptions {
        max_loras: Some(2),
        ..ServerOptions::default()
    };
    let server = start(options).await;
    let names = ["a", "b", "a", "c", "a", "b"];
    let bodies = names.map(|name| {
        let mut body = chat("hello", 1);
        body["model"] = json!(name);
        body
    });
    chats(server.address(), &bodies).await;
    let (_, state) = get(server.address(), "/sim/state").await;
    let state: Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state["adapter_loads"], 4);
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_in_the_shape_of_the_real_server() {
    let server = start(ServerOptions {
        max_model_len: Some(100),
        ..Default::default()
    })
    .await;
    let long = chat(&"z".repeat(1000), 1);
    for (method, path, body, status, part) in [
        (
            "POST",
            "/v1/chat/completions",
            "{".to_owned(),
            400,
            "\"type\":\"Bad Request\"",
        ),
        (
            "POST",
            "/v1/chat/completions",
            "{}".to_owned(),
            400,
            "'messages'",
        ),
        (
            "POST",
            "/v1/chat/completions",
            long.to_string(),
            400,
            "\"param\":\"input_tokens\"",
        ),
        (
            "GET",
            "/v1/chat/completions",
            String::new(),
            405,
            "Method Not Allowed",
        ),
        (
            "POST",
            "/v1/other",
            "{}".to_owned(),
            404,
            "{\"detail\":\"Not Found\"}",
        ),
        (
            "GET",
            "/v1/other",
            String::new(),
            404,
            "{\"detail\":\"Not Found\"}",
        ),
    ] {
        let answer = raw(server.address(), method, path, &body).await;
        assert_eq!(answer.0, status, "{method} {path} {answer:?}");
        assert!(answer.1.contains(part), "{method} {path} {answer:?}");
    }
}

#[tokio::test]
async fn unknown_paths_are_accepted_when_asked_for() {
    let server = start(ServerOptions {
        accept_unknown: true,
        ..Default::default()
    })
    .await;
    let answer = raw(server.address(), "POST", "/v1/rerank", "12345").await;
    assert_eq!(
        answer,
        (200, r#"{"bytes":5,"path":"/v1/rerank"}"#.to_owned())
    );
}

#[tokio::test]
async fn the_log_has_the_headers_that_arrived_and_no_more_requests_than_it_may() {
    let server = start(ServerOptions {
        log_len: 2,
        ..Default::default()
    })
    .await;
    let address = server.address();
    for path in ["/a", "/b", "/c"] {
        post(address, path, &json!(path)).await;
    }
    let log = get_json(address, "/sim/log").await;
    let paths: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].clone())
        .collect();
    assert_eq!(paths, [json!("/b"), json!("/c")]);
    assert!(
        log[0]["headers"]
            .as_array()
            .unwrap()
            .contains(&json!(["x-test", "yes"]))
    );
    assert_eq!(
        (&log[0]["body_bytes"], &log[0]["status"]),
        (&json!(4), &json!(404))
    );
    post(address, "/sim/log/clear", &json!({})).await;
    assert_eq!(get_json(address, "/sim/log").await, json!([]));
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place_and_its_blocks() {
    let options = ServerOptions {
        time_scale: 1.0,
        ..ServerOptions::default()
    };
    let server = Server::start(options).await.unwrap();
    let address = server.address();
    for stream in [true, false] {
        let mut body = chat(&"w".repeat(4000), 10_000);
        body["stream"] = json!(stream);
        let bodies = [body];
        let report = load(address, &bodies, |options| {
            options.request_timeout = Duration::from_millis(200);
        });
        assert_eq!(report.await.failures[&Failure::Timeout], 1);
        wait_for(address, "running", 0).await;
        wait_for(address, "in_flight", 0).await;
    }
    let state = get_json(address, "/sim/state").await;
    assert_eq!(
        (&state["aborted"], &state["kv_usage"]),
        (&json!(2), &json!(0.0))
    );
    assert_eq!(
        post(address, "/reset_prefix_cache", &json!({})).await.0,
        200
    );
}

#[tokio::test]
async fn hundreds_of_streams_at_once_are_all_served() {
    let server = start(ServerOptions {
        max_num_seqs: Some(64),
        ..Default::default()
    })
    .await;
    let bodies: Vec<_> = (0..300)
        .map(|it| {
            let mut body = chat(&format!("{it} {}", "v".repeat(400)), 8);
            body["stream"] = json!(true);
            body
        })
        .collect();
    let report = load(server.address(), &bodies, |options| {
        options.connections = 300
    })
    .await;
    assert_eq!(
        (report.succeeded, report.first_event.len()),
        (300, 300),
        "{report}"
    );
    wait_for(server.address(), "in_flight", 0).await;
}

#[tokio::test]
async fn a_broken_metrics_page_is_broken_in_the_way_asked_for() {
    let server = start(ServerOptions::default()).await;
    let address = server.address();
    let whole = get(address, "/metrics").await.1;
    for (fault, status, check) in [
        (
            "empty",
            200,
            (|page, _| page.is_empty()) as fn(&str, &str) -> bool,
        ),
        ("html", 200, |page, _| page.starts_with("<!DOCTYPE html>")),
        ("not-found", 404, |page, _| page.contains("Not Found")),
        ("error", 500, |page, _| page.contains("InternalServerError")),
        ("truncated", 200, |page, whole| {
            whole.starts_with(page) && !page.ends_with('\n')
        }),
        ("cut", 200, |page, whole| page.len() < whole.len()),
        ("slow:50", 200, |page, whole| page == whole),
        ("stale", 200, |page, whole| page == whole),
    ] {
        server.change_faults(faults(fault, "ok"));
        let began = Instant::now();
        let (got, page) = get(address, "/metrics").await;
        assert_eq!(got, status, "{fault}");
        assert!(check(&page, &whole), "{fault}: {page}");
        assert_eq!(
            began.elapsed() >= Duration::from_millis(50),
            fault == "slow:50",
            "{fault}"
        );
    }
    // The page is stale still.
    chats(address, &[chat("hello", 2)]).await;
    assert_eq!(get(address, "/metrics").await.1, whole);
    server.change_faults(FaultChange::default());
    assert_ne!(get(address, "/metrics").await.1, whole);
    server.change_faults(faults("hang", "ok"));
    let hanging = tokio::time::timeout(Duration::from_millis(50), get(address, "/metrics"));
    assert!(hanging.await.is_err());
    assert_eq!(server.faults().metrics, MetricsFault::Hang);
}

#[tokio::test]
async fn any_page_can_stand_for_the_metrics_page_until_the_faults_change() {
    let server = start(ServerOptions::default()).await;
    let address = server.address();
    let page = "sglang:num_running_reqs 3.0\n";
    assert_eq!(raw(address, "POST", "/sim/metrics-page", page).await.0, 200);
    assert_eq!(get(address, "/metrics").await, (200, page.to_owned()));
    post(address, "/sim/faults", &json!({"metrics": "ok"})).await;
    assert!(
        get(address, "/metrics")
            .await
            .1
            .contains("vllm:num_requests_running")
    );
}

#[tokio::test]
async fn an_idle_connection_is_closed_but_not_one_whose_answer_takes_its_time() {
    let keep_alive = Duration::from_millis(100);
    let options = ServerOptions {
        keep_alive,
        time_scale: 1.0,
        ..ServerOptions::default()
    };
    let server = Server::start(options).await.unwrap();
    let mut idle = TcpStream::connect(server.address()).await.unwrap();
    idle.write_all(b"GET /ping HTTP/1.1\r\nhost: sim\r\n\r\n")
        .await
        .unwrap();
    let read = async {
        let mut answer = Vec::new();
        let _ = idle.read_to_end(&mut answer).await;
        answer
    };
    let answer = tokio::time::timeout(LIMIT, read).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    // 60 steps take about 330 ms.
    let records = chats(server.address(), &[chat("hello", 60)]).await;
    assert!(
        records[0].is_success() && records[0].total > 2 * keep_alive,
        "{records:?}"
    );
}

#[tokio::test]
async fn requests_fail_in_the_way_and_as_often_as_asked_for() {
    let server = start(ServerOptions::default()).await;
    let bodies = vec![chat("hello", 1); 8];
    for (fault, ok, unavailable, failure) in [
        ("ok", 8, 0, None),
        ("error:503", 0, 8, None),
        ("error:503:0.25", 6, 2, None),
        ("reset", 0, 0, Some((Failure::Closed, 8))),
        ("reset:0.5", 4, 0, Some((Failure::Closed, 4))),
        ("hang:0.125", 7, 0, Some((Failure::Timeout, 1))),
    ] {
        server.change_faults(faults("ok", fault));
        let report = load(server.address(), &bodies, |options| {
            options.request_timeout = Duration::from_millis(500);
        });
        let report = report.await;
        let count = |status: u16| report.statuses.get(&status).copied().unwrap_or_default();
        assert_eq!((count(200), count(503)), (ok, unavailable), "{fault}");
        let failed = report.failures.iter().map(|it| (*it.0, *it.1)).next();
        assert_eq!(failed, failure, "{fault}");
        assert_eq!(get(server.address(), "/health").await.0, 200, "{fault}");
    }
    assert!(matches!(server.faults().requests, RequestFault::Hang));
}

#[tokio::test]
async fn a_refusing_server_takes_no_connections_and_comes_back_on_the_same_port() {
    let server = start(ServerOptions::default()).await;
    let address = server.address();
    let (status, body) = post(address, "/sim/faults", &json!({"refuse_ms": 300})).await;
    assert_eq!(
        (status, body.contains("\"refuse\":true")),
        (200, true),
        "{body}"
    );
    let report = load(address, &[chat("hello", 1)], |_| {}).await;
    assert_eq!(report.failures.get(&Failure::Connect), Some(&1), "{report}");
    wait_for_port(address, true).await;
    assert!(chats(address, &[chat("hello", 1)]).await[0].is_success());

    server.change_faults(FaultChange {
        faults: Faults {
            refuse: true,
            ..Faults::default()
        },
        ..FaultChange::default()
    });
    wait_for_port(address, false).await;
    server.change_faults(FaultChange::default());
    wait_for_port(address, true).await;
    assert!(chats(address, &[chat("hello", 1)]).await[0].is_success());
}

#[tokio::test]
async fn a_fault_that_cuts_connections_spares_the_one_that_asked_for_it() {
    let server = start(ServerOptions::default()).await;
    for (fault, end) in [
        (r#"{"refuse":true}"#, r#"{"refuse":false}"#),
        (r#"{"restart":true}"#, "{}"),
    ] {
        let mut idle = TcpStream::connect(server.address()).await.unwrap();
        let mut asking = TcpStream::connect(server.address()).await.unwrap();
        for body in [fault, end] {
            let length = body.len();
            let request = format!(
                "POST /sim/faults HTTP/1.1\r\nhost: sim\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            asking.write_all(request.as_bytes()).await.unwrap();
            let read = async {
                let mut answer = Vec::new();
                while !answer.ends_with(b"}") {
                    answer.push(asking.read_u8().await.unwrap());
                }
                answer
            };
            let answer = tokio::time::timeout(LIMIT, read).await.unwrap();
            assert!(answer.starts_with(b"HTTP/1.1 200"), "{fault}");
        }
        let read = tokio::time::timeout(LIMIT, idle.read(&mut [0; 8]))
            .await
            .unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{fault}");
    }
}

#[tokio::test]
async fn a_restart_cuts_what_is_in_flight_and_forgets_cache_and_counters() {
    let options = ServerOptions {
        time_scale: 1.0,
        ..ServerOptions::default()
    };
    let server = Server::start(options).await.unwrap();
    let address = server.address();
    let start_time = |page: &str| {
        let line = page
            .lines()
            .find(|it| it.starts_with("process_start_time_seconds "));
        line.unwrap().to_owned()
    };
    let before = start_time(&get(address, "/metrics").await.1);
    let short = chat(&"u".repeat(400), 1);
    chats(address, std::slice::from_ref(&short)).await;
    let mut long = chat("long", 10_000);
    long["stream"] = json!(true);
    let bodies = [long];
    let (report, ()) = tokio::join!(load(address, &bodies, |_| {}), async {
        wait_for(address, "running", 1).await;
        assert_eq!(
            post(address, "/sim/faults", &json!({"restart": true}))
                .await
                .0,
            200
        );
    });
    assert_eq!(report.failures.get(&Failure::Closed), Some(&1), "{report}");
    assert_ne!(start_time(&get(address, "/metrics").await.1), before);
    let state = get_json(address, "/sim/state").await;
    assert_eq!(
        (&state["prompt_tokens"], &state["running"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(chats(address, &[short]).await[0].usage.cached_tokens, 0);
}

#[tokio::test]
async fn a_stopped_server_leaves_its_port_and_closes_its_connections() {
    let server = start(ServerOptions::default()).await;
    let address = server.address();
    let mut idle = TcpStream::connect(address).await.unwrap();
    assert_eq!(get(address, "/ping").await.0, 200);
    server.stop().await;
    assert!(TcpStream::connect(address).await.is_err());
    let read = tokio::time::timeout(LIMIT, idle.read(&mut [0; 8]))
        .await
        .unwrap();
    assert!(matches!(read, Ok(0) | Err(_)));
}

#[tokio::test]
async fn an_upgraded_connection_echoes() {
    let server = start(ServerOptions::default()).await;
    let exchange = async {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let request = "GET /v1/realtime HTTP/1.1\r\nhost: sim\r\nconnection: upgrade\r\n\
                       upgrade: websocket\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"));
        stream.write_all(b"ping").await.unwrap();
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.unwrap();
        assert_eq!(&echo, b"ping");
    };
    tokio::time::timeout(LIMIT, exchange).await.unwrap();
}

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
