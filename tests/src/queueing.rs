//! Requests that wait for their turn: how a draft lets them, and what is seen of it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use xtask::compose::Destination;
use xtask::http::{Connection, Response};

use crate::held::Held;
use crate::{CHAT, Draft, MODEL, Stack, eventually};

/// The answer to a request, and when it was there.
#[derive(Clone, Debug)]
pub struct Answer {
    /// All of it.
    pub response: Response,
    /// How long it took from the first byte of the request on.
    pub took: Duration,
}

/// A request whose answer is awaited in the background.
pub type Asked = JoinHandle<Result<Answer>>;

impl Draft {
    /// An Envoy with `workers` in front of `held`, each port of which has room for `room` requests;
    /// the others wait, as `flow_control` says besides.
    pub fn queueing(held: &Held, workers: u32, room: u32, flow_control: Value) -> Result<Self> {
        let mut draft = Self::with_endpoints(Destination::OriginalDst, held.addresses())?;
        draft.concurrency = workers;
        draft.let_wait(room, flow_control)?;
        Ok(draft)
    }

    /// Lets requests wait while each endpoint has `room` of them.
    pub fn let_wait(&mut self, room: u32, mut flow_control: Value) -> Result<()> {
        flow_control["saturationDetector"] = json!({"pluginRef": "concurrency-detector"});
        self.pool()?["picker"] = json!({
            "featureGates": ["flowControl"],
            "plugins": [
                {"type": "least-cost-scorer"},
                {"type": "concurrency-detector", "parameters": {"maxConcurrency": room}},
                {"type": "round-robin-fairness-policy"},
            ],
            "schedulingProfiles": [
                {"name": "default", "plugins": [{"pluginRef": "least-cost-scorer"}]},
            ],
            "flowControl": flow_control,
        });
        Ok(())
    }

    /// Gives requests that name `low`, `middle` or `high` as their objective the priorities -1, 3
    /// and 10; all others have 0.
    pub fn set_objectives(&mut self) -> Result<()> {
        self.pool()?["objectives"] = json!([
            {"name": "low", "priority": -1},
            {"name": "middle", "priority": 3},
            {"name": "high", "priority": 10},
        ]);
        Ok(())
    }
}

impl Stack {
    /// Sends a chat that streams, on a connection of its own.
    pub fn ask(&self, headers: &[(&str, &str)]) -> Asked {
        self.ask_for(CHAT, headers, stream_body("hello"))
    }

    /// Sends a request on a connection of its own.
    pub fn ask_for(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Asked {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers: Vec<_> = headers.iter().map(own).collect();
        let (path, body, traffic) = (path.to_owned(), body.into(), self.addresses.traffic);
        tokio::spawn(async move {
            let begun = Instant::now();
            let mut connection = Connection::open(traffic).await?.with_limit(LONGEST);
            let borrowed = headers.iter().map(|it| (it.0.as_str(), it.1.as_str()));
            let mut all: Vec<_> = borrowed.collect();
            all.push(("content-type", "application/json"));
            let response = connection.request("POST", &path, &all, &body).await?;
            Ok(Answer {
                response,
                took: begun.elapsed(),
            })
        })
    }

    /// How many requests wait in the band of `priority`, as Envoy shows it.
    pub async fn queued(&self, priority: i32) -> Result<u64> {
        self.stat(&gauge("llm_d_epp", "size", priority)).await
    }

    /// Waits until so many requests wait in the band of `priority`.
    pub async fn wait_for_queue(&self, priority: i32, count: u64) -> Result<()> {
        eventually(async || self.queued(priority).await.is_ok_and(|it| it == count)).await;
        let found = self.queued(priority).await?;
        ensure!(
            found == count,
            "{found} wait at priority {priority}, not {count}"
        );
        Ok(())
    }

    /// Waits until nothing waits in any band and nothing is in flight.
    pub async fn wait_until_empty(&self, priorities: &[i32]) -> Result<()> {
        for priority in priorities {
            for prefix in ["llm_d_epp", "inference_extension"] {
                for what in ["size", "bytes"] {
                    let name = gauge(prefix, what, *priority);
                    eventually(async || self.stat(&name).await.is_ok_and(|it| it == 0)).await;
                    let found = self.stat(&name).await?;
                    ensure!(found == 0, "{name} is {found}");
                }
            }
        }
        self.wait_until_idle().await?;
        Ok(())
    }
}

/// The answers to `asked`, in their order.
pub async fn answers(asked: Vec<Asked>) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(asked.len());
    for (place, asked) in asked.into_iter().enumerate() {
        let answer = asked.await?;
        answers.push(answer.with_context(|| format!("request {place}"))?);
    }
    Ok(answers)
}

/// Checks that all of `asked` are answered to the end of their streams.
pub async fn all_served(asked: Vec<Asked>) -> Result<()> {
    for (place, answer) in answers(asked).await?.into_iter().enumerate() {
        let (status, text) = (answer.response.status, answer.response.text());
        let ends = text.ends_with("data: [DONE]\n\n");
        ensure!(status == 200 && ends, "request {place}: {status} {text}");
    }
    Ok(())
}

/// A chat of one message whose answer is a stream.
pub fn stream_body(prompt: &str) -> String {
    json!({
        "model": MODEL,
        "max_tokens": 2,
        "stream": true,
        "messages": [{"role": "user", "content": prompt}],
    })
    .to_string()
}

/// The name of a gauge of what waits in the band of `priority`.
pub fn gauge(prefix: &str, what: &str, priority: i32) -> String {
    format!("wasmcustom.{prefix}_flow_control_queue_{what};inference_pool=llm;priority={priority}")
}

/// The header by which a request names its objective.
pub const OBJECTIVE: &str = "x-llm-d-inference-objective";

/// The header by which a request names its tenant.
pub const TENANT: &str = "x-llm-d-inference-fairness-id";

/// The header that says why a request was refused.
pub const REASON: &str = "x-llm-d-request-dropped-reason";

/// How long an answer may take.
const LONGEST: Duration = Duration::from_secs(60);
