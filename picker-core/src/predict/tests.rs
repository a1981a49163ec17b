//! What predictions are worth after answers of which the times are known.

use super::*;
use crate::draw::Draws;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const A: EndpointId = EndpointId(1);
const B: EndpointId = EndpointId(2);

/// Features of a drawn request on a drawn load.
fn drawn(draws: &mut Draws) -> Features {
    let mut below = |bound| f64::from(draws.below(bound));
    Features {
        input_tokens: 10.0 + below(8000),
        prefix_ratio: below(100) / 100.0,
        waiting: below(3),
        running: below(30),
        kv_usage: below(100) / 100.0,
        prefill_tokens: below(4000),
    }
}

/// A pod that needs 20 ms, 30 more for 1,000 tokens and 2 more for each request it has.
fn takes(features: &Features) -> f64 {
    let missing = features.input_tokens * (1.0 - features.prefix_ratio);
    20.0 + 0.03 * (missing + features.prefill_tokens) + 2.0 * features.running
}

/// Learns `answers` drawn from `seed`, of which `slowness` says by how much each is slower.
fn learn(
    predictor: &mut Predictor,
    (seed, answers): (u64, u32),
    slowness: impl Fn(u32) -> (EndpointId, f64),
) {
    let mut draws = Draws::new(seed);
    for answer in 0..answers {
        let features = drawn(&mut draws);
        let (endpoint, slowness) = slowness(answer);
        predictor.learn_ttft(endpoint, &features, takes(&features) * slowness);
    }
}

/// The worst relative error over drawn requests.
fn error(predictor: &Predictor, endpoint: EndpointId, slowness: f64) -> f64 {
    let mut draws = Draws::new(99);
    let errors = (0..100).map(|_| {
        let features = drawn(&mut draws);
        let expected = takes(&features) * slowness;
        let predicted = predictor.ttft(endpoint, &features).unwrap();
        ((predicted - expected) / expected).abs()
    });
    errors.fold(0.0, f64::max)
}

fn encoded(predictor: &Predictor) -> Vec<u8> {
    let mut bytes = Vec::new();
    predictor.encode(&mut bytes);
    bytes
}

