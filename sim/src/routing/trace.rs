//! Recorded requests: one JSON object a line, with the lengths and the hashes of 512-token blocks.
//!
//! This is the form of the Mooncake traces: `timestamp` in milliseconds, `input_length`,
//! `output_length` and `hash_ids`.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::dice::Dice;
use super::job::{Planned, Segment};
use super::scenario::Setup;
use super::workload::Workload;
use crate::engine::Config;
use crate::profile::Profile;
use crate::step_time::{Fitted, StepTime};
use crate::virtual_server::FrontEnd;

/// Recorded requests, and how they are played.
#[derive(Clone, Debug)]
pub struct Trace {
    /// When each was recorded, from the first one on.
    requests: Vec<(Duration, Planned)>,
    /// How many times faster than recorded they are sent.
    speed: f64,
    /// Pods that serve them.
    pods: usize,
}

impl Trace {
    /// Reads at most `requests` lines of a recording.
    pub fn parse(text: &str, requests: usize, speed: f64, pods: usize) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let mut recorded = Vec::new();
        for (number, line) in lines.take(requests).enumerate() {
            let request = parse_line(line).with_context(|| format!("line {}", number + 1))?;
            recorded.push(request);
        }
        ensure!(!recorded.is_empty(), "the trace has no requests");
        ensure!(speed > 0.0, "the speed must be above zero");
        ensure!(pods > 0, "there must be a pod");
        let first = recorded.iter().map(|it| it.0).min().unwrap_or_default();
        for request in &mut recorded {
            request.0 -= first;
        }
        Ok(Self {
            requests: recorded,
            speed,
            pods,
        })
    }

    /// The requests and pods of one seed: recorded times are rounded, and the seed spreads them.
    pub fn setup(&self, seed: u64) -> Setup {
        let mut dice = Dice::new(seed, SPREAD_STREAM);
        let requests = self.requests.iter().enumerate().map(|(number, request)| {
            let (recorded, planned) = request;
            let spread = SPREAD.mul_f64(dice.unit());
            let planned = Planned {
                connection: number,
                ..planned.clone()
            };
            ((*recorded + spread).div_f64(self.speed), planned)
        });
        Setup::new(Workload::Open(requests.collect()), vec![pod(); self.pods])
    }
}

fn parse_line(line: &str) -> Result<(Duration, Planned)> {
    let value: Value = serde_json::from_str(line)?;
    let number = |field: &str| {
        let number = value[field].as_f64();
        number.with_context(|| format!("{field} is missing"))
    };
    let prompt = (number("input_length")? as usize).max(1);
    let output = (number("output_length")? as usize).max(1);
    let hashes = value["hash_ids"].as_array().map(Vec::as_slice);
    let hashes: Vec<u64> = hashes
        .unwrap_or_default()
        .iter()
        .filter_map(Value::as_u64)
        .collect();
    let mut left = prompt;
    let mut segments = Vec::new();
    for &hash in &hashes {
        let tokens = left.min(BLOCK_TOKENS);
        segments.push(Segment::new("recorded", hash, tokens));
        left -= tokens;
    }
    let last = hashes.last().copied().unwrap_or_default();
    if left > 0 {
        segments.push(Segment::new("rest", last, left));
    }
    let at = Duration::from_nanos((number("timestamp")?.max(0.0) * 1e6) as u64);
    let planned = Planned {
        segments,
        output: Segment::new("recorded output", last, output),
        // The first block is the system's, the second the beginning of the conversation.
        group: hashes
            .get(1)
            .or_else(|| hashes.first())
            .copied()
            .unwrap_or_default(),
        ..Planned::default()
    };
    Ok((at, planned))
}

/// A model of 8 billion parameters on a large accelerator, as the recordings need it; the
/// constants are assumed and not measured.
fn pod() -> Profile {
    Profile {
        name: "trace-8b",
        step_time: StepTime::Fitted(Fitted {
            base: 6.0,
            sequence: 0.03,
            prefill_token: 0.035,
            context_factor: 3.3e-5,
            block: 0.00063,
        }),
        front_end: FrontEnd {
            base_ms: 10.0,
            per_request_ms: 0.2,
        },
        engine: Config {
            num_blocks: POD_BLOCKS + 1,
            max_num_batched_tokens: 8192,
            max_model_len: 262_144,
            ..Config::default()
        },
        blocks_reported: POD_BLOCKS,
        ..Profile::l4()
    }
}

/// Tokens of one recorded hash.
const BLOCK_TOKENS: usize = 512;

/// Recorded times are rounded down to three seconds in parts of the traces.
const SPREAD: Duration = Duration::from_secs(3);

/// Blocks of 16 tokens in each pod.
const POD_BLOCKS: u32 = 28_600;

/// Which random numbers of a seed spread the recorded times.
const SPREAD_STREAM: u64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"
        {"timestamp": 1000, "input_length": 1030, "output_length": 7, "hash_ids": [0, 5, 9]}
        {"timestamp": 1000, "input_length": 600, "output_length": 0, "hash_ids": [0, 6]}
        {"timestamp": 9000, "input_length": 10, "output_length": 3, "hash_ids": []}"#;

    #[test]
    fn lines_become_requests_that_share_what_they_shared() {
        let trace = Trace::parse(LINES, 10, 2.0, 3).unwrap();
        let tokens = |it: &(Duration, Planned)| {
            let tokens = it.1.segments.iter().map(|it| it.tokens);
            (tokens.collect::<Vec<_>>(), it.1.output.tokens)
        };
        let read: Vec<_> = trace.requests.iter().map(tokens).collect();
        let expected = [(vec![512, 512, 6], 7), (vec![512, 88], 1), (vec![10], 3)];
        assert_eq!(read, expected);
        let (first, second) = (&trace.requests[0].1, &trace.requests[1].1);
        assert_eq!(first.segments[0], second.segments[0]);
        assert_ne!(first.group, second.group);
        let setup = trace.setup(1);
        assert_eq!(setup.pods.len(), 3);
        let Workload::Open(requests) = setup.workload else {
            panic!("recorded requests come when they come");
        };
        let seconds = requests.iter().map(|it| it.0.as_secs_f64());
        for (at, expected) in seconds.zip([0.0..1.5, 0.0..1.5, 4.0..5.5]) {
            assert!(expected.contains(&at), "{at}");
        }
    }

    #[test]
    fn what_is_no_recording_is_refused_with_the_line() {
        let error = |text: &str, speed| {
            let error = Trace::parse(text, 10, speed, 1).unwrap_err();
            format!("{error:#}")
        };
        assert!(error("{\"timestamp\": 1}", 1.0).contains("line 1: input_length is missing"));
        assert!(error("", 1.0).contains("no requests"));
        assert!(error(LINES, 0.0).contains("speed"));
    }
}
