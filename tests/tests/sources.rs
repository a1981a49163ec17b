//! What is asked of endpoints besides their metrics, and what is reported of answers.

use anyhow::{Context, Result, ensure};
use picker_tests::canned::Canned;
use picker_tests::{CHAT, Draft, Stack, chat_body, requests, servers};
use serde_json::{Value, json};
use xtask::compose::Destination;
use xtask::draw::Draw;
use xtask::http::Response;

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_asked_for_their_models_where_a_source_says_so() -> Result<()> {
    let canned = json!({"data": [{"id": "tuned", "parent": "base"}, {"id": "base"}]});
    let elsewhere = page(&canned.to_string()).await?;
    let port = elsewhere.address().port();
    for (source, expected) in [
        (None, None),
        (Some(json!({})), Some(vec!["sim-model".to_owned()])),
        // An adapter is listed beside its model.
        (
            Some(json!({"port": port})),
            Some(vec!["base".to_owned(), "tuned".to_owned()]),
        ),
    ] {
        let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
        let asks_servers = source.as_ref() == Some(&json!({}));
        if let Some(mut place) = source {
            place["interval"] = json!("100ms");
            draft.pool()?["picker"] = asking("models-data-source", &place, "models-data-extractor");
        }
        draft.document["listModels"] = json!("always");
        let stack = draft.start().await?;
        let told = stack.wait("they tell what they serve", |state| {
            state.endpoints().all(|it| it.models == expected)
        });
        told.await?;
        if let Some(expected) = &expected {
            let list = stack.request("GET", "/v1/models", &[], b"").await?.json()?;
            let listed = list["data"].as_array().into_iter().flatten();
            let listed: Vec<&str> = listed.filter_map(|it| it["id"].as_str()).collect();
            ensure!(listed == *expected, "the picker lists {list}");
        }
        for server in &stack.servers {
            let seen = requests(server).await?;
            let is_asked = seen.iter().any(|it| it["path"] == "/v1/models");
            assert_eq!(is_asked, asks_servers, "{seen:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_with_idle_gpus_is_chosen() -> Result<()> {
    let exporter = page(
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",pod=\"llm-0\"} 5\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",pod=\"llm-0\"} 90\n\
         DCGM_FI_DEV_GPU_UTIL{gpu=\"2\",pod=\"llm-1\"} 10\n",
    );
    let exporter = exporter.await?;
    // Whichever endpoint is which pod, the same GPUs are idle.
    for (pods, idle) in [(["llm-0", "llm-1"], 1), (["llm-1", "llm-0"], 0)] {
        let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
        let place = json!({"port": exporter.address().port(), "interval": "100ms"});
        let mut picker = asking("dcgm-data-source", &place, "dcgm-extractor");
        picker["plugins"][1] = json!({"type": "endpoint-attribute-scorer", "parameters": {
            "attributeKey": "GPUUtilization",
            "producer": "dcgm-extractor",
            "algorithm": {
                "type": "linear_lower_is_better",
                "normalization": {"fixedRange": {"min": 0, "max": 1}},
            },
        }});
        draft.pool()?["picker"] = picker;
        label(&mut draft, "statefulset.kubernetes.io/pod-name", pods)?;
        let stack = draft.start().await?;
        let busy = |pod| if pod == "llm-0" { 0.9 } else { 0.1 };
        let told = stack.wait("the use of both is known", |state| {
            let told = state.endpoints().map(|it| it.gpu_usage);
            told.eq(pods.map(|pod| Some(busy(pod))))
        });
        told.await?;
        let served = served(&stack, 12).await?;
        assert_eq!(served[idle], 12, "{pods:?}: {served:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ranks_behind_one_page_are_told_apart() -> Result<()> {
    let shared = page(
        "vllm:num_requests_running{engine=\"0\"} 1\nvllm:num_requests_running{engine=\"1\"} 2\n\
         vllm:num_requests_waiting{engine=\"0\"} 40\nvllm:num_requests_waiting{engine=\"1\"} 3\n\
         vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 0.25\n",
    );
    let shared = shared.await?;
    for (ranks, expected, all_on) in [
        (["0", "1"], [(40.0, 0.5), (3.0, 0.25)], Some(1)),
        (["1", "0"], [(3.0, 0.25), (40.0, 0.5)], Some(0)),
        (["", ""], [(43.0, 0.375), (43.0, 0.375)], None),
    ] {
        let mut draft = Draft::new(Destination::OriginalDst, servers(2)).await?;
        draft.pool()?["picker"] = json!({"plugins": [
            {"type": "metrics-data-source", "parameters": {"port": shared.address().port()}},
            {"type": "queue-scorer"},
        ]});
        label(&mut draft, "llm-d.ai/engine-rank", ranks)?;
        let stack = draft.start().await?;
        let state = stack.state().await?;
        let read = state.endpoints().map(|it| (it.waiting, it.kv_usage));
        let expected = expected.map(|(waiting, usage)| (Some(waiting), Some(usage)));
        ensure!(read.eq(expected), "{ranks:?}: {state:#?}");
        if let Some(place) = all_on {
            let served = served(&stack, 12).await?;
            assert_eq!(served[place], 12, "{ranks:?}: {served:?}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_answer_used_is_reported_to_the_access_log() -> Result<()> {
    let mut draft = Draft::new(Destination::OriginalDst, servers(1)).await?;
    let reporter = |name: &str, condition: &str| {
        json!({"type": "request-attribute-reporter", "name": name, "parameters": {"attributes": [{
            "key": {"name": name},
            "expression": "usage.prompt_tokens + 1000 * usage.completion_tokens",
            "condition": condition,
        }]}})
    };
    draft.pool()?["picker"] = json!({"plugins": [
        {"type": "queue-scorer"},
        reporter("cost", ""),
        reporter("long", "usage.completion_tokens > 4"),
    ]});
    let manager = draft.bootstrap.manager_mut("traffic")?;
    let format = "/access_log/0/typed_config/log_format/text_format_source/inline_string";
    let format = manager.pointer_mut(format).context("no format")?;
    *format = json!(
        "%REQ(:path)% cost=%FILTER_STATE(wasm.picker.cost:PLAIN)% \
         long=%FILTER_STATE(wasm.picker.long:PLAIN)%\n"
    );
    let stack = draft.start().await?;
    for (number, (tokens, streams)) in [(3, false), (7, false), (7, true)].into_iter().enumerate() {
        let mut body: Value = serde_json::from_str(&chat_body("hello", tokens))?;
        if streams {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        let path = format!("{CHAT}?{number}");
        let body = body.to_string();
        let response = stack.request("POST", &path, &[], body.as_bytes()).await?;
        let usage = usage(&response).context("no usage")?;
        let count = |name: &str| usage[name].as_u64().context("no count");
        assert_eq!(count("completion_tokens")?, u64::from(tokens));
        let cost = count("prompt_tokens")? + 1000 * u64::from(tokens);
        let line = stack.wait_for_line(&[&format!("{path} ")]).await?;
        let long = if tokens > 4 {
            cost.to_string()
        } else {
            "-".into()
        };
        assert_eq!(line, format!("{path} cost={cost} long={long}"));
    }
    // An answer that counts nothing has nothing to report.
    stack.request("GET", "/v1/models", &[], b"").await?;
    let line = stack.wait_for_line(&["/v1/models "]).await?;
    assert_eq!(line, "/v1/models cost=- long=-");
    Ok(())
}

/// A server that has one page, whatever it is asked for.
async fn page(body: &str) -> Result<Canned> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    Canned::start(head + body).await
}

/// A picker that asks at a `source`, whose answers an `extractor` reads.
fn asking(source: &str, place: &Value, extractor: &str) -> Value {
    json!({
        "plugins": [{"type": source, "parameters": place}, {"type": "queue-scorer"}],
        "dataLayer": {"sources": [
            {"pluginRef": source, "extractors": [{"pluginRef": extractor}]},
        ]},
    })
}

/// Gives each endpoint a label of its own.
fn label<const N: usize>(draft: &mut Draft, label: &str, values: [&str; N]) -> Result<()> {
    let endpoints = draft.pool()?["endpoints"].as_array_mut();
    let endpoints = endpoints.context("no endpoints")?;
    ensure!(endpoints.len() == N);
    for (endpoint, value) in endpoints.iter_mut().zip(values) {
        endpoint["labels"][label] = json!(value);
    }
    Ok(())
}

/// Sends prompts that share nothing, and counts who served them.
async fn served(stack: &Stack, count: usize) -> Result<Vec<usize>> {
    let mut draw = Draw::new(9);
    for _ in 0..count {
        let response = stack.chat(&draw.prose(200)).await?;
        ensure!(response.status == 200, "{}", response.text());
    }
    stack.served().await
}

/// The usage in an answer, streamed or not.
fn usage(response: &Response) -> Option<Value> {
    let text = response.text();
    let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let documents = events.chain([text.as_str()]);
    let mut documents = documents.filter_map(|it| serde_json::from_str::<Value>(it).ok());
    documents.find_map(|it| it.get("usage").filter(|it| it.is_object()).cloned())
}