#[test]
fn terms_are_what_a_request_adds_to_what_is_there() {
    let features = Features {
        input_tokens: 4000.0,
        prefix_ratio: 0.25,
        waiting: 2.0,
        running: 5.0,
        kv_usage: 0.5,
        prefill_tokens: 2000.0,
    };
    let expected = [1.0, 3.0, 2.0, 5.0, 0.5, 2.0, 15.0, 10.0];
    assert_eq!(features.terms(), expected);
    let senseless = Features {
        input_tokens: f64::INFINITY,
        prefix_ratio: f64::NAN,
        waiting: -1.0,
        running: f64::NAN,
        kv_usage: f64::NEG_INFINITY,
        prefill_tokens: -0.5,
    };
    assert_eq!(senseless.terms(), [1.0, 1e6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn nothing_is_said_before_enough_was_seen() {
    let mut predictor = Predictor::default();
    learn(&mut predictor, (1, 31), |_| (A, 1.0));
    assert_eq!(predictor.ttft(A, &Features::default()), None);
    learn(&mut predictor, (2, 1), |_| (A, 1.0));
    assert!(predictor.ttft(A, &Features::default()).is_some());
    assert_eq!(predictor.tpot(A, &Features::default()), None);
}

#[test]
fn what_is_a_sum_of_the_terms_is_predicted_as_it_is() {
    let mut predictor = Predictor::default();
    learn(&mut predictor, (1, 600), |_| (A, 1.0));
    assert!(error(&predictor, A, 1.0) < 0.02);
    assert!(error(&predictor, B, 1.0) < 0.02, "an endpoint never seen");
}

#[test]
fn an_endpoint_that_takes_twice_as_long_is_predicted_so() {
    let mut predictor = Predictor::default();
    let slowness = |answer: u32| {
        if answer.is_multiple_of(4) {
            (B, 2.0)
        } else {
            (A, 1.0)
        }
    };
    learn(&mut predictor, (1, 3000), slowness);
    assert!(error(&predictor, A, 1.0) < 0.05);
    assert!(error(&predictor, B, 2.0) < 0.05);
    predictor.retain(|endpoint| endpoint == A);
    assert!(error(&predictor, B, 1.0) < 0.4, "forgotten");
}

#[test]
fn ratios_do_not_drift_however_skewed_the_errors_are() {
    let mut predictor = Predictor::default();
    // The model goes by squares and the ratio does not, so they never agree.
    let slowness = |answer: u32| (A, if answer.is_multiple_of(10) { 6.0 } else { 1.0 });
    learn(&mut predictor, (1, 40_000), slowness);
    let ratio = predictor.ttft.ratios.of(A);
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
}

#[test]
fn one_answer_in_fifty_that_took_a_hundred_times_as_long_hardly_counts() {
    let mut predictor = Predictor::default();
    let slowness = |answer: u32| {
        (
            A,
            if answer.is_multiple_of(50) {
                100.0
            } else {
                1.0
            },
        )
    };
    learn(&mut predictor, (1, 3000), slowness);
    assert!(error(&predictor, A, 1.0) < 0.3);
}

#[test]
fn what_changed_is_followed() {
    let mut predictor = Predictor::default();
    learn(&mut predictor, (1, 3000), |_| (A, 1.0));
    learn(&mut predictor, (2, 3000), |_| (A, 3.0));
    assert!(error(&predictor, A, 3.0) < 0.05);
}

#[test]
fn more_to_do_is_never_predicted_to_be_quicker() {
    for seed in 0..20 {
        let mut predictor = Predictor::default();
        let mut draws = Draws::new(seed);
        for _ in 0..200 {
            let features = drawn(&mut draws);
            let ms = 1.0 + f64::from(draws.below(1000)) / (1.0 + features.running);
            predictor.learn_ttft(A, &features, ms);
        }
        let predict = |features: &Features| predictor.ttft(A, features).unwrap();
        for _ in 0..100 {
            let few = drawn(&mut draws);
            let more = Features {
                input_tokens: few.input_tokens + 1000.0,
                prefix_ratio: few.prefix_ratio / 2.0,
                waiting: few.waiting + 1.0,
                running: few.running + 10.0,
                kv_usage: few.kv_usage,
                prefill_tokens: few.prefill_tokens + 500.0,
            };
            assert!(predict(&few) <= predict(&more), "seed {seed}: {few:?}");
        }
    }
}

#[test]
fn predictions_stay_near_what_was_seen() {
    let mut predictor = Predictor::default();
    for answer in 0..100 {
        let features = Features {
            running: f64::from(answer % 10),
            ..Features::default()
        };
        predictor.learn_tpot(A, &features, 10.0 + f64::from(answer % 10));
    }
    let predict = |running| {
        let features = Features {
            running,
            ..Features::default()
        };
        predictor.tpot(A, &features).unwrap()
    };
    assert_eq!(predict(5.0).round(), 15.0);
    assert_eq!(predict(1e12).round(), 38.0, "twice the longest");
}

#[test]
fn senseless_times_teach_nothing() {
    let mut predictor = Predictor::default();
    for ms in [f64::NAN, f64::INFINITY, -1.0, 0.0, MS_MAX * 1.001] {
        predictor.learn_ttft(A, &Features::default(), ms);
    }
    assert_eq!(encoded(&predictor), encoded(&Predictor::default()));
}

#[test]
fn the_longest_and_the_shortest_times_are_learnt_and_forgotten() {
    let features = |running| Features {
        running,
        ..Features::default()
    };
    for ms in [MS_MAX, 1e-300] {
        let mut predictor = Predictor::default();
        (0..40).for_each(|_| predictor.learn_ttft(A, &features(1.0), ms));
        for running in [0.0, 1.0, FEATURE_MAX] {
            let predicted = predictor.ttft(A, &features(running)).unwrap();
            assert!((MS_MIN..=MS_MAX).contains(&predicted), "{predicted}");
        }
        // The shortest weigh 10^8 times as much as those of 10 ms.
        (0..9000).for_each(|_| predictor.learn_ttft(A, &features(1.0), 10.0));
        let predicted = predictor.ttft(A, &features(1.0)).unwrap();
        assert!((9.9..10.1).contains(&predicted), "{ms}: {predicted}");
    }
}

#[test]
fn workers_that_hear_of_one_another_predict_as_one_that_saw_all() {
    let slowness = |answer: u32| {
        if answer.is_multiple_of(4) {
            (B, 2.0)
        } else {
            (A, 1.0)
        }
    };
    let mut workers = [Predictor::default(), Predictor::default()];
    for (seed, worker) in (1..).zip(&mut workers) {
        learn(worker, (seed, 2000), slowness);
    }
    let [first, second] = &workers;
    let mut late = Predictor::default();
    late.hear([encoded(first), encoded(second)].iter().map(Vec::as_slice));
    assert!(error(&late, A, 1.0) < 0.05);
    assert!(error(&late, B, 2.0) < 0.05);
    let answers = late.ttft.model.own.answers;
    assert_eq!(answers, 0.0, "what was heard is not told again");
    late.hear([].into_iter());
    assert_eq!(late.ttft(A, &Features::default()), None);
}

#[test]
fn bytes_that_are_no_statistics_are_left_out() {
    let mut predictor = Predictor::default();
    learn(&mut predictor, (1, 100), |_| (A, 1.0));
    let bytes = encoded(&predictor);
    let reads = |bytes: &[u8]| Predictor::default().read(bytes).is_some();
    assert!(reads(&bytes));
    for length in 0..bytes.len() {
        assert!(!reads(&bytes[..length]), "{length} bytes");
    }
    assert!(!reads(&[bytes.as_slice(), &[0]].concat()));
    // The format, the answers, a sum and, after 78 numbers and the count, the ratio of A.
    for (place, value) in [
        (0, FORMAT + 1),
        (8, 0x7f),
        (8, 0xff),
        (1 + 3 * 8 + 7, 0x80),
        (1 + 75 * 8 + 2 + 4 + 3, 0xff),
    ] {
        let mut bytes = bytes.clone();
        bytes[place] = value;
        assert!(!reads(&bytes), "byte {place}");
    }
}

#[test]
fn any_numbers_of_others_leave_predictions_in_range() {
    let mut draws = Draws::new(1);
    let mut predictor = Predictor::default();
    learn(&mut predictor, (1, 100), |_| (A, 1.0));
    let bytes = encoded(&predictor);
    for _ in 0..2000 {
        let mut bytes = bytes.clone();
        for _ in 0..=draws.below(8) {
            let place = draws.below(bytes.len() as u32) as usize;
            bytes[place] = draws.next_draw() as u8;
        }
        predictor.hear([bytes.as_slice()].into_iter());
        for endpoint in [A, B] {
            let ms = predictor.ttft(endpoint, &drawn(&mut draws)).unwrap();
            assert!((MS_MIN..=MS_MAX).contains(&ms), "{ms}");
        }
    }
}

#[test]
fn endpoints_past_the_limit_are_as_the_pool() {
    let mut ratios = Ratios::default();
    for endpoint in 0..4097 {
        ratios.learn(EndpointId(endpoint), 10.0, 20.0);
    }
    assert!(ratios.of(EndpointId(4095)) > 1.0);
    assert_eq!(ratios.of(EndpointId(4096)), 1.0);
}

#[test]
fn a_ratio_moves_by_the_relative_error() {
    let mut ratios = Ratios::default();
    // 20 ms instead of 10: an error of a half, at first by a twentieth of it.
    assert_eq!(ratios.learn(A, 10.0, 20.0), 1.025);
    // 10.25 ms are as predicted, and the bias of 0.005 · 0.5 is taken off by a 21st.
    let after = 1.025 * (1.0 - 0.0025 / 21.0);
    assert!((ratios.learn(A, 10.0, 10.25) - after).abs() < 1e-12);
    assert_eq!(ratios.of(B), 1.0);
}
