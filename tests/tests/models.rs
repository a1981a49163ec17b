//! Which models there are can be asked for when there is nobody to ask.

use anyhow::{Result, ensure};
use picker_tests::{DESTINATIONS, Draft, eventually, servers, set_faults};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn while_no_endpoint_is_ready_the_pool_says_which_models_it_has() -> Result<()> {
    for destination in DESTINATIONS {
        let mut draft = Draft::new(destination, servers(1)).await?;
        draft.document["paths"] = json!({"prefixes": ["/llm"]});
        draft.pool()?["models"] = json!(["meta/llama", "lora-*", "lora-a"]);
        let stack = draft.start().await?;
        let get = async |path: &str| {
            let response = stack.request("GET", path, &[], b"").await?;
            ensure!(response.status == 200, "{path}: {}", response.text());
            let list = response.json()?;
            let models = list["data"].as_array().cloned().unwrap_or_default();
            let ids = models.iter().map(|it| it["id"].clone());
            anyhow::Ok((list["object"].clone(), ids.collect::<Vec<Value>>()))
        };
        let of_server = (json!("list"), vec![json!("sim-model")]);
        assert_eq!(get("/v1/models").await?, of_server);
        for server in &stack.servers {
            set_faults(server, &json!({"refuse": true}))?;
        }
        let of_pool = (json!("list"), vec![json!("meta/llama"), json!("lora-a")]);
        let is_listed = async || get("/v1/models").await.is_ok_and(|it| it == of_pool);
        ensure!(eventually(is_listed).await, "{:?}", get("/v1/models").await);
        assert_eq!(get("/llm/models?limit=1").await?, of_pool);
        let line = stack.wait_for_line(&["/llm/models", " 200 "]).await?;
        ensure!(line.contains("pool=llm models"), "{line}");
        let head = stack.request("HEAD", "/v1/models", &[], b"").await?;
        ensure!(
            head.status == 200 && head.body.is_empty(),
            "{}",
            head.text()
        );
        assert_eq!(head.header("content-type"), Some("application/json"));
        let other = stack.request("GET", "/v1/models/lora-a", &[], b"").await?;
        ensure!(other.status == 503, "{}", other.status);
        for server in &stack.servers {
            set_faults(server, &json!({"refuse": false}))?;
        }
        let is_back = async || get("/v1/models").await.is_ok_and(|it| it == of_server);
        ensure!(eventually(is_back).await, "{:?}", get("/v1/models").await);
    }
    Ok(())
}
