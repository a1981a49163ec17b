//! Where requests for LoRA adapters go, and how often that makes a server load one.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use picker_tests::{Draft, servers};
use serde_json::{Value, json};
use sim::load::{Bodies, LoadOptions, LoadReport, run_load};
use xtask::compose::Destination;
use xtask::draw::Draw;
use xtask::http::fetch;

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_is_asked_for_where_it_is_loaded() -> Result<()> {
    let run = Run::of(None, 1).await?;
    let (loads, astray) = run.retraced()?;
    assert_eq!(loads, run.loads, "what the servers say");
    assert_eq!(astray, 0, "requests sent to a server that had to load");
    assert_eq!(
        loads, ADAPTERS,
        "there are slots for all, so each is loaded once"
    );

    let run = Run::of(Some(by_queue_and_kv()), 1).await?;
    let (_, astray) = run.retraced()?;
    assert!(
        astray > REQUESTS / 4,
        "{astray} sent astray by queue and KV cache"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn few_adapters_are_loaded_however_many_clients_there_are() -> Result<()> {
    let least_cost = Run::of(None, CLIENTS).await?.loads;
    let by_load = Run::of(Some(by_queue_and_kv()), CLIENTS).await?.loads;
    // One for every slot, and as many again for adapters that are wanted in more places.
    let bound = 2 * SERVERS * SLOTS;
    assert!(least_cost <= bound, "{least_cost} loads by least cost");
    assert!(by_load > bound, "{by_load} loads by queue and KV cache");
    Ok(())
}

/// Requests for twelve adapters through one Envoy to four servers that have slots for four each.
struct Run {
    /// The adapter of each request, in the order of sending.
    asked: Vec<usize>,
    report: LoadReport,
    /// How often the servers loaded an adapter, by their own count.
    loads: usize,
}

impl Run {
    /// Requests of so many clients, routed by `picker` or as it is by default.
    async fn of(picker: Option<Value>, clients: usize) -> Result<Self> {
        let mut options = servers(SERVERS);
        for options in &mut options {
            options.max_loras = Some(SLOTS);
            options.profile.adapter_load = Duration::from_millis(80);
        }
        let mut draft = Draft::new(Destination::OriginalDst, options).await?;
        if let Some(picker) = picker {
            draft.pool()?["picker"] = picker;
        }
        let stack = draft.start().await?;
        let mut draw = Draw::new(5);
        let asked: Vec<usize> = (0..REQUESTS).map(|_| draw.below(ADAPTERS)).collect();
        let bodies = asked.iter().map(|adapter| {
            let body = json!({
                "model": format!("adapter-{adapter}"),
                "max_tokens": 4,
                "messages": [{"role": "user", "content": draw.prose(400)}],
            });
            Bytes::from(body.to_string())
        });
        let bodies = Bodies::List(bodies.collect());
        let report = run_load(LoadOptions {
            connections: clients,
            // New connections let the workers take turns.
            reconnect: true,
            ..LoadOptions::new(stack.addresses.traffic, bodies)
        });
        let report = report.await?;
        ensure!(report.succeeded == report.requests, "{report}");
        let mut loads = 0;
        for server in &stack.servers {
            let state = fetch(server.address(), "/sim/state").await?.json()?;
            let of_one = state["adapter_loads"].as_u64();
            loads += usize::try_from(of_one.context("no `adapter_loads`")?)?;
        }
        Ok(Self {
            asked,
            report,
            loads,
        })
    }

    /// Follows the requests of one client: how often an adapter had to be loaded, and how often
    /// another server had it.
    fn retraced(&self) -> Result<(usize, usize)> {
        // Of each server, the adapter used longest ago first.
        let mut loaded: HashMap<&str, Vec<usize>> = HashMap::new();
        let (mut loads, mut astray) = (0, 0);
        for (adapter, record) in self.asked.iter().zip(&self.report.records) {
            let server = record.endpoint.as_deref().context("served by nobody")?;
            let is_somewhere = loaded.values().any(|here| here.contains(adapter));
            let here = loaded.entry(server).or_default();
            if here.contains(adapter) {
                here.retain(|it| it != adapter);
            } else {
                loads += 1;
                astray += usize::from(is_somewhere);
                if here.len() == SLOTS {
                    here.remove(0);
                }
            }
            here.push(*adapter);
        }
        Ok((loads, astray))
    }
}

fn by_queue_and_kv() -> Value {
    json!({
        "plugins": [{"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"}],
        "schedulingProfiles": [{"name": "default", "plugins": [
            {"pluginRef": "queue-scorer", "weight": 2},
            {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
        ]}],
    })
}

const SERVERS: usize = 4;

/// Adapters that a server has in memory.
const SLOTS: usize = 4;

/// Fewer than there are slots, more than one server has.
const ADAPTERS: usize = 12;

const REQUESTS: usize = 240;

/// Enough that every server has several requests at once.
const CLIENTS: usize = 16;
