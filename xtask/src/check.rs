//! `cargo xtask run --check`: are requests with one prefix kept together, and others spread?
//!
//! Two long prefixes and unrelated prompts are sent one at a time, in random order, each on a new
//! connection, so that every worker must know what the others know.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bootstrap::{Bootstrap, TRAFFIC};
use crate::compose::Addresses;
use crate::draw::Draw;
use crate::http::Connection;
use crate::ready::ready;
use crate::run::model;
use crate::state::State;

pub use crate::draw::random_seed;

/// Makes Envoy say in a response header which endpoint served.
pub fn name_endpoint(bootstrap: &mut Bootstrap) -> Result<()> {
    let manager = bootstrap.manager_mut(TRAFFIC)?;
    let hosts = manager
        .pointer_mut("/route_config/virtual_hosts")
        .and_then(Value::as_array_mut);
    let hosts = hosts.context("--check needs a `route_config` with `virtual_hosts`")?;
    for host in hosts {
        host["response_headers_to_add"] = json!([{
            "header": {"key": SERVED_BY, "value": "%UPSTREAM_REMOTE_ADDRESS%"}
        }]);
    }
    Ok(())
}

/// Sends the requests, prints the table and the rules, and fails unless every rule holds.
pub async fn check(addresses: Addresses, seed: u64) -> Result<()> {
    let before = ready(addresses).await?;
    let endpoints: Vec<String> = before
        .endpoints()
        .map(|endpoint| endpoint.address.clone())
        .collect();
    let first = endpoints.first().context("the picker knows no endpoint")?;
    let mut client = Client {
        addresses,
        model: model(first.parse()?).await?,
        previous: None,
    };
    println!("Sending {REQUESTS} requests, one at a time (--seed {seed} repeats them) ...");
    let mut draw = Draw::new(seed);
    let mut tally = Tally::new(&endpoints);
    for (kind, prompt) in prompts(&mut draw) {
        let served = client.send(&prompt).await?;
        tally.add(kind, &served)?;
    }
    let mut owners = vec![tally.owner(Kind::PrefixA), tally.owner(Kind::PrefixB)];
    draw_again(&mut draw, &mut client, &mut owners, endpoints.len()).await?;
    let workers = workers_served(addresses, &before).await?;
    print!("\n{}\n", tally.table());
    conclude(&rules(&tally, &owners, workers))
}

/// The prompts in the order in which they are sent.
fn prompts(draw: &mut Draw) -> Vec<(Kind, String)> {
    let mut prompts = Vec::with_capacity(REQUESTS);
    for kind in [Kind::PrefixA, Kind::PrefixB] {
        let prefix = draw.prose(PREFIX_BYTES);
        for _ in 0..PER_PREFIX {
            prompts.push((kind, format!("{prefix}{}", draw.prose(SUFFIX_BYTES))));
        }
    }
    for _ in 0..UNRELATED {
        prompts.push((Kind::Unrelated, draw.prose(UNRELATED_BYTES)));
    }
    draw.shuffle(&mut prompts);
    prompts
}

/// Draws further pairs of prefixes until two endpoints own one, or until it cannot be chance.
async fn draw_again(
    draw: &mut Draw,
    client: &mut Client,
    owners: &mut Vec<String>,
    endpoints: usize,
) -> Result<()> {
    for _ in 0..PAIRS_MAX {
        if endpoints < 2 || different(owners) > 1 {
            return Ok(());
        }
        for _ in 0..2 {
            let prefix = draw.prose(PREFIX_BYTES);
            let served = client
                .send(&format!("{prefix}{}", draw.prose(SUFFIX_BYTES)))
                .await?;
            owners.push(served.endpoint);
        }
    }
    Ok(())
}

