//! `cargo xtask bench predict`: how well latencies are foretold, and what that costs.
//!
//! Requests are those of the simulated comparison of routers. Errors are relative, in percent: the
//! median and what nine of ten stay below, of the requests in the second half of each run.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use picker_core::{EndpointId, Features, LeastCost, Predictor};
use sim::routing::driver;
use sim::routing::forecast::{Errors, forecast};
use sim::routing::policies::PolicyKind;
use sim::routing::scenario::Scenario;

/// The arguments of `cargo xtask bench predict`.
#[derive(Clone, Debug, Args)]
pub struct PredictArguments {
    /// The situation; several are separated by commas
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "chat,headline,lora,chat-over-capacity,no-overlap,zipf,slow-pod"
    )]
    scenario: Vec<Scenario>,
    /// The router that makes the choices; several are separated by commas
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        default_value = "least-cost,llm-d,random"
    )]
    policy: Vec<PolicyKind>,
    /// Which random numbers
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
    /// Workers that share what they learn
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
}

/// Measures and prints the table.
pub(super) fn predict(arguments: &PredictArguments) -> Result<()> {
    println!("{HEADER}");
    for &scenario in &arguments.scenario {
        for &policy in &arguments.policy {
            let seed = arguments.seed;
            let start = |seed| policy.start(seed, 1, LeastCost::DEFAULT);
            let records = driver::records(scenario.setup(seed, None), &start, seed);
            let errors = forecast(&records, arguments.workers);
            for (latency, errors) in ["TTFT", "TPOT"].iter().zip(errors) {
                println!("{}", row([scenario.name(), policy.name(), latency], errors));
            }
        }
    }
    println!(
        "A prediction of both for {CANDIDATES} candidates: {:.1} us",
        cost_us()
    );
    Ok(())
}

fn row([scenario, policy, latency]: [&str; 3], errors: Errors) -> String {
    let Errors {
        requests,
        median_ms,
        predictor: (median, most),
        mean: (mean_median, mean_most),
    } = errors;
    format!(
        "{scenario:<19} {policy:<15} {latency} {requests:>8} {median_ms:>9.1} \
         {median:>9.1} {most:>5.0} {mean_median:>9.1} {mean_most:>5.0}"
    )
}

/// The least time of many that all candidates' predictions take.
fn cost_us() -> f64 {
    let mut predictor = Predictor::default();
    let features = |number: u32| Features {
        input_tokens: f64::from(number % 7) * 500.0,
        running: f64::from(number % 5),
        ..Features::default()
    };
    for number in 0..1000 {
        let endpoint = EndpointId(number % CANDIDATES);
        predictor.learn_ttft(endpoint, &features(number), 50.0);
        predictor.learn_tpot(endpoint, &features(number), 10.0);
    }
    let measure = || {
        let begun = Instant::now();
        for number in 0..CANDIDATES {
            let (endpoint, features) = (EndpointId(number), features(number));
            black_box(predictor.ttft(endpoint, black_box(&features)));
            black_box(predictor.tpot(endpoint, black_box(&features)));
        }
        begun.elapsed()
    };
    let least = (0..TIMES).map(|_| measure()).min().unwrap_or_default();
    least.as_secs_f64() * 1e6
}

const HEADER: &str = "scenario            policy          of   requests median ms   % p50   p90   \
                      mean p50   p90";

/// Candidates of a decision that is measured.
const CANDIDATES: u32 = 128;

/// Measurements of which the least counts.
const TIMES: usize = 1000;
