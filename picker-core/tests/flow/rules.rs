//! How requests wait in a test, drawn at random.

use picker_core::{
    Band, Capacity, Concurrency, Detector, Draws, Fairness, FlowControl, LeastAttained, Ordering,
    Plan, PoolOptions, Request, Shape, Span, UsageLimit,
};

/// What a pool is configured to do.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Rules {
    pub(crate) flow: FlowControl,
    /// Requests in flight at an endpoint that make it full.
    pub(crate) limit: u32,
    /// Requests in flight at an endpoint at most.
    pub(crate) cap: Option<u32>,
}

impl Rules {
    /// Any rules.
    pub(crate) fn drawn(draws: &mut Draws) -> Self {
        let bands = PRIORITIES.into_iter();
        let bands = bands.filter(|it| *it == 0 || draws.below(2) == 0);
        let bands: Vec<i32> = bands.collect();
        let bands = bands.into_iter().map(|priority| Band {
            priority,
            capacity: capacity(draws),
            fairness: fairness(draws),
            ordering: one_of(
                draws,
                &[Ordering::Fcfs, Ordering::Edf, Ordering::SloDeadline],
            ),
        });
        let flow = FlowControl {
            bands: bands.collect(),
            capacity: capacity(draws),
            request_ttl: ttl(draws),
            no_endpoint_ttl: ttl(draws),
            usage_limit: usage_limit(draws),
            evicts: false,
        };
        Self {
            flow,
            limit: 1 + draws.below(7),
            cap: (draws.below(2) == 0).then(|| 1 + draws.below(4)),
        }
    }

    /// Those of a pool in which all can be seen.
    pub(crate) fn of_all_bands() -> Self {
        let flow = FlowControl {
            bands: PRIORITIES.map(Band::of).to_vec(),
            ..FlowControl::default()
        };
        Self {
            flow,
            limit: 1,
            cap: None,
        }
    }

    /// The options of a pool that keeps them.
    pub(crate) fn options(&self) -> PoolOptions {
        let detector = Detector::Concurrency(Concurrency {
            requests: Some(f64::from(self.limit)),
            tokens: None,
            headroom: 0.0,
        });
        let plan = Plan {
            flow: Some(self.flow.clone()),
            detector,
            ..Plan::default()
        };
        PoolOptions {
            name: POOL.into(),
            plan,
            staleness_threshold: Span::from_millis(2000),
            requests_per_endpoint: self.cap,
            ..PoolOptions::default()
        }
    }
}

/// Any request that may have to wait.
pub(crate) fn request(draws: &mut Draws) -> Request {
    let tenant = one_of(draws, &[None, Some("a"), Some("b"), Some("c")]);
    let mut headers = Vec::new();
    if draws.below(2) == 0 {
        let millis = draws.below(200).to_string();
        headers.push(("x-slo-ttft-ms".into(), millis));
    }
    Request {
        shape: Some(Shape::ChatCompletions),
        // The first has no band of its own.
        priority: one_of(draws, &[7, 5, 0, -2]),
        fairness_id: tenant.map(Into::into),
        headers,
        ..Request::default()
    }
}

/// One of `all`.
pub(crate) fn one_of<T: Clone>(draws: &mut Draws, all: &[T]) -> T {
    all[draws.below(all.len() as u32) as usize].clone()
}

fn capacity(draws: &mut Draws) -> Capacity {
    let mut below = |bound: u32| match draws.below(3) {
        0 => u64::from(draws.below(bound)),
        1 => u64::from(bound),
        _ => u64::MAX,
    };
    Capacity {
        requests: below(12),
        bytes: below(400),
    }
}

fn ttl(draws: &mut Draws) -> Option<Span> {
    let millis = u64::from(30 + draws.below(400));
    (draws.below(3) > 0).then(|| Span::from_millis(millis))
}

fn fairness(draws: &mut Draws) -> Fairness {
    let of_programs = Fairness::ProgramAware(WEIGHTS);
    one_of(
        draws,
        &[Fairness::GlobalStrict, Fairness::RoundRobin, of_programs],
    )
}

fn usage_limit(draws: &mut Draws) -> UsageLimit {
    let holdback = |by_value| UsageLimit::Holdback {
        least: 0.5,
        most: 1.0,
        by_value,
    };
    let all = [
        UsageLimit::Static(1.0),
        UsageLimit::Static(0.5),
        holdback(true),
        holdback(false),
    ];
    one_of(draws, &all)
}

/// The name of the pool.
pub(crate) const POOL: &str = "llm";

/// Priorities that may have a band.
pub(crate) const PRIORITIES: [i32; 3] = [5, 0, -2];

/// What counts is forgotten within a test.
pub(crate) const WEIGHTS: LeastAttained = LeastAttained {
    weight_service: 0.8,
    weight_wait: 0.2,
    half_life: Span::from_millis(200),
    forgotten_after: Span::from_millis(1000),
};