/// What is asked of the numbers, each rule with whether it holds.
fn rules(tally: &Tally, owners: &[String], workers: usize) -> Vec<(bool, String)> {
    let endpoints = tally.rows.len();
    let mut rules = Vec::new();
    for kind in [Kind::PrefixA, Kind::PrefixB] {
        let most = tally.most(kind);
        let rule = format!("{most} of {PER_PREFIX} of {} on one endpoint", kind.name());
        rules.push((
            most + 1 >= PER_PREFIX,
            format!("{rule} (at least {})", PER_PREFIX - 1),
        ));
    }
    if endpoints > 1 {
        let different = different(owners);
        let count = owners.len();
        let rule = format!("{count} prefixes are owned by {different} endpoints (at least 2)");
        rules.push((different >= 2, rule));
    }
    let most = tally.most(Kind::Unrelated);
    let share = most as f64 / UNRELATED as f64;
    let bound = 1.0 / endpoints as f64 + 0.25;
    let rule = format!(
        "the busiest endpoint has {:.0} % of the unrelated",
        100.0 * share
    );
    // The margin is for the rounding of a share that is exactly the bound.
    rules.push((
        share <= bound + 1e-9,
        format!("{rule} (at most {:.0} %)", 100.0 * bound),
    ));
    rules.push((
        workers >= 2,
        format!("{workers} workers served (at least 2)"),
    ));
    rules
}

fn conclude(rules: &[(bool, String)]) -> Result<()> {
    for (holds, rule) in rules {
        println!("{}  {rule}", if *holds { "ok    " } else { "FAILED" });
    }
    let failed = rules.iter().filter(|(holds, _)| !holds).count();
    ensure!(failed == 0, "{failed} of {} rules do not hold", rules.len());
    println!("\nThe check passed.");
    Ok(())
}

