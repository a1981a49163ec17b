//! Waiting until everything that was started works together.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tokio::time::{Instant, sleep};

use crate::compose::Addresses;
use crate::http::fetch;
use crate::state::State;

/// Waits until every endpoint's metrics are fresh and Envoy's cluster knows the endpoints.
pub async fn ready(addresses: Addresses) -> Result<State> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let checked = check(addresses).await;
        if checked.is_ok() {
            return checked;
        }
        if Instant::now() > deadline {
            let error = checked
                .err()
                .map(|error| format!("{error:#}"))
                .unwrap_or_default();
            bail!("not ready within {LIMIT:?}: {error}");
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn check(addresses: Addresses) -> Result<State> {
    let state = State::fetch(addresses.pages).await?;
    let endpoints = state.endpoints().count();
    ensure!(endpoints > 0, "the picker knows no endpoint");
    let stale = state.endpoints().filter(|endpoint| !endpoint.fresh);
    let stale: Vec<&str> = stale.map(|endpoint| endpoint.address.as_str()).collect();
    ensure!(
        stale.is_empty(),
        "no fresh metrics from {}",
        stale.join(", ")
    );
    // A cluster that asks for its endpoints (EDS) can serve only once it was told.
    let asked = stat(addresses, "cluster.llm.update_attempt").await?;
    let members = stat(addresses, "cluster.llm.membership_total").await?;
    ensure!(
        asked == 0 || members >= endpoints as u64,
        "Envoy knows {members} of {endpoints} endpoints"
    );
    Ok(state)
}

/// A counter or gauge of Envoy; 0 when there is none of that name.
pub async fn stat(addresses: Addresses, name: &str) -> Result<u64> {
    let stats = fetch(addresses.admin, "/stats").await?.text();
    let line = stats
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    Ok(line.map_or(Ok(0), str::parse)?)
}

/// How long the first scrapes, and the first answer about endpoints, may take.
const LIMIT: Duration = Duration::from_secs(10);