/// How many workers have sent requests since `before`.
async fn workers_served(addresses: Addresses, before: &State) -> Result<usize> {
    let sent = |state: &State, slot| {
        let workers = state.workers().filter(|worker| worker.slot == slot);
        workers.map(|worker| worker.sent).sum::<u64>()
    };
    // A worker writes its counts a little after the last request.
    let mut served = 0;
    for _ in 0..10 {
        let after = State::fetch(addresses.pages).await?;
        let slots = after.workers().map(|worker| worker.slot);
        served = slots
            .filter(|slot| sent(&after, *slot) > sent(before, *slot))
            .count();
        if served >= 2 {
            break;
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(served)
}

struct Client {
    addresses: Addresses,
    model: String,
    /// Kept open until the next connection is there: Envoy gives a new connection to the worker
    /// with the fewest, and with none open that would always be the same one.
    previous: Option<Connection>,
}

/// Who served a request, and how many of its tokens were cached there.
struct Served {
    endpoint: String,
    cached_tokens: Option<u64>,
}

impl Client {
    async fn send(&mut self, prompt: &str) -> Result<Served> {
        let body = json!({
            "model": self.model,
            "max_tokens": 2,
            "messages": [{"role": "user", "content": prompt}],
        });
        let body = body.to_string();
        let mut connection = Connection::open(self.addresses.traffic)
            .await?
            .with_limit(ANSWER_LIMIT);
        let headers = [("content-type", "application/json")];
        let response = connection
            .request("POST", "/v1/chat/completions", &headers, body.as_bytes())
            .await?;
        self.previous = Some(connection);
        ensure!(
            response.status == 200,
            "status {}: {}",
            response.status,
            response.text()
        );
        let endpoint = response
            .header(SERVED_BY)
            .context("Envoy did not say who served")?;
        let usage = response.json()?;
        let cached = usage.pointer("/usage/prompt_tokens_details/cached_tokens");
        Ok(Served {
            endpoint: endpoint.to_owned(),
            cached_tokens: cached.and_then(Value::as_u64),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    PrefixA,
    PrefixB,
    Unrelated,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::PrefixA => "prefix A",
            Self::PrefixB => "prefix B",
            Self::Unrelated => "unrelated",
        }
    }
}

/// What each endpoint served.
struct Tally {
    rows: BTreeMap<String, Row>,
}

#[derive(Clone, Default)]
struct Row {
    served: [usize; 3],
    /// `None` while no response said.
    cached_tokens: Option<u64>,
}

impl Tally {
    fn new(endpoints: &[String]) -> Self {
        let rows = endpoints
            .iter()
            .map(|endpoint| (endpoint.clone(), Row::default()));
        Self {
            rows: rows.collect(),
        }
    }

    fn add(&mut self, kind: Kind, served: &Served) -> Result<()> {
        let endpoint = &served.endpoint;
        let row = self.rows.get_mut(endpoint);
        let row = row.with_context(|| format!("{endpoint} served and is not of the pool"))?;
        row.served[kind as usize] += 1;
        if let Some(tokens) = served.cached_tokens {
            *row.cached_tokens.get_or_insert(0) += tokens;
        }
        Ok(())
    }

    fn most(&self, kind: Kind) -> usize {
        self.rows
            .values()
            .map(|row| row.served[kind as usize])
            .max()
            .unwrap_or(0)
    }

    fn owner(&self, kind: Kind) -> String {
        let rows = self
            .rows
            .iter()
            .max_by_key(|(_, row)| row.served[kind as usize]);
        rows.map(|(endpoint, _)| endpoint.clone())
            .unwrap_or_default()
    }

    fn table(&self) -> String {
        let width = self.rows.keys().map(String::len).max().unwrap_or(0).max(8);
        let mut text = format!("{:width$}", "endpoint");
        for head in ["prefix A", "prefix B", "unrelated", "cached tokens"] {
            let _ = write!(text, "  {head:>13}");
        }
        for (endpoint, row) in &self.rows {
            let _ = write!(text, "\n{endpoint:width$}");
            for count in row.served {
                let _ = write!(text, "  {count:>13}");
            }
            let cached = row
                .cached_tokens
                .map_or_else(|| "?".to_owned(), |tokens| tokens.to_string());
            let _ = write!(text, "  {cached:>13}");
        }
        text.push('\n');
        text
    }
}

fn different(owners: &[String]) -> usize {
    owners
        .iter()
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

/// The response header in which Envoy names the endpoint that served.
const SERVED_BY: &str = "x-picker-check-served-by";

/// Requests with each of the two prefixes.
const PER_PREFIX: usize = 20;

/// Requests that share nothing.
const UNRELATED: usize = 60;

const REQUESTS: usize = 2 * PER_PREFIX + UNRELATED;

/// A long prefix: about 1,500 tokens, which also fits servers with a small context.
const PREFIX_BYTES: usize = 8192;

/// What follows a prefix and differs each time.
const SUFFIX_BYTES: usize = 64;

/// An unrelated prompt, several hash blocks long.
const UNRELATED_BYTES: usize = 1024;

/// Pairs of prefixes drawn again: with three endpoints, eight pairs on the owner of the first two
/// are an accident of one in 43 million.
const PAIRS_MAX: usize = 8;

/// How long a server may take for one answer, a slow real one included.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules that do not hold when three endpoints served `rows`, each of prefix A, prefix B and
    /// unrelated.
    fn failed(rows: [[usize; 3]; 3], owners: &[&str], workers: usize) -> Vec<usize> {
        let rows = rows.iter().enumerate().map(|(number, served)| {
            let row = Row {
                served: *served,
                cached_tokens: None,
            };
            (number.to_string(), row)
        });
        let tally = Tally {
            rows: rows.collect(),
        };
        let owners: Vec<String> = owners.iter().map(|owner| (*owner).to_owned()).collect();
        let rules = rules(&tally, &owners, workers);
        (0..rules.len()).filter(|rule| !rules[*rule].0).collect()
    }

    #[test]
    fn each_rule_fails_for_its_own_reason() {
        let good = [[20, 0, 20], [0, 20, 20], [0, 0, 20]];
        assert_eq!(failed(good, &["0", "1"], 2), [0; 0]);
        assert_eq!(
            failed([[19, 1, 35], [1, 19, 25], [0, 0, 0]], &["0", "1"], 2),
            [0; 0]
        );
        assert_eq!(
            failed([[18, 0, 20], [2, 20, 20], [0, 0, 20]], &["0", "1"], 2),
            [0]
        );
        assert_eq!(
            failed([[20, 2, 20], [0, 18, 20], [0, 0, 20]], &["0", "1"], 2),
            [1]
        );
        assert_eq!(failed(good, &["0", "0", "0", "0"], 2), [2]);
        assert_eq!(
            failed([[20, 0, 36], [0, 20, 24], [0, 0, 0]], &["0", "1"], 2),
            [3]
        );
        assert_eq!(failed(good, &["0", "1"], 1), [4]);
    }

    #[test]
    fn a_hundred_prompts_are_sent_of_which_twenty_share_each_prefix() {
        let prompts = prompts(&mut Draw::new(3));
        assert_eq!(prompts.len(), REQUESTS);
        for kind in [Kind::PrefixA, Kind::PrefixB] {
            let mut same = prompts.iter().filter(|(other, _)| *other == kind);
            let first = &same.next().unwrap().1[..PREFIX_BYTES];
            assert!(same.all(|(_, prompt)| prompt.starts_with(first)));
        }
    }
}
